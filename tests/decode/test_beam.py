"""Beam search against exhaustive search and hand values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.decode import beam as module
from regard.decode.beam import BeamConfig, Pool, length_penalty
from regard.decode.constraints import at_least, ban, begin_with, no_repeat
from regard.decode.exhaustive import exhaustive
from regard.decode.sampling import Ends
from regard.errors import UsageError
from tests.decode.toy import Toy, beam, generate, hashed, scored, table_rule

# beam --------------------------------------------------------------------------------------------


START = torch.tensor([[0]])
PENALTIES = [
    length_penalty("none"),
    length_penalty("length", 1.0),
    length_penalty("gnmt", 0.6),
    length_penalty("gnmt", 1.0),
]


def words(found):
    return [[h.tokens for h in row] for row in found]


def oracle(rule, first, vocab, limit, eos, config):
    def log_probs(prefixes):
        return torch.stack([rule(row, first).log_softmax(-1) for row in prefixes.tolist()])

    return exhaustive(log_probs, vocab, limit, eos, config.count, config.penalty)


@pytest.mark.parametrize("part", range(4))
def test_equals_exhaustive_when_it_cannot_prune(part):
    """200 random models in four parts; scores equal re-scoring."""
    for seed in range(50 * part, 50 * part + 50):
        vocab, limit = 2 + seed % 4, 2 + seed % 3
        eos = {0} if seed % 5 else {0, vocab - 1}
        width = vocab**limit
        config = BeamConfig(width, min(1 + seed % 4, width), PENALTIES[part])
        rule, start = hashed(vocab, seed), torch.tensor([[0], [1]])
        found = beam(Toy(rule), start, limit, eos, config)
        for first, row in enumerate(found):
            wanted = oracle(rule, first, vocab, limit, eos, config)
            assert [h.tokens for h in row] == [h.tokens for h in wanted], seed
            for ours, exact in zip(row, wanted, strict=True):
                assert ours.finished == exact.finished
                assert ours.score == pytest.approx(exact.score, abs=1e-4)
                assert ours.logprob == pytest.approx(scored(rule, ours.tokens, first), abs=1e-4)


def test_the_optimum_is_found_more_often_with_a_wider_beam():
    rate = {}
    for width in (1, 2, 4, 16):
        config = BeamConfig(width, 1, length_penalty("none"))
        hits = 0
        for seed in range(50):
            rule = hashed(4, seed)
            best = oracle(rule, 0, 4, 5, (), config)[0]
            hits += beam(Toy(rule), START, 5, (), config)[0][0].tokens == best.tokens
        rate[width] = hits
    assert rate[1] < rate[2] < rate[4] <= rate[16] and rate[16] >= 48, rate


def test_it_finds_what_greedy_misses():
    rule = table_rule({(): [0.6, 0.4], (0,): [0.4, 0.4], (1,): [1.0, 0.0]})
    found = beam(Toy(rule), START, 2, (), BeamConfig(2, 2, length_penalty("none")))[0]
    assert found[0].tokens == [1, 0] and not found[0].finished


@pytest.mark.parametrize("seed", range(20))
def test_beam_1_without_penalty_is_greedy(seed):
    rule, start = hashed(6, seed), torch.tensor([[0], [1], [2]])
    found = beam(Toy(rule), start, 7, {0}, BeamConfig(1, 1, length_penalty("none")))
    for row, wanted in zip(found, generate(Toy(rule), start, 7, ends=Ends({0})), strict=True):
        assert (row[0].tokens, row[0].finished) == (wanted.tokens, wanted.finished)
        assert row[0].logprob == pytest.approx(wanted.logprob, abs=1e-5)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_early_stop_changes_nothing(penalty, monkeypatch):
    rules, start = [hashed(5, seed, 2.0) for seed in range(25)], torch.tensor([[0], [1], [2]])
    config = BeamConfig(4, 3, penalty)
    steps, found = [], []
    for rule in rules:
        toy = Toy(rule)
        found.append(beam(toy, start, 12, {0}, config))
        steps.append(len(toy.asked))
    dead = lambda pool, bound, count: bound.amax(1) == -torch.inf  # noqa: E731
    monkeypatch.setattr(module, "settled", dead)
    for rule, early in zip(rules, found, strict=True):
        assert beam(Toy(rule), start, 12, {0}, config) == early
    assert min(steps) < 12  # it did stop early somewhere


def test_sources_do_not_see_each_other_and_leave_when_settled():
    rules = [hashed(6, seed, 3.0) for seed in range(8)]

    def rule(tokens, first):
        return rules[first](tokens, first)

    start, toy, config = torch.arange(8)[:, None], Toy(rule), BeamConfig(3, 2, length_penalty())
    together = beam(toy, start, 10, {0}, config)
    for row, found in enumerate(together):
        alone = beam(Toy(rule), start[row : row + 1], 10, {0}, config)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in found]
        assert [h.score for h in alone] == pytest.approx([h.score for h in found], abs=1e-6)
    assert toy.asked[0] == 8 and toy.asked[1] <= 24 and toy.asked[-1] < 24


def test_each_source_has_its_own_limit():
    rule, config = hashed(5, 2), BeamConfig(3, 3)
    start, limits = torch.arange(4)[:, None], [1, 6, 3, 9]
    together = beam(Toy(rule), start, limits, {0}, config)
    for row, limit in enumerate(limits):
        alone = beam(Toy(rule), start[row : row + 1], limit, {0}, config)[0]
        assert [h.tokens for h in together[row]] == [h.tokens for h in alone]


@pytest.mark.parametrize("seed", range(20))
def test_answers_are_distinct_and_in_order(seed):
    config = BeamConfig(6, 6, PENALTIES[seed % 4])
    found = beam(Toy(hashed(5, seed)), START, 6, {0}, config)[0]
    ended = [h.score for h in found if h.finished]
    assert len({tuple(h.tokens) for h in found}) == len(found) == 6
    assert ended == sorted(ended, reverse=True)
    assert [h.finished for h in found] == sorted((h.finished for h in found), reverse=True)
    assert all(h.tokens[-1] == 0 for h in found if h.finished)


def test_the_bias_towards_short_and_what_the_penalty_does():
    """p(eos) = .2 at each step, the others alike."""
    limit, width = 4, 256

    def best(vocab, penalty):
        def rule(tokens, first):
            return torch.tensor([0.2, *[0.8 / (vocab - 1)] * (vocab - 1)]).log()

        return beam(Toy(rule), START, limit, {0}, BeamConfig(width, 1, penalty))[0][0]

    assert best(7, length_penalty("none")).tokens == [0]
    assert best(7, length_penalty("length", 1.0)).tokens == [0]
    assert best(7, length_penalty("gnmt", 0.6)).tokens == [0]
    longest = best(4, length_penalty("length", 1.0))
    assert len(longest.tokens) == limit and longest.finished


def test_a_beam_wider_than_the_vocabulary():
    found = beam(Toy(hashed(3, 1)), START, 3, {0}, BeamConfig(27, 27))[0]
    assert len(found) == 1 + 2 + 4 * 3  # every sequence there is


def test_no_end_token():
    found = beam(Toy(hashed(4, 1)), START, 3, (), BeamConfig(4, 4))[0]
    assert all(len(h.tokens) == 3 and not h.finished for h in found)


# Diverse beam -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("diversity", [0.0, 0.8])
def test_diverse_answers_are_distinct(seed, diversity):
    config = BeamConfig(6, 4, length_penalty(), groups=3, diversity=diversity)
    rule = hashed(6, seed)
    found = beam(Toy(rule), START, 6, {0}, config)[0]
    assert len({tuple(h.tokens) for h in found}) == len(found)
    assert len(found) >= (3 if diversity else 2)  # groups may come to the same prefix
    for h in found:
        assert h.logprob == pytest.approx(scored(rule, h.tokens), abs=1e-4)


def test_equal_groups_are_one_beam():
    """Without diversity each group finds the same, which counts once."""
    for seed in range(30):
        rule = hashed(6, seed)
        one = beam(Toy(rule), START, 6, {0}, BeamConfig(2, 2))[0]
        three = beam(Toy(rule), START, 6, {0}, BeamConfig(6, 2, groups=3))[0]
        assert [h.tokens for h in three] == [h.tokens for h in one]


def test_groups_begin_with_other_words():
    rule = hashed(8, 3)
    config = BeamConfig(4, 4, length_penalty("none"), groups=4, diversity=100.0)
    firsts = {h.tokens[0] for h in beam(Toy(rule), START, 3, (), config)[0]}
    assert len(firsts) == 4
    same = beam(Toy(rule), START, 3, (), replace(config, groups=1))[0]
    assert len({h.tokens[0] for h in same}) < 4


def test_one_pool_holds_words_once():
    pool = Pool.empty(torch.zeros(1, 1, 3, dtype=torch.long), 4)
    new = Pool(
        torch.tensor([[[1, 0, 0], [1, 0, 0], [1, 0, 0], [2, 0, 0]]]),
        torch.zeros(1, 4, 3),
        torch.tensor([[1, 2, 1, 1]]),  # token 0 is a word too: length tells
        torch.tensor([[-1.0, -2.0, -1.0, -3.0]]),
        torch.tensor([[-1.0, -2.0, -1.0, -3.0]]),
    )
    kept = pool.add(new, unique=False).add(new, unique=False)
    assert kept.score[0].tolist() == [-1, -2, -3, -torch.inf]


# Constraints ------------------------------------------------------------------------------------


def test_constrained_beams_keep_the_model_s_probabilities():
    rule, config = hashed(6, 9), BeamConfig(4, 4)
    for process, holds in (
        (ban({1, 4}), lambda t: not {1, 4} & set(t)),
        (begin_with([3, 5]), lambda t: t[:2] == [3, 5]),
        (at_least(4, {0}), lambda t: len(t) >= 4),
        (no_repeat(1), lambda t: len(set(t)) == len(t)),
    ):
        for h in beam(Toy(rule), START, 6, {0}, config, [process])[0]:
            assert holds(h.tokens)
            assert h.logprob == pytest.approx(scored(rule, h.tokens), abs=1e-4)


def test_a_constrained_beam_equals_the_filtered_oracle():
    rule, config = hashed(4, 7), BeamConfig(64, 3)
    allowed = {(): [1, 2], (1,): [2, 3], (2,): [3], (1, 2): [0], (1, 3): [0], (2, 3): [0]}
    asked = []

    def allow(logits, history):
        open_ = torch.zeros_like(logits, dtype=torch.bool)
        for row, tokens in enumerate(map(tuple, history.tolist())):
            asked.append(tokens)
            open_[row, allowed[tokens]] = True  # a KeyError if a dead prefix were asked about
        return logits.masked_fill(~open_, -torch.inf)

    found = beam(Toy(rule), START, 4, {0}, config, [allow])[0]
    every = oracle(rule, 0, 4, 4, {0}, replace(config, width=999, count=500))
    wanted = [h for h in every if tuple(h.tokens) in {(1, 2, 0), (1, 3, 0), (2, 3, 0)}]
    assert [h.tokens for h in found] == [h.tokens for h in wanted]
    assert set(asked) <= set(allowed)


def test_nothing_allowed_gives_no_answers():
    assert beam(Toy(hashed(3, 0)), START, 3, {0}, BeamConfig(2), [ban({0, 1, 2})]) == [[]]


# Bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [dict(width=0), dict(count=5), dict(count=0), dict(groups=3), dict(groups=0)],
)
def test_bad_configs(wrong):
    with pytest.raises(UsageError, match="beam search"):
        BeamConfig(**wrong)


def test_no_room():
    with pytest.raises(UsageError, match="at most 0 new tokens\n  expected: 1 or more"):
        beam(Toy(hashed(3, 0)), START, 0, {0}, BeamConfig())


# penalty -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "value"), [(5, 1.3587), (10, 1.7329), (20, 2.3544), (50, 3.7786)])
def test_gnmt(n, value):
    assert length_penalty("gnmt", 0.6)(n) == pytest.approx(value, abs=5e-5)
    assert length_penalty()(n) == length_penalty("gnmt", 0.6)(n)


def test_others():
    assert length_penalty("none")(7) == 1
    assert length_penalty("length", 1.0)(7) == 7
    assert length_penalty("length", 0.5)(9) == 3
    assert length_penalty("gnmt", 0.0)(9) == 1


@pytest.mark.parametrize("alpha", [-0.1, float("nan")])
def test_alpha_has_a_floor(alpha):
    with pytest.raises(UsageError, match="expected: 0 or more"):
        length_penalty("gnmt", alpha)


def test_unknown_kind():
    with pytest.raises(UsageError, match="none, length, gnmt"):
        length_penalty("wu")
