"""How a bottleneck is made and what training pays for what passes through it; no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.verbs import Count, FromZero, Natural, Share, check_fields


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
    """A vector whose pseudo-count is not larger is dropped outside training."""
    alpha_map: Literal["exp_quadratic", "exp", "relu", "one"] = "exp_quadratic"
    """Pseudo-count of a vector x: exp(w₂ x² + w₁ x + b), exp(w₁ x + b), max(0, w₁ x + b) or 1."""

    def __post_init__(self) -> None:
        check_fields(type(self).__name__, self)
