"""Sampling: the right shares, and a row's draws are its own."""

from __future__ import annotations

import math

import pytest
import torch

from regard.decode.constraints import ban, begin_with
from regard.decode.sampling import Ends, generate, greedy
from regard.decode.sampling import SampleConfig, Sampler, penalties, sample_config
from regard.errors import UsageError
from tests.decode.toy import Toy, hashed, scored

P = torch.tensor([0.5, 0.3, 0.15, 0.05])


@pytest.mark.parametrize(
    ("config", "shares"),
    [
        (SampleConfig(seed=1), [0.5, 0.3, 0.15, 0.05]),
        (SampleConfig(top_k=4, top_p=1.0), [0.5, 0.3, 0.15, 0.05]),
        (SampleConfig(top_p=0.79), [0.625, 0.375, 0, 0]),
        (SampleConfig(top_p=0.81), [0.5263158, 0.3157895, 0.1578947, 0]),
        (SampleConfig(top_k=2), [0.625, 0.375, 0, 0]),
        (SampleConfig(min_p=0.2), [0.5263158, 0.3157895, 0.1578947, 0]),
        (SampleConfig(temperature=0.5), [0.6849315, 0.2465753, 0.0616438, 0.0068493]),
        (SampleConfig(temperature=math.inf, top_k=3), [1 / 3, 1 / 3, 1 / 3, 0]),
    ],
)
def test_chi_square_of_100_000_draws(config, shares):
    count = 100_000
    drawn = Sampler(config)(P.log().expand(count, 4), torch.arange(count), 5)
    seen = torch.bincount(drawn, minlength=4).double()
    wanted = torch.tensor(shares).double() * count
    assert seen[wanted == 0].sum() == 0
    kept = wanted > 0
    assert ((seen - wanted)[kept] ** 2 / wanted[kept]).sum() < 16.3  # 3 degrees, p = .001


def test_no_temperature_or_one_token_is_greedy():
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(0))
    rows = torch.arange(50)
    for config in (SampleConfig(temperature=0), SampleConfig(top_k=1), SampleConfig(top_p=1e-9)):
        assert torch.equal(Sampler(config)(logits, rows, 0), greedy(logits, rows, 0))


def test_temperature_comes_before_the_cuts():
    config = SampleConfig(temperature=0.5, top_p=0.69)  # .685 first, so a second token is needed
    kept = Sampler(config).warp(P.log()[None]).softmax(-1)[0]
    assert kept.tolist() == pytest.approx([0.7353, 0.2647, 0, 0], abs=1e-4)
    hot = SampleConfig(temperature=2.0, top_k=3, top_p=0.66)
    assert (Sampler(hot).warp(P.log()[None]) > -math.inf).tolist() == [[True, True, False, False]]


def test_a_row_s_sample_does_not_depend_on_its_neighbours():
    rule, config = hashed(9, 2, 0.7), SampleConfig(seed=11)
    start, ends = torch.arange(8)[:, None], Ends({0})
    together = generate(Toy(rule), start, 12, Sampler(config), ends)
    for row in range(8):
        own = Sampler(SampleConfig(seed=11, first=row))
        alone = generate(Toy(rule), start[row : row + 1], 12, own, ends)[0]
        assert alone.tokens == together[row].tokens
    others = torch.cat((start[:3], torch.tensor([[8], [8], [8]]), start[6:]))
    changed = generate(Toy(rule), others, 12, Sampler(config), ends)
    assert [changed[n].tokens for n in (0, 1, 2, 6, 7)] == [
        together[n].tokens for n in (0, 1, 2, 6, 7)
    ]
    assert {len(h.tokens) for h in together} != {12}  # some rows left early
    again = generate(Toy(rule), start, 12, Sampler(config), ends)
    assert again == together
    other = generate(Toy(rule), start, 12, Sampler(SampleConfig(seed=12)), ends)
    assert [h.tokens for h in other] != [h.tokens for h in together]


def test_equal_rows_draw_differently():
    found = generate(Toy(hashed(9, 2, 0.5)), torch.zeros(20, 1).long(), 6, Sampler(SampleConfig()))
    assert len({tuple(h.tokens) for h in found}) > 15


def test_banned_tokens_are_never_drawn_and_forced_ones_always():
    rule = hashed(5, 1, 0.5)
    start, processes = torch.zeros(200, 1).long(), [begin_with([4]), ban({1, 3})]
    found = generate(Toy(rule), start, 4, Sampler(SampleConfig(temperature=5.0)), None, processes)
    assert {token for h in found for token in h.tokens} == {0, 2, 4}
    assert {h.tokens[0] for h in found} == {4}
    for h in found[:5]:
        assert h.logprob == pytest.approx(scored(rule, h.tokens), abs=1e-5)


def test_penalties_make_repeats_rarer():
    rule = hashed(4, 1, 0.2)
    start = torch.zeros(300, 1).long()

    def repeats(**changes):
        config = SampleConfig(**changes)
        found = generate(Toy(rule), start, 3, Sampler(config), None, penalties(config))
        return sum(len(h.tokens) - len(set(h.tokens)) for h in found)

    plain = repeats()
    assert repeats(frequency=3.0) < plain / 2 and repeats(presence=3.0) < plain / 2
    assert repeats(presence=100.0) == 0
    assert penalties(SampleConfig()) == []
    assert len(penalties(SampleConfig(repetition=1.3, frequency=0.1))) == 2


@pytest.mark.parametrize(
    ("wrong", "limit"),
    [
        (dict(temperature=-1.0), "0 or more"),
        (dict(top_k=0), "1 or more"),
        (dict(top_k=-3, temperature=0), "1 or more"),
        (dict(top_p=0.0), "more than 0 and at most 1"),
        (dict(top_p=1.5), "more than 0 and at most 1"),
        (dict(min_p=-0.5), "0 to 1"),
        (dict(repetition=0.0), "more than 0"),
        (dict(topp=0.5), "a field of SampleConfig\n  to fix: did you mean top_p"),
    ],
)
def test_bad_values_fail_before_any_model_runs(wrong, limit):
    with pytest.raises(UsageError, match=f"expected: {limit}"):
        sample_config(wrong)
