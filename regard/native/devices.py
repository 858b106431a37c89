"""Devices of this machine: which one is taken, what memory it has, which kernels run on it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from regard.ambient import current
from regard.errors import ResourceError

TRITON = find_spec("triton") is not None  # looked for once, not at each step
SHORT = 256
"""Up to here the memory-efficient kernel is quicker than flash attention, backwards above all."""


def choose_device(asked: str | None = None) -> str:
    """The device asked for, else that of the settings; auto takes the fastest there is."""
    asked = current().device if asked is None else asked
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if asked == "auto":
        return next(name for name, available in there.items() if available)
    if not there.get(asked.partition(":")[0]):
        raise ResourceError(
            f"using --device {asked}",
            "torch sees no such device",
            f"one of {', '.join(name for name, available in there.items() if available)}",
            "run `regard doctor`",
        )
    return asked


def wait_for(device: str) -> None:
    """Return once all work that is queued on a device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def read_memory(key: str) -> int | None:
    """Bytes that /proc/meminfo says; None where there is no such file."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(f"{key}:")]
    return int(sizes[0]) * 1024 if sizes else None


def free_memory(device: str = "cpu") -> int | None:
    """Bytes that a new process can have: what is free there, less where a container says so."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    free = read_memory("MemAvailable")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    if free is None or limit == "max":
        return free
    return max(min(free, int(limit) - used), 0)


def runs_kernels(x: Tensor) -> bool:
    """Whether a kernel of our own in Triton can read a tensor."""
    return TRITON and x.is_cuda and x.dtype != torch.float64


def expect_many_shapes(longest: int = SHORT + 1) -> None:
    """Attention without cuDNN, which prepares every new shape for a third of a second.

    Where all sequences are short, without flash attention too: of a step on 2,000 sentences of 20
    words, half of the time was its.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_flash_sdp(longest > SHORT)
