"""The layer and its divergences: closed forms, torch's own divergences, moments of draws."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Dirichlet, Normal, kl_divergence

from regard.errors import UsageError
from regard.nvib.bottleneck import Bottleneck, Mixture, draw, kl_dirichlet, kl_gaussian
from regard.nvib.config import NVIBConfig


def drawn(rows: int = 3, count: int = 5, dim: int = 4) -> Mixture:
    torch.manual_seed(4)
    real = torch.arange(count) < torch.tensor([5, 3, 1])[:rows, None]
    pieces = (torch.randn(rows, count, dim, dtype=torch.float64) for _ in range(2))
    return Mixture(*pieces, torch.randn(rows, count, dtype=torch.float64), real)


def of_alpha(*alpha: float) -> Mixture:
    held = torch.tensor([alpha], dtype=torch.float64)
    return Mixture(held[..., None], held[..., None], held.log(), torch.ones(1, len(alpha)) > 0)


def test_the_divergence_of_weights_is_that_of_two_dirichlets():
    own = drawn()
    for kappa in (1, 3):
        config = NVIBConfig(delta=0.3, kappa=kappa)
        for row in range(3):
            n = int(own.real[row].sum())
            q = own.log_alpha[row, :n].exp().sum() / (n * kappa)
            p = (1 + 0.3 * (n - 1)) / (n * kappa)
            both = (Dirichlet(torch.ones(n * kappa).double() * value) for value in (q, p))
            expected = kl_divergence(*both) / n if n * kappa > 1 else torch.zeros(())
            assert abs(kl_dirichlet(own, config)[row] - expected) < 1e-10


def test_known_values_of_the_divergence_of_weights():
    """12 against 5 in eight pieces is 1.33394594 (scipy); equal totals are nothing."""
    own = of_alpha(1.0, *[11 / 7] * 7)  # 12 in all; 1 + 4/7 · 7 = 5
    value = kl_dirichlet(own, NVIBConfig(delta=4 / 7)) * 8
    assert value.item() == pytest.approx(1.33394594, abs=1e-8)
    assert kl_dirichlet(of_alpha(1.0, 2.0, 0.0001, 0.9999), NVIBConfig(delta=1.0)).item() < 1e-14
    assert kl_dirichlet(of_alpha(1.0, 0.7, 0.3), NVIBConfig(delta=0.5)).abs().item() < 1e-14
    assert kl_dirichlet(of_alpha(1.0, 0.9, 0.3), NVIBConfig(delta=0.5)).item() > 1e-4


def test_the_divergence_of_vectors_is_that_of_gaussians():
    own = drawn()
    each = kl_divergence(Normal(own.mean, (own.log_variance / 2).exp()), Normal(0.0, 1.0)).mean(-1)
    alpha = own.log_alpha.exp() * own.real
    expected = (alpha / alpha.sum(-1, keepdim=True) * each).sum(-1)
    assert (kl_gaussian(own) - expected).abs().max() < 1e-12
    assert (kl_gaussian(own, 3) - 3 * expected).abs().max() < 1e-12
    other = own._replace(mean=own.mean.masked_fill(~own.real[..., None], 99.0))
    assert torch.equal(kl_gaussian(own), kl_gaussian(other))
    zero = torch.zeros_like(own.mean)
    assert kl_gaussian(own._replace(mean=zero, log_variance=zero)).abs().max() == 0


def test_weights_have_the_moments_of_a_dirichlet():
    """Of κ draws: mean α / κ α₀ each; their sum varies as one component of Dir(α)."""
    alpha, kappa, count = torch.tensor([0.5, 2.0, 5.0]), 3, 20_000
    torch.manual_seed(0)
    zero = torch.zeros(count, 3, 1, dtype=torch.float64)
    rows = Mixture(zero, zero, alpha.double().log().expand(count, 3), torch.ones(count, 3) > 0)
    weights = draw(rows, kappa)[1].exp().view(count, 3, kappa)
    total = alpha.sum()
    assert (weights.sum((1, 2)) - 1).abs().max() < 1e-12
    for n in range(3):
        one = weights[:, n, 0]
        mean = alpha[n] / (kappa * total)
        assert abs(one.mean() - mean) < 3 * one.std() / math.sqrt(count)
        whole = weights[:, n].sum(-1)
        expected = alpha[n] * (total - alpha[n]) / (total**2 * (total + 1))
        spread = ((whole - whole.mean()) ** 2).std() / math.sqrt(count)
        assert abs(whole.var() - expected) < 3 * spread


def test_draws_of_vectors_have_their_means_and_variances():
    torch.manual_seed(1)
    own = Mixture(
        torch.full((20_000, 1, 1), 2.0),
        torch.full((20_000, 1, 1), math.log(0.25)),
        torch.zeros(20_000, 1),
        torch.ones(20_000, 1) > 0,
    )
    z = draw(own)[0]
    assert abs(z.mean() - 2) < 0.015 and abs(z.std() - 0.5) < 0.01


@pytest.mark.parametrize("alpha", [1e-12, 0.05, 0.5, 5.0, 50.0])
def test_gradients_go_through_draws(alpha):
    """d E[w₀] / d α₀ of Dir(α, 1), closed form 1 / (α + 1)², by re-parameterised draws."""
    torch.manual_seed(2)
    count = 40_000
    log_alpha = torch.tensor(math.log(alpha), dtype=torch.float64, requires_grad=True)
    pairs = torch.stack([log_alpha, torch.zeros((), dtype=torch.float64)]).expand(count, 2)
    zero = torch.zeros(count, 2, 1, dtype=torch.float64)
    first = draw(Mixture(zero, zero, pairs, torch.ones(count, 2) > 0))[1][:, 0].exp()
    (slope,) = torch.autograd.grad(first.mean(), log_alpha)
    expected = alpha / (alpha + 1) ** 2
    assert slope.isfinite() and abs(slope.item() - expected) < 0.02 * expected + 2e-3


def test_the_smallest_pseudo_counts_are_finite_in_float32():
    own = Mixture(
        torch.zeros(2, 3, 4),
        torch.zeros(2, 3, 4),
        torch.tensor([[0.0, -1000.0, 1000.0]] * 2, requires_grad=True),
        torch.ones(2, 3) > 0,
    )
    z, weights = draw(own)
    weights.exp().sum().backward()
    assert weights[:, 0].isfinite().all() and z.isfinite().all()
    assert own.log_alpha.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["exp_quadratic", "exp", "relu", "one"])
def test_pseudo_counts_of_a_vector(kind):
    held = Bottleneck(4, NVIBConfig(alpha_map=kind)).double()
    torch.manual_seed(0)
    torch.nn.init.normal_(held.log_alpha.weight)
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    squares, line = held.log_alpha.weight[0].split(4)
    line = x @ line + held.log_alpha.bias
    expected = {
        "exp_quadratic": (x.square() @ squares + line).exp(),
        "exp": line.exp(),
        "relu": line.relu(),
        "one": torch.ones(2, 3, dtype=torch.float64),
    }[kind]
    alpha = held(x).log_alpha.exp()
    assert (alpha[:, 1:] - expected).abs().max() < 1e-12 and (alpha[:, 0] == 1).all()


def test_pseudo_counts_of_the_layer_below_are_factors():
    below, above = (Bottleneck(4, NVIBConfig()).double() for _ in range(2))
    torch.nn.init.normal_(below.log_alpha.weight)
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    alone = above(x).log_alpha
    above.below = (below,)
    under = below(x).log_alpha
    assert torch.allclose(above(x).log_alpha, alone + under) and not torch.equal(under, alone)


def test_padding_may_hold_anything():
    held = Bottleneck(4, NVIBConfig())
    x = torch.randn(1, 4, 4)
    short = held(x[:, :2])
    x[:, 2:] = torch.nan
    long = held(x, torch.arange(4)[None] < 2)
    assert (held.divergence(long) - held.divergence(short)).abs().max() < 1e-6
    assert held.read(long._replace(), 2.0).vectors.isfinite().all()


@pytest.mark.parametrize(
    "wrong", [{"delta": 1.5}, {"kappa": 0}, {"kl_gaussian": -1.0}, {"kl_dirichlet": math.nan}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        NVIBConfig(**wrong)
    with pytest.raises(UsageError, match="alpha_map"):
        NVIBConfig(alpha_map="log")


# What is dropped ----------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_what_is_dropped_is_not_read(training):
    """In training as later: else a decoder learns to read what it will not have."""
    held = Bottleneck(4, NVIBConfig(threshold=0.3)).train(training)
    mean = torch.randn(1, 4, 4)
    alpha = torch.tensor([[1.0, 0.31, 0.3, 2.0]])
    mixture = Mixture(mean, torch.zeros(1, 4, 4), alpha.log(), torch.ones(1, 4) > 0)
    reading = held.read(mixture, 2.0)
    assert reading.bias.isfinite().tolist() == [[True, True, False, True]]


@pytest.mark.parametrize("alpha_map", ["exp", "exp_quadratic"])
def test_pseudo_counts_differ_at_once(alpha_map):
    x = torch.randn(50, 20, 64)
    log_alpha = Bottleneck(64, NVIBConfig(alpha_map=alpha_map))(x).log_alpha[:, 1:]
    assert abs(log_alpha.mean() - math.log(5)) < 0.3 and abs(log_alpha.std() - 2) < 0.4
    alike = Bottleneck(64, NVIBConfig(spread=0))(x).log_alpha[:, 1:]
    assert (alike - math.log(5)).abs().max() < 1e-6
