"""What this machine has: packages, memory, devices, kernels, and one figure of its speed."""

from __future__ import annotations

import os
import platform
import shutil
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from regard import __version__
from regard.ambient import choose_device
from regard.heap import free_memory, read_memory
from regard.native.results import Machine, MainMemory, NativeKernels, Speed

REQUIRED = ("torch", "numpy", "safetensors", "tokenizers")
OPTIONAL = {
    "transformers": "measures parity in `regard check`",
    "gguf": "opens .gguf files",
    "sentencepiece": "opens .model and .spm tokenizers",
    "soundfile": "reads sound files",
    "pillow": "reads pictures",
    "rich": "tables and progress on a terminal",
}


def examine_machine() -> Machine:
    """Versions, memory, disk and, where torch is there, devices, kernels and speed."""
    required = {name: find_version(name) for name in REQUIRED}
    optional = {name: find_version(name) for name in OPTIONAL}
    return Machine(
        python=platform.python_version(),
        platform=platform.platform(),
        regard=__version__,
        packages=required,
        optional=optional,
        memory=MainMemory(read_memory("MemTotal"), free_memory()),
        disk_free=shutil.disk_usage(Path.cwd()).free,
        ok=None not in required.values(),
        uses={name: use for name, use in OPTIONAL.items() if optional[name] is None},
        **({} if required["torch"] is None else examine_torch()),
    )


def examine_torch() -> dict[str, Any]:
    """Devices, threads, kernels and speed."""
    import torch

    from regard.native.inference import find_native

    names = map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
    devices = ["cpu", *(f"cuda:{n} {name}" for n, name in enumerate(names))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    device, native = choose_device(), find_native()
    return {
        "devices": devices,
        "native": NativeKernels(native.library is not None, native.why),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "speed": Speed(device, round(measure_speed(device), 1)),
    }


def find_version(package: str) -> str | None:
    """A package's version without importing it; None when it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def measure_speed(device: str, seconds: float = 0.3, size: int = 1024) -> float:
    """GFLOP/s of a float32 matrix product: the best of as many as fit into `seconds`."""
    import torch

    wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(device, lambda: None)
    a = torch.rand(size, size, device=device)
    best, end = float("inf"), time.perf_counter() + seconds
    a @ a  # the first call loads the library
    while time.perf_counter() < end:
        start = time.perf_counter()
        a @ a
        wait()
        best = min(best, time.perf_counter() - start)
    return float(2 * size**3 / best / 1e9)
