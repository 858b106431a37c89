"""LIME: a linear model of a goal around one input (Ribeiro 2016).

Tokens are left out at random; a ridge regression, weighted by nearness to the whole input, says
what each token adds. Its weighted R² tells whether a sum of tokens describes the model there.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from regard.errors import RegardWarning, UsageError
from regard.look.masked_input import SetFunction
from regard.look.results import MethodScores

SIGMA = 25.0  # width of the kernel, on 100 times the cosine distance
TRUSTED = 0.5  # R² below which the fit is not to be trusted


def fit_lime(
    goal: SetFunction, count: int, samples: int = 1000, ridge: float = 1.0, seed: int = 0
) -> MethodScores:
    """The linear model of a goal by its `count` tokens; warns where it fits badly."""
    if samples < 2 or count < 1:
        problem = f"{samples} samples of {count} tokens"
        raise UsageError("explaining by LIME", problem, "2 samples and 1 token or more")
    kept = draw_subsets(count, samples, seed)
    y = goal(kept).double()
    scores, intercept, r2 = weighted_ridge(kept.double(), y, kernel_weights(kept), ridge)
    if r2 < TRUSTED:
        warnings.warn(
            f"[lime-fit] R² is {r2:.2f}: a sum of tokens does not describe this model here; "
            "do not trust these scores.",
            RegardWarning,
            stacklevel=2,
        )
    return MethodScores(scores, float(y[0]), r2=r2, trusted=r2 >= TRUSTED, intercept=intercept)


def draw_subsets(count: int, samples: int, seed: int) -> Tensor:
    """(N, M): the whole first, then 1 to M tokens absent, each number as often, any of them."""
    generator = torch.Generator().manual_seed(seed)
    absent = torch.randint(1, count + 1, (samples - 1, 1), generator=generator)
    rank = torch.rand(samples - 1, count, generator=generator).argsort(1).argsort(1)
    return torch.cat((torch.ones(1, count, dtype=torch.bool), rank >= absent))


def kernel_weights(kept: Tensor) -> Tensor:
    """Weights (N,): exp(−D²/σ²), D = 100 times the cosine distance to the whole, 1 − √(|z|/M)."""
    distance = 100 * (1 - kept.double().mean(1).sqrt())
    return (-((distance / SIGMA) ** 2)).exp()


def weighted_ridge(
    x: Tensor, y: Tensor, weight: Tensor, ridge: float
) -> tuple[Tensor, float, float]:
    """Coefficients (M,), intercept, which is not shrunk, and weighted R²; x (N, M), y (N,)."""
    share = weight / weight.sum()
    mean_x, mean_y = share @ x, share @ y
    x, y = x - mean_x, y - mean_y
    square = x.T @ (weight[:, None] * x) + ridge * torch.eye(x.shape[1], dtype=x.dtype)
    right = x.T @ (weight * y)
    scores = torch.linalg.lstsq(square, right[:, None], driver="gelsd").solution[:, 0]
    rest, whole = weight @ (y - x @ scores) ** 2, weight @ y**2
    r2 = 1.0 if whole <= 1e-24 * (1 + mean_y**2) else float(1 - rest / whole)
    return scores, float(mean_y - mean_x @ scores), r2
