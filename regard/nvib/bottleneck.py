"""Bottleneck: vectors in, a posterior over mixtures of Gaussians out (NVIB, Henderson & Fehr 2023).

Each vector becomes one component: a mean, a variance, and a pseudo-count α that says how much
weight it has. Before them stands the component of the prior: Normal(0, 1) with α = 1. What is told
about the text is counted in nats against that prior, and training pays for it: vectors that tell
nothing are dropped.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.tap import Taps
from regard.nvib.config import NVIBConfig


class Mixture(NamedTuple):
    """A posterior over mixtures: the component of the prior first, then that of each vector."""

    mean: Tensor
    """(B, N, D), as is the next."""
    log_variance: Tensor
    log_alpha: Tensor
    """(B, N): pseudo-counts; −inf has no weight at all."""
    real: Tensor
    """(B, N): False where there was padding."""

    def log_weights(self) -> Tensor:
        """Expected weight of each component (B, N), as a logarithm; padding has none."""
        return self.log_alpha.masked_fill(~self.real, -torch.inf).log_softmax(-1)

    def kept(self, threshold: float) -> Tensor:
        """(B, N): components whose pseudo-count is larger, and that of the prior."""
        kept = (self.log_alpha.exp() > threshold) & self.real
        kept[:, 0] = True
        return kept


class Reading(NamedTuple):
    """A mixture as attention reads it (see `denoising.py`)."""

    vectors: Tensor
    """(B, N, D): what keys and values are made of."""
    bias: Tensor
    """(B, N): added to the scores; −inf is not read."""
    share: Tensor | None
    """(B, N, D): how much of the answer is the query's own; None is nothing."""


class Bottleneck(nn.Module):
    """Vectors (B, S, D) → a `Mixture` of S + 1 components, to draw from or to take the mean of."""

    def __init__(self, dim: int, config: NVIBConfig) -> None:
        super().__init__()
        self.config = config
        self.mean, self.log_variance = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.log_alpha = nn.Linear(2 * dim, 1)  # of x² and x
        self.batches = nn.Parameter(torch.zeros(1), requires_grad=False)
        """How many it was trained on: a parameter, so that checkpoints hold it."""
        self.at = Taps("log_alpha", "kl")
        self.below: tuple[Bottleneck, ...] = ()
        """The one before: its pseudo-counts are factors of those here (a tuple is no submodule)."""
        self.last: Mixture | None = None
        """That of the newest vectors, for the one above and for the loss."""
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Means that are the vectors, small variances, pseudo-counts around 5.

        Pseudo-counts differ from vector to vector at once (`spread`): what all have in common is
        paid for alike, so that training would lower all of them together, and keep all or none.
        """
        for linear in (self.mean, self.log_variance, self.log_alpha):
            linear.weight.zero_()
            linear.bias.zero_()
        self.mean.weight.fill_diagonal_(1.0)
        self.log_variance.bias.fill_(-4.0)
        self.log_alpha.bias.fill_(5.0 if self.config.alpha_map == "relu" else math.log(5.0))
        dim, same = self.mean.in_features, torch.Generator().manual_seed(0)
        drawn = torch.randn(dim, generator=same) * self.config.spread / math.sqrt(dim)
        self.log_alpha.weight[0, dim:] = drawn.to(self.log_alpha.weight)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Mixture:
        """x (B, S, D), real (B, S): False at padding, which may hold anything."""
        rows, count, dim = x.shape
        real = x.new_ones(rows, count, dtype=torch.bool) if real is None else real
        with torch.autocast(x.device.type, enabled=False):  # exp(x²) takes all the digits
            x = x.to(self.mean.weight.dtype).masked_fill(~real[..., None], 0.0)
            mean, log_variance, log_alpha = self.mean(x), self.log_variance(x), self.find_alpha(x)
        log_alpha = self.at.log_alpha(log_alpha)
        prior = x.new_zeros(rows, 1, dim)
        self.last = Mixture(
            torch.cat([prior, mean], 1),
            torch.cat([prior, log_variance], 1),
            torch.cat([prior[..., 0], log_alpha], 1),
            F.pad(real, (1, 0), value=True),
        )
        if self.at.kl.fn is not None:
            self.at.kl(self.divergence(self.last))
        return self.last

    def find_alpha(self, x: Tensor) -> Tensor:
        """Logarithms of pseudo-counts (B, S)."""
        kind = self.config.alpha_map
        if kind == "one":
            return torch.zeros_like(x[..., 0])
        squares = x.square() if kind == "exp_quadratic" else torch.zeros_like(x)
        alpha: Tensor = self.log_alpha(torch.cat([squares, x], -1))[..., 0]
        alpha = alpha.relu().clamp(min=1e-15).log() if kind == "relu" else alpha
        for before in self.below:
            assert before.last is not None
            alpha = alpha + before.last.log_alpha[:, 1:]
        return alpha

    def read(self, mixture: Mixture, noise: float) -> Reading:
        """The mixture without the vectors that are dropped, as seen through queries with noise of
        this variance: a draw of it in training, else its mean.

        What is dropped later is dropped in training too: else the decoder learns to read it.
        """
        mixture = mixture._replace(real=mixture.kept(self.config.threshold))
        if self.training:
            return read_draw(*draw(mixture, self.config.kappa), noise)
        return read_mean(mixture, noise)

    def divergence(self, mixture: Mixture) -> Tensor:
        """(B, 2): of the vectors and of their number from the prior, in nats, float64."""
        parts = kl_gaussian(mixture, self.config.kappa), kl_dirichlet(mixture, self.config)
        return torch.stack(parts, -1)


def read_draw(z: Tensor, log_weights: Tensor, noise: float) -> Reading:
    """Points z (B, N, D) with weights, queries being q = z + Normal(0, noise)."""
    return Reading(z, log_weights - z.square().sum(-1) / (2 * noise), None)


def read_mean(mixture: Mixture, noise: float) -> Reading:
    """Gaussians in place of points: means shrink, and queries are partly believed as they are."""
    variance = mixture.log_variance.exp()
    total = variance + noise
    evidence = (mixture.mean.square() / total + (total / noise).log()).sum(-1) / 2
    return Reading(mixture.mean * noise / total, mixture.log_weights() - evidence, variance / total)


def draw(mixture: Mixture, kappa: int = 1) -> tuple[Tensor, Tensor]:
    """κ vectors of each component (B, N κ, D) and the logarithms of their weights (B, N κ).

    Weights are Dirichlet: Gamma variates over their sum. The logarithm of one of α is that of one
    of α + 1 plus log(u) / α (Marsaglia & Tsang 2000), exact and finite for the smallest α.
    """
    mean, log_variance, log_alpha, real = (t.repeat_interleave(kappa, 1) for t in mixture)
    z = mean + (log_variance / 2).exp() * torch.randn_like(mean)
    alpha = log_alpha.clamp(-30.0, 20.0).exp() / kappa
    uniform = torch.rand_like(alpha).clamp(min=torch.finfo(alpha.dtype).tiny)
    gamma = torch.distributions.Gamma(alpha + 1, torch.ones_like(alpha)).rsample()
    weights = gamma.log() + uniform.log() / alpha
    return z, weights.masked_fill(~real, -torch.inf).log_softmax(-1)


def kl_gaussian(mixture: Mixture, kappa: int = 1) -> Tensor:
    """(B,): κ times the divergence of each component, a mean over D, by its expected weight."""
    mean, log_variance = mixture.mean.double(), mixture.log_variance.double()
    each = (log_variance.exp() + mean.square() - 1 - log_variance).mean(-1)
    return kappa / 2 * (mixture.log_weights().double().exp() * each).sum(-1)


def kl_dirichlet(mixture: Mixture, config: NVIBConfig) -> Tensor:
    """(B,): of two symmetric Dirichlets with these totals, over the number of components."""
    count = mixture.real.sum(-1).double()  # n, of the prior too
    draws = count * config.kappa
    own = mixture.log_alpha.double().masked_fill(~mixture.real, -torch.inf).exp().sum(-1)
    other = 1 + config.delta * (count - 1)
    gap = torch.digamma(own / draws) - torch.digamma(own)
    pieces = torch.lgamma(other / draws) - torch.lgamma(own / draws)
    return (torch.lgamma(own) - torch.lgamma(other) + (own - other) * gap + draws * pieces) / count
