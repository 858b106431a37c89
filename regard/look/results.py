"""What looking inside a model gives back. No torch here: these are only annotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.result import Row

if TYPE_CHECKING:
    from torch import Tensor


# Attribution ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientScores(Row):
    """Gradient × input, or integrated gradients."""

    scores: Tensor
    """(M,): what each token gives to the goal, in float64; of any function, as its input."""
    value: float
    """The goal of the input."""
    baseline_value: float
    """The goal of the baseline."""
    completeness_error: float
    """|sum of scores − (value − baseline value)|, relative to |value − baseline value|."""
    steps: int
    """Points of the path; 1 for gradient × input."""


@dataclass(frozen=True)
class LimeScores(Row):
    """LIME's linear model: intercept + coefficients of the tokens that are there."""

    scores: Tensor
    """(M,): coefficient of each token, in float64."""
    r2: float
    """Weighted share of the variance that the fit explains, at most 1."""
    trusted: bool
    """Whether the fit describes the goal near the input."""
    intercept: float
    """What is left where no token is there."""
    value: float
    """The goal of the whole input."""


@dataclass(frozen=True)
class ShapScores(Row):
    """Shapley values; they sum to value − baseline value."""

    scores: Tensor
    """(M,) in float64."""
    value: float
    """The goal of the whole input."""
    baseline_value: float
    """The goal where no token is there."""
    interval: Tensor
    """(M,): half the width of the 95 % interval; 0 where the values are exact."""
    orders: int
    """Orders that were drawn; 0 where all subsets were run."""
