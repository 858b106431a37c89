"""Energy of a piece of work, in joules: by the machine's own counters where they can be read.

The package counters of the processor (`powercap`, called RAPL) count all that runs there,
neighbours too. Without them, the CPU time of this process times an assumed power. A GPU is not
counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")
WATTS = 10.0  # of a busy core, assumed: processors of 2020 to 2025 have limits of 5 to 15 for each


class Counter(NamedTuple):
    """Something that counts up, in joules."""

    read: Callable[[], float]
    wrap: float = 0.0
    """Where it begins again at 0; 0 is never."""


class Meter:
    """Joules since it was started, and where the figure comes from."""

    def __init__(
        self, gpu: bool = False, watts: float | None = None, powercap: Path = POWERCAP
    ) -> None:
        packages = [] if watts else find_packages(powercap)
        power = watts or WATTS
        self.counters = packages or [Counter(lambda: power * cpu_seconds())]
        self.measured = bool(packages) and not gpu
        why = "given" if watts else "assumed, as no counter can be read"
        self.source = f"CPU seconds × {power:g} W for each busy core ({why})"
        if packages:
            self.source = f"counters of {len(packages)} CPU package(s), neighbours included"
        if gpu:
            self.source += "; the GPU is not counted"
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self.before = [counter.read() for counter in self.counters]

    def joules(self) -> float:
        """Since the start; right for one turn of a counter."""
        total = 0.0
        for counter, before in zip(self.counters, self.before, strict=True):
            used = counter.read() - before
            total += used + counter.wrap if used < 0 else used
        return total


def cpu_seconds() -> float:
    """CPU time of this process and of those it started and waited for."""
    return time.process_time() + sum(os.times()[2:4])


def find_packages(powercap: Path) -> list[Counter]:
    """The counters of processors that this user may read."""
    counters = []
    for place in sorted(powercap.glob("intel-rapl:*")):  # AMD's are called so too
        try:
            if not (place / "name").read_text().startswith("package"):
                continue
            wrap = int((place / "max_energy_range_uj").read_text()) / 1e6
            counter = Counter(read_file(place / "energy_uj"), wrap)
            counter.read()
        except (OSError, ValueError):
            continue
        counters.append(counter)
    return counters


def read_file(path: Path) -> Callable[[], float]:
    """A function that reads microjoules."""
    return lambda: int(path.read_text()) / 1e6
