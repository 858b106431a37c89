"""A stopwatch for parts of a model, on any device."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

ENOUGH = 0.8  # seconds after which a piece is not timed again
SAMPLES = 2, 9  # at least and at most


class Watch:
    """Adds up the time spent in wrapped functions; waits for a GPU before reading the clock."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.spent: dict[str, float] = defaultdict(float)

    def now(self) -> float:
        """The clock, once all queued work is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        elif self.device == "mps":
            torch.mps.synchronize()
        return time.perf_counter()

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time added to `name`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self.now()
            out = function(*args, **kwargs)
            self.spent[name] += self.now() - start
            return out

        return timed

    def sample(self, work: Callable[[], Any]) -> dict[str, float]:
        """Seconds of `work` ("all") and of what is wrapped in it: the quickest of several.

        A neighbour on the machine only ever makes a sample slower.
        """
        found: list[dict[str, float]] = []
        least, most = SAMPLES
        work()  # the first touches new memory and loads libraries
        end = self.now() + ENOUGH
        while len(found) < least or (len(found) < most and self.now() < end):
            self.spent.clear()
            start = self.now()
            work()
            found.append({**self.spent, "all": self.now() - start})
        return min(found, key=lambda sample: sample["all"])

    def best(self, work: Callable[[], Any]) -> float:
        """Seconds of `work` alone."""
        return self.sample(work)["all"]
