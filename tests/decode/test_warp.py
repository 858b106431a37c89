"""Warps against values by hand."""

from __future__ import annotations

import math

import pytest
import torch

from regard.decode import warp
from regard.errors import UsageError

P = torch.tensor([[0.15, 0.5, 0.05, 0.3]])  # out of order on purpose


def after(warped):
    return [round(p, 4) for p in warped.softmax(-1)[0].tolist()]


@pytest.mark.parametrize(
    ("warped", "wanted"),
    [
        (lambda x: warp.top_p(x, 0.79), [0, 0.625, 0, 0.375]),
        (lambda x: warp.top_p(x, 0.81), [0.1579, 0.5263, 0, 0.3158]),
        (lambda x: warp.top_p(x, 1e-9), [0, 1, 0, 0]),
        (lambda x: warp.top_p(x, 1.0), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: warp.top_k(x, 2), [0, 0.625, 0, 0.375]),
        (lambda x: warp.top_k(x, 1), [0, 1, 0, 0]),
        (lambda x: warp.top_k(x, 4), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: warp.top_k(x, 99), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: warp.min_p(x, 0.29), [0.1579, 0.5263, 0, 0.3158]),
        (lambda x: warp.min_p(x, 0.31), [0, 0.625, 0, 0.375]),
        (lambda x: warp.min_p(x, 0.0), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: warp.temperature(x, 1.0), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: warp.temperature(x, 0.5), [0.0616, 0.6849, 0.0068, 0.2466]),
        (lambda x: warp.temperature(x, 0.0), [0, 1, 0, 0]),
        (lambda x: warp.temperature(x, 1e-40), [0, 1, 0, 0]),
        (lambda x: warp.temperature(x, math.inf), [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_by_hand(warped, wanted):
    assert after(warped(P.log())) == pytest.approx(wanted, abs=1e-4)
    assert after(warped(P.log() + 50)) == pytest.approx(wanted, abs=1e-4)


def test_typical_keeps_the_tokens_of_typical_surprise():
    """H = 1.1421; surprises 1.897, .693, 2.996, 1.204: .3 is nearest, then .5."""
    assert after(warp.typical(P.log(), 0.2)) == [0, 0, 0, 1]
    assert after(warp.typical(P.log(), 0.6)) == [0, 0.625, 0, 0.375]
    assert after(warp.typical(P.log(), 1.0)) == pytest.approx(P[0].tolist(), abs=1e-4)


def test_all_of_the_mass_is_all_tokens_whatever_rounding_does():
    flat = torch.randn(1, 100_000, generator=torch.Generator().manual_seed(0)) * 0.01
    steep = torch.tensor([[0.0, -20.0, -21.0]])  # the first has probability 1 in float32
    for cut in (warp.top_p, warp.typical):
        assert torch.equal(cut(flat, 1.0), flat) and torch.equal(cut(steep, 1.0), steep)


def test_ties_are_cut_by_id():
    flat = torch.zeros(1, 4)
    assert after(warp.top_k(flat, 2)) == [0.5, 0.5, 0, 0]
    assert after(warp.top_p(flat, 0.6)) == pytest.approx([0.3333] * 3 + [0], abs=1e-4)
    assert after(warp.typical(flat, 0.4)) == [0.5, 0.5, 0, 0]


def test_entropy_grows_with_the_temperature():
    logits = torch.randn(5, 30, generator=torch.Generator().manual_seed(1)).double() * 3
    before = torch.zeros(5).double()
    for value in (0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 3.0, 10.0, math.inf):
        log = warp.temperature(logits, value).log_softmax(-1)
        entropy = -(log.exp() * log.masked_fill(log == -math.inf, 0)).sum(-1)
        assert bool((entropy >= before - 1e-9).all())
        before = entropy
    assert before.tolist() == pytest.approx([math.log(30)] * 5)


def test_what_is_cut_stays_cut():
    logits = torch.tensor([[0.0, -math.inf, 1.0]])
    for changed in (
        warp.temperature(logits, 0.7),
        warp.temperature(logits, math.inf),
        warp.top_p(logits, 0.99),
        warp.min_p(logits, 0.01),
        warp.typical(logits, 0.9),
        warp.repetition(logits, torch.tensor([[1]]), 2.0),
        warp.frequency(logits, torch.tensor([[1]]), 0.5),
    ):
        assert changed[0, 1] == -math.inf and bool(changed.softmax(-1).isfinite().all())


def test_penalties_on_what_occurred():
    logits, seen = torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[0, 1, 0]])
    assert warp.repetition(logits, seen, 2.0).tolist() == [[1, -4, 1]]
    assert warp.frequency(logits, seen, 0.5, 1.0).tolist() == [[0, -3.5, 1]]
    nothing = torch.zeros(1, 0, dtype=torch.long)
    assert torch.equal(warp.repetition(logits, nothing, 2.0), logits)
    assert torch.equal(warp.frequency(logits, nothing, 0.5, 1.0), logits)


@pytest.mark.parametrize(
    ("wrong", "limit"),
    [
        (lambda x: warp.temperature(x, -0.1), "0 or more"),
        (lambda x: warp.temperature(x, math.nan), "0 or more"),
        (lambda x: warp.top_k(x, 0), "1 or more"),
        (lambda x: warp.top_p(x, 0.0), "more than 0 and at most 1"),
        (lambda x: warp.top_p(x, 1.01), "more than 0 and at most 1"),
        (lambda x: warp.typical(x, -1.0), "more than 0 and at most 1"),
        (lambda x: warp.min_p(x, 1.5), "0 to 1"),
        (lambda x: warp.repetition(x, torch.zeros(1, 0).long(), 0.0), "more than 0"),
    ],
)
def test_out_of_range(wrong, limit):
    with pytest.raises(UsageError, match=f"expected: {limit}"):
        wrong(P.log())
