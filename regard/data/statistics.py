"""Statistics: the interval of a share, the correlation of ranks, perplexity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError


def share_interval(right: int, asked: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927); 0 to 1 where nothing was asked."""
    if not asked:
        return 0.0, 1.0
    n, p = asked, right / asked
    middle, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - spread) / (1 + z * z / n), (middle + spread) / (1 + z * z / n)


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Correlation of ranks (Spearman 1904); 0 where one of the two does not vary."""
    a, b = (ranks(np.asarray(values, np.float64)) for values in (x, y))
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else 0.0


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places in ascending order; equals share the mean of theirs."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[group]


def perplexity(loss: float) -> float:
    """exp of a mean negative log-likelihood, infinite where that is too large for a number."""
    return math.exp(loss) if loss < 700 else math.inf


def check_finite(doing: str, logprobs: Iterable[float]) -> None:
    """Stop where a model's scores are no numbers."""
    if any(math.isnan(value) for value in logprobs):
        raise RegardError(doing, "scores of the model that are NaN", "numbers", "check its weights")
