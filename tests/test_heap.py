"""The heap: memory that is kept, and memory that is given back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from regard.heap import give_back_memory, keep_memory

KEPT = """
import resource
import torch
from regard.heap import keep_memory
if {kept}:
    assert keep_memory()

def step():
    tensors = [torch.ones(1 << 20) for _ in range(50)]  # 200 MB in all

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_kept() -> None:
    """The second step touches few new pages; 200 MB are 51,200 of 4 KiB."""
    faults = {}
    for kept in (True, False):
        command = [sys.executable, "-c", KEPT.format(kept=kept)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        faults[kept] = int(done.stdout)
    assert 5 * faults[True] < faults[False]


def test_without_glibc_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_memory() and not give_back_memory()


BACK = """
import torch
from regard.heap import give_back_memory

def size():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

many = [torch.ones(1 << 14) for _ in range(2000)]  # 64 KiB each, 131 MB in all
held = many[::200]
del many
before = size()
give_back_memory()
print(before - size())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_free_pages_between_blocks_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", BACK], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50_000_000
