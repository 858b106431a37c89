"""Schedules: learning rate by step, as a share of the peak."""

from __future__ import annotations

import math
from collections.abc import Callable

from regard.errors import check_known

Schedule = Callable[[int], float]
"""Step, counted from 1 → factor on the peak rate."""


def constant(warm_up: int, steps: int, floor: float) -> Schedule:
    """Linear warm-up, then the peak."""
    return lambda step: min(1.0, step / max(warm_up, 1))


def inverse_sqrt(warm_up: int, steps: int, floor: float) -> Schedule:
    """Linear warm-up, then ∝ 1 / sqrt(step) (Vaswani 2017, 5.3); the peak is at `warm_up`."""
    turn = max(warm_up, 1)
    return lambda step: min(step / turn, (turn / step) ** 0.5)


def cosine(warm_up: int, steps: int, floor: float) -> Schedule:
    """Linear warm-up, then half a cosine down to `floor` at the last step."""

    def rate(step: int) -> float:
        if step <= warm_up:
            return step / max(warm_up, 1)
        done = min(1.0, (step - warm_up) / max(steps - warm_up, 1))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

    return rate


def wsd(warm_up: int, steps: int, floor: float, share: float = 0.2) -> Schedule:
    """Warm-up, stable, then linear decay to `floor` in the last `share` of the steps (Hu 2024)."""
    fall = max(1, int(steps * share))

    def rate(step: int) -> float:
        left = (steps - step) / fall
        return min(step / max(warm_up, 1), 1.0, floor + (1 - floor) * max(0.0, left))

    return rate


SCHEDULES = {"constant": constant, "inverse_sqrt": inverse_sqrt, "cosine": cosine, "wsd": wsd}


def build_schedule(name: str, warm_up: int, steps: int, floor: float = 0.1) -> Schedule:
    """The schedule called `name`."""
    check_known(name, SCHEDULES, "choosing a schedule")
    return SCHEDULES[name](warm_up, steps, floor)
