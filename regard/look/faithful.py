"""Faithfulness of scores: deletion and insertion curves (Petsiuk 2018), and how methods agree.

Tokens are taken away in order of their scores, the highest first: a faithful method makes the goal
fall at once (small area). Put back into nothing in that order, they make it rise at once (large
area). The goal is counted from nothing there (0) to everything there (±1).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.data import statistics
from regard.errors import UsageError
from regard.look.subsets import Value


class Curves(NamedTuple):
    """A goal while tokens are taken away, and while they are put in."""

    deletion: Tensor
    """(M + 1,): the goal with 0 … M tokens absent, the highest scores first."""
    insertion: Tensor
    """(M + 1,): the goal with 0 … M tokens there."""
    deletion_area: float
    """Mean height of the curve, counted from nothing there; small is faithful."""
    insertion_area: float
    """The same; large is faithful."""


def curves(value: Value, scores: Tensor) -> Curves:
    """Deletion and insertion in the order of scores (M,), by the value of a subset."""
    count = len(scores)
    rank = scores.argsort(descending=True, stable=True).argsort()  # 0 is the highest
    steps = torch.arange(count + 1)[:, None]
    made = value(torch.cat((rank >= steps, rank < steps))).double()
    deletion, insertion = made[: count + 1], made[count + 1 :]
    none, whole = insertion[0], deletion[0]
    return Curves(deletion, insertion, area(deletion, none, whole), area(insertion, none, whole))


def area(curve: Tensor, none: Tensor, whole: Tensor) -> float:
    """Area under a curve over the share of tokens, in units of |whole − none|; NaN for none."""
    scale = (whole - none).abs()
    if scale == 0:
        return float("nan")
    return float(torch.trapezoid((curve - none) / scale)) / (len(curve) - 1)


def random_areas(value: Value, count: int, orders: int = 10, seed: int = 0) -> tuple[float, float]:
    """The mean areas of random orders: what a method without any idea reaches."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [curves(value, torch.rand(count, generator=generator)) for _ in range(orders)]
    deletion = sum(found.deletion_area for found in drawn) / orders
    return deletion, sum(found.insertion_area for found in drawn) / orders


def spearman(a: Tensor, b: Tensor) -> float:
    """Rank correlation of two methods' scores; NaN where one has no order."""
    if a.shape != b.shape:
        raise UsageError("comparing scores", f"{len(a)} and {len(b)}", "as many of each")
    if any(bool((x == x[0]).all()) for x in (a, b)):
        return float("nan")
    return statistics.spearman(a.tolist(), b.tolist())
