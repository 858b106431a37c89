"""The heap: memory that is kept, and memory that is given back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from regard.heap import give_back_memory, keep_memory, large_apart

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
    with large_apart():
        pass


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


APART = """
import torch
from contextlib import nullcontext
from regard.heap import large_apart

def size():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

with {how}():
    torch.ones(1 << 21)  # 8 MiB that are freed: by default later blocks go into the heap
    many = [(torch.ones(1 << 19), torch.ones(1 << 10)) for _ in range(100)]  # 2 MiB and 4 KiB
    before = size()
    held = [small for _, small in many]
    del many
    print(before - size())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_blocks_go_back_when_they_are_freed() -> None:
    back = {}
    for how in ("large_apart", "nullcontext"):
        command = [sys.executable, "-c", APART.format(how=how)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        back[how] = int(done.stdout)
    assert back["large_apart"] > 200_000_000 > 10 * back["nullcontext"]
