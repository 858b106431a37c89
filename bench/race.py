"""Races on a CPU: functions take turns, so that a neighbour on the machine disturbs all of them."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

Run = Callable[[], int]
"""Does its work once and says how many tokens it wrote."""


def race(runs: Mapping[str, Run], rounds: int, settings: dict[str, Any], as_json: bool) -> None:
    """Print each one's tokens per CPU-second, the median of its rounds."""
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            written = run()
            if turn:  # the first one packs the weights and warms up
                speeds[name].append(written / (time.process_time() - start))
    found = {name: round(statistics.median(values), 1) for name, values in speeds.items()}
    if as_json:
        print(json.dumps(settings | {"tokens_per_cpu_second": found}))
        return
    for name, speed in found.items():
        print(f"{name:18}{speed:9.1f} tokens per CPU-second")
