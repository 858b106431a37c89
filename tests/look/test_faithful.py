"""Deletion and insertion curves, random orders, and rank correlation."""

from __future__ import annotations

import math

import pytest
import torch

from regard.data.statistics import ranks
from regard.errors import UsageError
from regard.look.faithful import curves, random_areas, spearman

WEIGHT = torch.tensor([1.0, 5.0, 2.0]).double()


def additive(kept):
    return kept.double() @ WEIGHT + 10


def test_curves_in_the_order_of_scores():
    found = curves(additive, torch.tensor([0.1, 0.9, 0.5]))
    assert found.deletion.tolist() == [18, 13, 11, 10]
    assert found.insertion.tolist() == [10, 15, 17, 18]
    assert found.deletion_area == pytest.approx((1 / 2 + 3 / 8 + 1 / 8) / 3)
    assert found.insertion_area == pytest.approx((5 / 8 + 7 / 8 + 1 / 2) / 3)
    worst = curves(additive, -WEIGHT)
    assert worst.deletion_area > found.deletion_area
    assert worst.insertion_area < found.insertion_area


def test_a_goal_that_tokens_lower():
    """The direction stays: to remove what supports it most still makes the goal fall most."""
    found = curves(lambda kept: -additive(kept), -WEIGHT)
    assert found.deletion_area < curves(lambda kept: -additive(kept), WEIGHT).deletion_area


def test_random_orders_of_a_sum_reach_a_half():
    deletion, insertion = random_areas(additive, 3, orders=400)
    assert deletion == pytest.approx(0.5, abs=0.02) and insertion == pytest.approx(0.5, abs=0.02)
    assert random_areas(additive, 3, seed=2) == random_areas(additive, 3, seed=2)
    assert random_areas(additive, 3, seed=2) != random_areas(additive, 3, seed=3)


def test_no_difference_no_area():
    found = curves(lambda kept: torch.ones(len(kept)), WEIGHT)
    assert math.isnan(found.deletion_area) and math.isnan(found.insertion_area)


def test_rank_correlation():
    stats = pytest.importorskip("scipy.stats")
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        a = torch.randint(0, 5, (12,), generator=generator).double()
        b = torch.randn(12, generator=generator).double()
        assert ranks(a.double().numpy()).tolist() == stats.rankdata(a.numpy()).tolist()
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a.numpy(), b.numpy()).statistic)
    assert spearman(WEIGHT, WEIGHT.exp()) == pytest.approx(1)
    assert math.isnan(spearman(WEIGHT, torch.ones(3)))
    with pytest.raises(UsageError):
        spearman(WEIGHT, torch.ones(4))
