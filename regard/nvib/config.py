"""How a bottleneck is made, and how strongly a model is regularised; no torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from regard.verbs import Bound, Count, FromZero, Natural, Share, check_fields

DOING = "regularising a model"
Latent = Literal["nvib", "gaussian", "pooled", "none"]
Finite = Annotated[float, Bound(-1e300, 1e300, "a finite number")]


@dataclass(frozen=True)
class NVIBConfig:
    """A nonparametric variational information bottleneck (Henderson and Fehr 2023)."""

    delta: Share = 1.0
    """Pseudo-counts of the prior for each vector (Δ): 1 keeps about all, 0 as few as it can."""
    kappa: Count = 1
    """Draws of each component in training (κ)."""
    kl_gaussian: FromZero = 0.01
    """Weight of what the vectors say, in nats over the prior (λ_G)."""
    kl_dirichlet: FromZero = 1.0
    """Weight of how many vectors there are, in nats over the prior (λ_D)."""
    anneal: Natural = 0
    """Batches until both weights are whole, from 0 in a line."""
    threshold: FromZero = 0.1
    """A vector whose pseudo-count is not larger is dropped."""
    spread: FromZero = 2.0
    """Standard deviation of the pseudo-counts' logarithms over vectors, before training."""
    alpha_map: Literal["exp_quadratic", "exp", "relu", "one"] = "exp_quadratic"
    """Pseudo-count of a vector x: exp(w₂ x² + w₁ x + b), exp(w₁ x + b), max(0, w₁ x + b) or 1."""

    def __post_init__(self) -> None:
        check_fields(type(self).__name__, self)


@dataclass(frozen=True)
class Temperatures:
    """Where an attention lies between what it was (1, 0, large) and its prior."""

    mu: Finite = 1.0
    """Means of what is attended to: 1 is each vector itself, 0 the mean of the prior."""
    sigma: FromZero = 0.0
    """Standard deviations, in those of the prior: 0 is none."""
    alpha: Finite = 10.0
    """How much more than the prior a vector weighs: in the standard deviations of |x|²/(2√E)."""

    def __post_init__(self) -> None:
        check_fields(type(self).__name__, self)


Strength = float | Temperatures | Mapping[str, float | Temperatures]
"""From 0 (nothing is changed) to 1; or the temperatures themselves; or either for each kind of
attention: {"encoder": 0.2, "cross": …, "decoder": …}, those that are not named stay as they are."""
