"""Shapley values: their definition, their axioms, and intervals of the drawn ones."""

from __future__ import annotations

import itertools
import math

import numpy
import pytest
import torch

from regard.errors import UsageError
from regard.look.masked_input import MaskedInput
from regard.look.patching import Goal
from regard.look.shap import exact_shapley, sampled_shapley, student
from regard.model.batch import Batch
from tests.properties.small_models import small_kit


def random_game(count, seed=0):
    """A value for every subset, with nothing simple about it."""
    values = torch.randn(1 << count, generator=torch.Generator().manual_seed(seed)).double()
    places = 1 << torch.arange(count)
    return lambda kept: values[(kept.long() * places).sum(1)]


def by_definition(value, count):
    """The mean of what each adds over all orders."""
    total = torch.zeros(count, dtype=torch.float64)
    for order in itertools.permutations(range(count)):
        kept = torch.zeros(1, count, dtype=torch.bool)
        before = float(value(kept)[0])
        for i in order:
            kept[0, i] = True
            after = float(value(kept)[0])
            total[i] += after - before
            before = after
    return total / math.factorial(count)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_definition(count):
    value = random_game(count)
    found = exact_shapley(value, count)
    torch.testing.assert_close(found.scores, by_definition(value, count))
    assert float(found.scores.sum()) == pytest.approx(found.value - found.baseline_value, rel=1e-12)
    assert not found.interval.any() and found.orders == 0


def test_the_axioms():
    def value(kept):  # 0 and 1 alike, 3 without any part, 2 alone
        kept = kept.double()
        return 4 * kept[:, 0] * kept[:, 1] + 3 * kept[:, 2] + 7

    found = exact_shapley(value, 4).scores
    torch.testing.assert_close(found, torch.tensor([2.0, 2.0, 3.0, 0.0]).double())
    one, other = random_game(4, 1), random_game(4, 2)
    both = exact_shapley(lambda kept: one(kept) + other(kept), 4).scores
    torch.testing.assert_close(both, exact_shapley(one, 4).scores + exact_shapley(other, 4).scores)


def test_exclusive_or_is_split_equally():
    found = exact_shapley(lambda kept: (kept[:, 0] ^ kept[:, 1]).double() * 6 + kept[:, 0], 2)
    torch.testing.assert_close(found.scores, torch.tensor([1.0, 0.0]).double())
    found = exact_shapley(lambda kept: (kept[:, 0] ^ kept[:, 1] ^ kept[:, 2]).double(), 3)
    torch.testing.assert_close(found.scores, torch.full((3,), 1 / 3).double())


def test_a_linear_function_has_its_coefficients():
    weight = torch.tensor([1.0, -2.0, 0.5, 4.0]).double()
    wanted = exact_shapley(lambda kept: kept.double() @ weight + 1, 4)
    torch.testing.assert_close(wanted.scores, weight)
    drawn = sampled_shapley(lambda kept: kept.double() @ weight + 1, 4, orders=4)
    torch.testing.assert_close(drawn.scores, weight)
    assert float(drawn.interval.max()) < 1e-12


def test_drawn_orders_surround_the_exact_values():
    value, count = random_game(8, 3), 8
    exact, inside = exact_shapley(value, count), 0
    for seed in range(40):
        found = sampled_shapley(value, count, orders=40, seed=seed)
        assert found.orders == 40 and float(found.interval.min()) > 0
        assert float(found.scores.sum()) == pytest.approx(found.value - found.baseline_value)
        inside += int(((found.scores - exact.scores).abs() <= found.interval).sum())
    assert 0.92 <= inside / (40 * count) <= 0.98  # 95 % of 320
    again = sampled_shapley(value, count, orders=40, seed=39)
    assert torch.equal(again.scores, found.scores)
    assert not torch.equal(sampled_shapley(value, count, orders=40).scores, found.scores)


def test_reversed_orders_cancel_pairs():
    """Each pair of an order and its reverse is exact where at most two tokens work together."""
    table = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double()

    def value(kept):
        return ((kept.double() @ table) * kept.double()).sum(1)

    exact = exact_shapley(value, 6)
    found = sampled_shapley(value, 6, orders=4)
    torch.testing.assert_close(found.scores, exact.scores)
    assert float(found.interval.max()) < 1e-9


@pytest.mark.parametrize(
    ("freedom", "wanted"), [(1, 12.706), (2, 4.303), (4, 2.776), (10, 2.228), (49, 2.0096)]
)
def test_students_t(freedom, wanted):
    assert student(freedom) == pytest.approx(wanted, rel=2e-3)


def test_shap_of_the_library_agrees():
    shap = pytest.importorskip("shap")
    value = random_game(6, 5)
    explainer = shap.explainers.Exact(
        lambda x: value(torch.tensor(x).bool()).numpy(), torch.zeros(1, 6).numpy()
    )
    wanted = torch.tensor(explainer(torch.ones(1, 6).numpy()).values[0]).double()
    torch.testing.assert_close(exact_shapley(value, 6).scores, wanted, atol=1e-6, rtol=1e-6)


def test_shap_of_the_library_agrees_on_a_model():
    shap = pytest.importorskip("shap")
    kit, goal = small_kit("gpt2"), Goal(torch.tensor([3]), torch.tensor([8]))
    kit.model.double()
    ids, absent = torch.tensor([[4, 9, 2, 7, 11, 5, 30, 1]]), 13

    def theirs(rows):  # the model itself, on ids: nothing of `MaskedInput`
        kept = torch.tensor(rows).bool()
        with torch.no_grad():
            last = kit.model(Batch(torch.where(kept, ids, absent)))[:, -1]
        return (last[:, 3] - last[:, 8]).numpy()

    found = exact_shapley(MaskedInput(kit.hooked, kit.batch(ids), goal, absent), 8)
    ones, zeros = numpy.ones((1, 8)), numpy.zeros((1, 8))
    wanted = torch.tensor(shap.explainers.Exact(theirs, zeros)(ones).values[0]).double()
    torch.testing.assert_close(found.scores, wanted, atol=1e-9, rtol=1e-9)
    kernel = shap.KernelExplainer(theirs, zeros).shap_values(ones, nsamples=1 << 8, silent=True)
    torch.testing.assert_close(found.scores, torch.tensor(kernel[0]), atol=1e-6, rtol=1e-6)
    assert abs(float(found.scores.sum()) - (found.value - found.baseline_value)) < 1e-12


def test_what_is_refused():
    with pytest.raises(UsageError):
        sampled_shapley(random_game(2), 2, orders=3)
