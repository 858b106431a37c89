"""`regard doctor`: what this machine has, and how fast it is."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from regard import __version__
from regard.ambient import choose_device
from regard.cli.show import Show, human_bytes
from regard.heap import free_memory, read_memory

REQUIRED = ("torch", "numpy", "safetensors", "tokenizers")
OPTIONAL = {
    "transformers": "measures parity in `regard check`",
    "sentencepiece": "opens .model and .spm tokenizers",
    "soundfile": "reads sound files",
    "pillow": "reads pictures",
    "rich": "tables and progress on a terminal",
}


def run(args: argparse.Namespace, show: Show) -> int:
    """Print versions, devices, memory, disk and one speed figure; 1 when a package is missing."""
    required = {name: find_version(name) for name in REQUIRED}
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "regard": __version__,
        "packages": required,
        "optional": {name: find_version(name) for name in OPTIONAL},
        "memory": {"total": read_memory("MemTotal"), "available": free_memory()},
        "disk_free": shutil.disk_usage(Path.cwd()).free,
    }
    if required["torch"] is not None:
        with show.progress("looking at the machine") as progress:
            progress("importing torch")
            found |= look_at_torch(args.device)
    missing = [name for name, number in required.items() if number is None]
    found["ok"] = not missing
    if show.as_json:
        show.result(found)
    else:
        print_report(found, show)
    if missing:
        show.error(f"missing: {', '.join(missing)}\n  to fix: pip install {' '.join(missing)}")
    return 1 if missing else 0


def look_at_torch(device: str) -> dict[str, Any]:
    """Devices, threads, kernels and speed."""
    import torch

    from regard.native.inference import find_native

    devices = ["cpu"]
    for n in range(torch.cuda.device_count()):
        devices.append(f"cuda:{n} {torch.cuda.get_device_name(n)}")
    if torch.backends.mps.is_available():
        devices.append("mps")
    where, native = choose_device(device), find_native()
    return {
        "devices": devices,
        "native": {"there": native.library is not None, "why_not": native.why},
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "speed": {"device": where, "float32_gflops": round(measure_speed(where), 1)},
    }


def print_report(found: dict[str, Any], show: Show) -> None:
    """The same for people."""
    packages = {"regard": found["regard"], "Python": found["python"]}
    packages |= {name: number or "MISSING" for name, number in found["packages"].items()}
    for name, use in OPTIONAL.items():
        packages[name] = found["optional"][name] or f"not installed ({use})"
    show.fields("packages", packages)
    memory = found["memory"]
    machine = {"platform": found["platform"]}
    if memory["total"]:
        free = human_bytes(memory["available"])
        machine["memory"] = f"{human_bytes(memory['total'])}, {free} available"
    machine["free disk here"] = human_bytes(found["disk_free"])
    if "speed" in found:
        speed = found["speed"]
        machine["devices"] = ", ".join(found["devices"])
        native = found["native"]
        machine["int8 kernels"] = "native" if native["there"] else f"torch's: {native['why_not']}"
        machine["threads"] = f"{found['threads']} of {found['cores']} cores"
        machine["speed"] = (
            f"{speed['float32_gflops']:,} GFLOP/s (float32 matrix product, {speed['device']})"
        )
    show.fields("machine", machine)


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
