"""LIME recovers what is a sum of tokens, and says when nothing is."""

from __future__ import annotations

import numpy
import pytest
import torch

from regard.errors import RegardWarning, UsageError
from regard.look.lime import draw_subsets, fit_lime, kernel_weights, weighted_ridge
from regard.look.masked_input import MaskedInput
from regard.look.patching import Goal
from tests.properties.small_models import small_kit

WEIGHT = torch.tensor([2.0, -1.0, 0.0, 0.5, 3.0]).double()


def additive(kept):
    return kept.double() @ WEIGHT - 4


def test_a_sum_of_tokens_is_recovered():
    found = fit_lime(additive, 5, samples=200, ridge=1e-10)
    torch.testing.assert_close(found.scores, WEIGHT, atol=1e-8, rtol=1e-8)
    assert found.intercept == pytest.approx(-4) and found.r2 == pytest.approx(1)
    assert abs(float(found.scores[2])) < 1e-8  # never used
    assert found.value == pytest.approx(float(WEIGHT.sum()) - 4) and found.trusted
    torch.testing.assert_close(fit_lime(additive, 5, 200, ridge=0).scores, WEIGHT)
    with pytest.warns(RegardWarning, match="do not trust"):
        shrunk = fit_lime(additive, 5, samples=200, ridge=100)
    assert float(shrunk.scores.norm()) < float(WEIGHT.norm()) and shrunk.r2 < 1


def test_the_ridge_minimises_what_it_should():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(30, n, generator=generator).double() for n in (4, 1))
    y = y[:, 0]
    weight = torch.rand(30, generator=generator).double()
    scores, intercept, r2 = weighted_ridge(x, y, weight, 0.7)
    at = torch.cat((scores, torch.tensor([intercept], dtype=torch.float64))).requires_grad_()
    loss = weight @ (y - x @ at[:4] - at[4]) ** 2 + 0.7 * at[:4].square().sum()
    (slope,) = torch.autograd.grad(loss, at)
    assert float(slope.abs().max()) < 1e-9
    rest = weight @ (y - x @ scores - intercept) ** 2
    mean = (weight @ y) / weight.sum()
    assert r2 == pytest.approx(float(1 - rest / (weight @ (y - mean) ** 2)))


def test_lime_of_its_authors_agrees():
    """The same draws, distances and kernel through their ridge (scikit-learn's)."""
    base = pytest.importorskip("lime.lime_base")
    kit, goal = small_kit("gpt2"), Goal(torch.tensor([3]), torch.tensor([8]))
    value = MaskedInput(kit.hooked, kit.batch([[4, 9, 2, 7, 11, 5]]), goal, 13)
    found = fit_lime(value, 6, 300, seed=2)
    kept = draw_subsets(6, 300, seed=2)
    distance = 100 * (1 - torch.nn.functional.cosine_similarity(kept.double(), kept[:1].double()))
    fit = base.LimeBase(lambda d: numpy.exp(-((d / 25) ** 2)), random_state=0)
    rows, scores = kept.double().numpy(), value(kept).numpy()[:, None]
    intercept, theirs, r2, _ = fit.explain_instance_with_data(
        rows, scores, distance.numpy(), 0, 6, feature_selection="none"
    )
    wanted = torch.tensor([dict(theirs)[n] for n in range(6)]).double()
    torch.testing.assert_close(found.scores, wanted, atol=1e-9, rtol=1e-9)
    assert (found.intercept, found.r2) == pytest.approx((intercept, r2), abs=1e-9)


def test_the_kernel():
    kept = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
    ones = torch.ones(4).double()
    z = kept[1].double()
    distance = 1 - float(z @ ones / (z.norm() * ones.norm()))
    wanted = [1.0, torch.tensor(-((100 * distance / 25) ** 2)).exp().item()]
    assert kernel_weights(kept).tolist()[:2] == pytest.approx(wanted, rel=1e-6)
    assert float(kernel_weights(kept)[2]) == pytest.approx(
        torch.tensor(-16.0).exp().item(), rel=1e-6
    )


def test_the_draws():
    drawn = draw_subsets(6, 2000, seed=1)
    assert drawn[0].all() and drawn.shape == (2000, 6)
    share = torch.bincount(drawn[1:].sum(1), minlength=7) / 1999
    assert share[:6].tolist() == pytest.approx([1 / 6] * 6, abs=0.04) and share[6] == 0
    assert drawn[1:].double().mean(0).tolist() == pytest.approx([2.5 / 6] * 6, abs=0.04)
    assert torch.equal(drawn, draw_subsets(6, 2000, 1))
    assert not torch.equal(drawn, draw_subsets(6, 2000, 2))


def test_a_seed_fixes_all():
    kit, goal = small_kit("gpt2"), Goal(torch.tensor([3]))
    value = MaskedInput(kit.hooked, kit.batch([[4, 9, 2, 7]]), goal, 13)
    one, again, other = (fit_lime(value, 4, 100, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.scores, again.scores) and not torch.equal(one.scores, other.scores)


def test_a_bad_fit_is_said():
    with pytest.warns(RegardWarning, match="do not trust"):
        found = fit_lime(lambda kept: (kept.sum(1) % 2).double(), 6, 500)
    assert not found.trusted and found.r2 < 0.5


def test_nothing_to_explain_is_explained():
    found = fit_lime(lambda kept: torch.full((len(kept),), 3.0), 4)
    assert found.r2 == 1 and found.intercept == pytest.approx(3)
    assert float(found.scores.abs().max()) < 1e-12


def test_what_is_refused():
    for wrong in (dict(samples=1), dict(count=0)):
        with pytest.raises(UsageError):
            fit_lime(additive, **{"count": 5, **wrong})
