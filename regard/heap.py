"""The heap of the C library: keep what is freed for what comes next, or give it back."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt
LARGEST = 32 << 20  # bytes of a block that the heap serves; glibc allows no more


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


def give_back_memory() -> bool:
    """Ask glibc to give free pages back, also those between blocks in use; False without glibc."""
    trim = glibc("malloc_trim")
    return trim is not None and bool(trim(0))
