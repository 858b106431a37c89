"""Memory: what is free, and what the heap of the C library keeps or gives back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt
LARGEST = 32 << 20  # bytes of a block that the heap serves; glibc allows no more
LARGE = 1 << 20  # bytes of a block whose pages are its own


def glibc(name: str) -> Any:
    """One of its functions; None where another C library runs."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None


def keep_memory() -> bool:
    """Ask glibc to keep what a step frees for the next one; False where there is no glibc.

    By default it gives the memory of activations back after each step and gets it again page by
    page, each page cleared by the kernel.
    """
    mallopt = glibc("mallopt")
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST) and mallopt(TRIM_THRESHOLD, 2**31 - 1))


@contextmanager
def large_apart() -> Iterator[None]:
    """Large blocks have pages of their own here, which go back when they are freed.

    For weights that are read and packed: by default the first that is freed moves all others into
    the heap, where what they leave lies between blocks in use. Afterwards `keep_memory`.
    """
    mallopt = glibc("mallopt")
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
    try:
        yield
    finally:
        keep_memory()


def give_back_memory() -> bool:
    """Ask glibc to give free pages back, also those between blocks in use; False without glibc."""
    trim = glibc("malloc_trim")
    return trim is not None and bool(trim(0))


def read_memory(key: str) -> int | None:
    """Bytes that /proc/meminfo says; None where there is no such file."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = [line.split() for line in lines if line.startswith(f"{key}:")]
    return int(fields[0][1]) * 1024 if fields else None


def free_memory(device: str = "cpu") -> int | None:
    """Bytes that a new process can have: what is free there, less where a container says so."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0])
    free = read_memory("MemAvailable")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if free is None or limit == "max" else max(min(free, int(limit) - used), 0)
