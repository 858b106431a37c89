"""Greedy decoding, drawing, what reshapes scores, and the random numbers."""

from __future__ import annotations

import math

import pytest
import torch

from regard.decode.constraints import ban, begin_with
from regard.decode.sampling import (
    Ends,
    SampleConfig,
    Sampling,
    draw,
    mix,
    penalise,
    reshape,
    sample_config,
    uniform,
)
from regard.errors import UsageError
from tests.decode.toy import Toy, generate, hashed, scored, table_rule

# generate ----------------------------------------------------------------------------------------


START = torch.tensor([[0]])


def counting(vocab):
    """The next token is the last one plus one."""

    def rule(tokens, first):
        last = tokens[-1] if tokens else first
        return torch.nn.functional.one_hot(torch.tensor((last + 1) % vocab), vocab).float() * 9

    return rule


def test_greedy_is_not_the_best():
    """p(a) = .6, p(b) = .4; after a the best is .4, after b it is 1: .24 where .4 was possible."""
    rule = table_rule({(): [0.6, 0.4], (0,): [0.4, 0.6 - 0.2], (1,): [1.0, 0.0]})
    found = generate(Toy(rule), START, 2)[0]
    assert found.tokens == [0, 0] and not found.finished
    assert found.logprob == pytest.approx(scored(rule, [0, 0]), abs=1e-6)
    assert scored(rule, [1, 0]) > found.logprob


def test_ties_go_to_the_lowest_id():
    assert generate(Toy(lambda tokens, first: torch.zeros(5)), START, 3)[0].tokens == [0, 0, 0]


def test_rows_end_at_their_own_end_and_leave_the_batch():
    toy, seen = Toy(counting(10)), []
    ends = Ends({4, 9}, watch=lambda row, token: seen.append((row, token)))
    found = generate(toy, torch.tensor([[2], [5]]), 50, ends=ends)
    assert [h.tokens for h in found] == [[3, 4], [6, 7, 8, 9]]
    assert all(h.finished and h.score == h.logprob for h in found)
    assert toy.asked == [2, 2, 1, 1]
    assert seen == [(0, 3), (1, 6), (0, 4), (1, 7), (1, 8), (1, 9)]


def test_limit_of_all_and_of_each():
    found = generate(Toy(counting(9)), torch.tensor([[0], [3], [5]]), [1, 3, 2])
    assert [h.tokens for h in found] == [[1], [4, 5, 6], [6, 7]]
    assert not any(h.finished for h in found)
    for limit in (0, -1, [1, 0, 2]):
        with pytest.raises(UsageError, match="new tokens\n  expected: 1 or more"):
            generate(Toy(counting(9)), torch.tensor([[0], [3], [5]]), limit)


def test_a_look_at_the_tokens_can_end_a_row():
    ends = Ends(stop=lambda tokens: sum(tokens) > 6)
    found = generate(Toy(counting(9)), torch.tensor([[0], [6]]), 9, ends=ends)
    assert [h.tokens for h in found] == [[1, 2, 3, 4], [7]] and all(h.finished for h in found)


def test_log_probabilities_are_the_model_s_whatever_the_constraints():
    rule = hashed(6, 3)
    found = generate(Toy(rule), START, 5, processes=[begin_with([5, 2]), ban({1})])[0]
    assert found.tokens[:2] == [5, 2] and 1 not in found.tokens
    assert found.logprob == pytest.approx(scored(rule, found.tokens), abs=1e-5)


def test_batch_equals_per_row():
    rule = hashed(7, 1)
    start = torch.arange(6)[:, None]
    together = generate(Toy(rule), start, 9, ends=Ends({0}))
    for row, found in enumerate(together):
        assert found == generate(Toy(rule), start[row : row + 1], 9, ends=Ends({0}))[0]


def test_constraints_that_leave_nothing():
    with pytest.raises(UsageError, match="no token is allowed next in row 0"):
        generate(Toy(hashed(3, 0)), START, 4, processes=[ban({0, 1, 2})])


# sampling ----------------------------------------------------------------------------------------


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
    numbers = uniform(config.seed, torch.arange(count), 5)
    drawn = draw(reshape(P.log().expand(count, 4), config), numbers)
    seen = torch.bincount(drawn, minlength=4).double()
    wanted = torch.tensor(shares).double() * count
    assert seen[wanted == 0].sum() == 0
    kept = wanted > 0
    assert ((seen - wanted)[kept] ** 2 / wanted[kept]).sum() < 16.3  # 3 degrees, p = .001


def test_no_temperature_or_one_token_is_greedy():
    step, start = Toy(hashed(9, 0)), torch.arange(50)[:, None]
    greedy = generate(step, start, 3)
    for config in (SampleConfig(temperature=0), SampleConfig(top_k=1), SampleConfig(top_p=1e-9)):
        assert generate(Toy(hashed(9, 0)), start, 3, config) == greedy


def test_temperature_comes_before_the_cuts():
    config = SampleConfig(temperature=0.5, top_p=0.69)  # .685 first, so a second token is needed
    kept = reshape(P.log()[None], config).softmax(-1)[0]
    assert kept.tolist() == pytest.approx([0.7353, 0.2647, 0, 0], abs=1e-4)
    hot = SampleConfig(temperature=2.0, top_k=3, top_p=0.66)
    kept = reshape(P.log()[None], hot) > -math.inf
    assert kept.tolist() == [[True, True, False, False]]


def test_a_row_s_sample_does_not_depend_on_its_neighbours():
    rule, config = hashed(9, 2, 0.7), SampleConfig(seed=11)
    start, ends = torch.arange(8)[:, None], Ends({0})
    together = generate(Toy(rule), start, 12, config, ends)
    for row in range(8):
        own = SampleConfig(seed=11, first=row)
        alone = generate(Toy(rule), start[row : row + 1], 12, own, ends)[0]
        assert alone.tokens == together[row].tokens
    others = torch.cat((start[:3], torch.tensor([[8], [8], [8]]), start[6:]))
    changed = generate(Toy(rule), others, 12, config, ends)
    assert [changed[n].tokens for n in (0, 1, 2, 6, 7)] == [
        together[n].tokens for n in (0, 1, 2, 6, 7)
    ]
    assert {len(h.tokens) for h in together} != {12}  # some rows left early
    again = generate(Toy(rule), start, 12, config, ends)
    assert again == together
    other = generate(Toy(rule), start, 12, SampleConfig(seed=12), ends)
    assert [h.tokens for h in other] != [h.tokens for h in together]


def test_equal_rows_draw_differently():
    found = generate(Toy(hashed(9, 2, 0.5)), torch.zeros(20, 1).long(), 6, SampleConfig())
    assert len({tuple(h.tokens) for h in found}) > 15


def test_banned_tokens_are_never_drawn_and_forced_ones_always():
    rule = hashed(5, 1, 0.5)
    start, processes = torch.zeros(200, 1).long(), [begin_with([4]), ban({1, 3})]
    found = generate(Toy(rule), start, 4, SampleConfig(temperature=5.0), None, processes)
    assert {token for h in found for token in h.tokens} == {0, 2, 4}
    assert {h.tokens[0] for h in found} == {4}
    for h in found[:5]:
        assert h.logprob == pytest.approx(scored(rule, h.tokens), abs=1e-5)


def test_penalties_make_repeats_rarer():
    rule = hashed(4, 1, 0.2)
    start = torch.zeros(300, 1).long()

    def repeats(**changes):
        config = SampleConfig(**changes)
        found = generate(Toy(rule), start, 3, config)
        return sum(len(h.tokens) - len(set(h.tokens)) for h in found)

    plain = repeats()
    assert repeats(frequency=3.0) < plain / 2 and repeats(presence=3.0) < plain / 2
    assert repeats(presence=100.0) == 0
    assert Sampling(SampleConfig()).processes == []
    assert len(Sampling(SampleConfig(repetition=1.3, frequency=0.1)).processes) == 1


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


# warp --------------------------------------------------------------------------------------------


Q = torch.tensor([[0.15, 0.5, 0.05, 0.3]])  # out of order on purpose


def shaped(logits, **config):
    return reshape(logits, SampleConfig(**config))


def after(warped):
    return [round(p, 4) for p in warped.softmax(-1)[0].tolist()]


@pytest.mark.parametrize(
    ("warped", "wanted"),
    [
        (lambda x: shaped(x, top_p=0.79), [0, 0.625, 0, 0.375]),
        (lambda x: shaped(x, top_p=0.81), [0.1579, 0.5263, 0, 0.3158]),
        (lambda x: shaped(x, top_p=1e-9), [0, 1, 0, 0]),
        (lambda x: shaped(x, top_p=1.0), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: shaped(x, top_k=2), [0, 0.625, 0, 0.375]),
        (lambda x: shaped(x, top_k=1), [0, 1, 0, 0]),
        (lambda x: shaped(x, top_k=4), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: shaped(x, top_k=99), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: shaped(x, min_p=0.29), [0.1579, 0.5263, 0, 0.3158]),
        (lambda x: shaped(x, min_p=0.31), [0, 0.625, 0, 0.375]),
        (lambda x: shaped(x, min_p=0.0), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: shaped(x, temperature=1.0), [0.15, 0.5, 0.05, 0.3]),
        (lambda x: shaped(x, temperature=0.5), [0.0616, 0.6849, 0.0068, 0.2466]),
        (lambda x: shaped(x, temperature=0.0), [0, 1, 0, 0]),
        (lambda x: shaped(x, temperature=1e-40), [0, 1, 0, 0]),
        (lambda x: shaped(x, temperature=math.inf), [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_by_hand(warped, wanted):
    assert after(warped(Q.log())) == pytest.approx(wanted, abs=1e-4)
    assert after(warped(Q.log() + 50)) == pytest.approx(wanted, abs=1e-4)


def test_typical_keeps_the_tokens_of_typical_surprise():
    """H = 1.1421; surprises 1.897, .693, 2.996, 1.204: .3 is nearest, then .5."""
    assert after(shaped(Q.log(), typical=0.2)) == [0, 0, 0, 1]
    assert after(shaped(Q.log(), typical=0.6)) == [0, 0.625, 0, 0.375]
    assert after(shaped(Q.log(), typical=1.0)) == pytest.approx(Q[0].tolist(), abs=1e-4)


def test_all_of_the_mass_is_all_tokens_whatever_rounding_does():
    flat = torch.randn(1, 100_000, generator=torch.Generator().manual_seed(0)) * 0.01
    steep = torch.tensor([[0.0, -20.0, -21.0]])  # the first has probability 1 in float32
    for name in ("top_p", "typical"):
        for logits in (flat, steep):
            kept = shaped(logits, **{name: 1.0})
            assert torch.equal(kept, logits - logits.amax())


def test_ties_are_cut_by_id():
    flat = torch.zeros(1, 4)
    assert after(shaped(flat, top_k=2)) == [0.5, 0.5, 0, 0]
    assert after(shaped(flat, top_p=0.6)) == pytest.approx([0.3333] * 3 + [0], abs=1e-4)
    assert after(shaped(flat, typical=0.4)) == [0.5, 0.5, 0, 0]


def test_entropy_grows_with_the_temperature():
    logits = torch.randn(5, 30, generator=torch.Generator().manual_seed(1)).double() * 3
    before = torch.zeros(5).double()
    for value in (0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 3.0, 10.0, math.inf):
        log = shaped(logits, temperature=value).log_softmax(-1)
        entropy = -(log.exp() * log.masked_fill(log == -math.inf, 0)).sum(-1)
        assert bool((entropy >= before - 1e-9).all())
        before = entropy
    assert before.tolist() == pytest.approx([math.log(30)] * 5)


def test_what_is_cut_stays_cut():
    logits = torch.tensor([[0.0, -math.inf, 1.0]])
    for changed in (
        shaped(logits, temperature=0.7),
        shaped(logits, temperature=math.inf),
        shaped(logits, top_p=0.99),
        shaped(logits, min_p=0.01),
        shaped(logits, typical=0.9),
        penalise(logits, torch.tensor([[1]]), SampleConfig(repetition=2.0)),
        penalise(logits, torch.tensor([[1]]), SampleConfig(frequency=0.5)),
    ):
        assert changed[0, 1] == -math.inf and bool(changed.softmax(-1).isfinite().all())


def test_penalties_on_what_occurred():
    logits, seen = torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[0, 1, 0]])
    repetition, counted = SampleConfig(repetition=2.0), SampleConfig(frequency=0.5, presence=1.0)
    assert penalise(logits, seen, repetition).tolist() == [[1, -4, 1]]
    assert penalise(logits, seen, counted).tolist() == [[0, -3.5, 1]]
    both = SampleConfig(repetition=2.0, frequency=0.5, presence=1.0)
    assert penalise(logits, seen, both).tolist() == [[-1, -5.5, 1]]
    nothing = torch.zeros(1, 0, dtype=torch.long)
    assert torch.equal(penalise(logits, nothing, both), logits)


@pytest.mark.parametrize(
    ("wrong", "limit"),
    [
        (lambda x: shaped(x, temperature=-0.1), "0 or more"),
        (lambda x: shaped(x, temperature=math.nan), "0 or more"),
        (lambda x: shaped(x, top_k=0), "1 or more"),
        (lambda x: shaped(x, top_p=0.0), "more than 0 and at most 1"),
        (lambda x: shaped(x, top_p=1.01), "more than 0 and at most 1"),
        (lambda x: shaped(x, typical=-1.0), "more than 0 and at most 1"),
        (lambda x: shaped(x, min_p=1.5), "0 to 1"),
        (lambda x: shaped(x, repetition=0.0), "more than 0"),
    ],
)
def test_out_of_range(wrong, limit):
    with pytest.raises(UsageError, match=f"expected: {limit}"):
        wrong(Q.log())


# random ------------------------------------------------------------------------------------------


def reference(x):
    """SplitMix64's finaliser in Python's own whole numbers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def test_mixer():
    given = [0, 1, 0x9E3779B97F4A7C15, 2**63, 2**64 - 1, 123456789]
    signed = torch.tensor([x - 2**64 if x >= 2**63 else x for x in given])
    assert [x % 2**64 for x in mix(signed).tolist()] == [reference(x) for x in given]


def test_a_number_depends_on_seed_row_and_step_alone():
    rows = torch.arange(100)
    whole = uniform(3, rows, 7)
    assert torch.equal(uniform(3, rows[[5, 90]], 7), whole[[5, 90]])
    assert not torch.equal(uniform(4, rows, 7), whole) and not torch.equal(
        uniform(3, rows, 8), whole
    )
    assert uniform(-1, rows, 0).min() >= 0  # any 64-bit seed


def test_evenly_spread_over_rows_steps_and_seeds():
    for numbers in (
        uniform(0, torch.arange(100_000), 0),
        torch.cat([uniform(0, torch.tensor([0]), step) for step in range(5000)]),
        torch.cat([uniform(seed, torch.tensor([0]), 0) for seed in range(5000)]),
    ):
        assert numbers.min() >= 0 and numbers.max() < 1
        count = torch.histc(numbers, 50, 0, 1)
        expected = len(numbers) / 50
        assert ((count - expected) ** 2 / expected).sum() < 85.4  # 49 degrees, p = .001


def test_rows_and_steps_are_not_correlated():
    table = torch.stack([uniform(1, torch.arange(2000), step) for step in range(4)])
    assert (torch.corrcoef(table) - torch.eye(4)).abs().max() < 0.08
    shifted = torch.stack([table[0, :-1], table[0, 1:], table[1, :-1]])
    assert (torch.corrcoef(shifted) - torch.eye(3)).abs().max() < 0.08


def test_draw_lays_tokens_out_by_id():
    logits = torch.tensor([[0.25, 0.0, 0.5, 0.25, 0.0]]).log().expand(7, 5)
    numbers = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 0.9999, 1.0], dtype=torch.double)
    assert draw(logits, numbers).tolist() == [0, 0, 2, 2, 3, 3, 3]
    first = torch.tensor([[0.0, 1.0]]).log()
    assert draw(first, torch.zeros(1, dtype=torch.double)).tolist() == [1]
