"""Beam search that must use given words, against a filtered oracle."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.decode.beam import BeamConfig, beam
from regard.decode.constraints import ban
from regard.decode.constraints import held_tokens, holds, lexical_beam
from regard.decode.beam import length_penalty
from regard.errors import UsageError
from tests.decode.test_beam import oracle
from tests.decode.toy import Toy, hashed, scored
from tests.properties.small_models import example, small_kit
from tests.properties.threads import one_thread  # noqa: F401

START = torch.tensor([[0]])
CASES = ([(1,)], [(2, 3)], [(1,), (3,)], [(2, 2)], [(1, 2), (1, 3)], [])


@pytest.mark.parametrize("phrases", CASES)
def test_wide_enough_it_equals_the_filtered_oracle(phrases):
    for seed in range(8):
        config = BeamConfig(256, 3, length_penalty("gnmt", 0.6))
        rule = hashed(4, seed)
        found = lexical_beam(Toy(rule), START, 5, {0}, config, phrases)
        every = oracle(rule, 0, 4, 5, {0}, replace(config, width=9999, count=9999))
        wanted = [h for h in every if all(holds(tuple(h.tokens), p) for p in phrases)][:3]
        assert [h.tokens for h in found] == [h.tokens for h in wanted]
        assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_a_narrow_beam_holds_the_words_too(seed):
    rule, phrases = hashed(9, seed, 3.0), [(7, 5), (8,)]
    found = lexical_beam(Toy(rule), START, 8, {0}, BeamConfig(2, 2), phrases)
    assert found
    for h in found:
        assert all(holds(tuple(h.tokens), phrase) for phrase in phrases)
        assert h.logprob == pytest.approx(scored(rule, h.tokens), abs=1e-4)
    exact = lexical_beam(Toy(rule), START, 3, {0}, BeamConfig(2, 1), phrases)  # no room to spare
    assert sorted(exact[0].tokens) == [5, 7, 8] and not exact[0].finished


def test_no_words_is_a_beam_at_least_as_good():
    rule = hashed(6, 2)
    config = BeamConfig(4, 1, length_penalty("none"))
    plain = beam(Toy(rule), START, 6, {0}, config)[0][0]
    found = lexical_beam(Toy(rule), START, 6, {0}, config, [])[0]
    assert found.tokens == plain.tokens


def test_on_a_model_with_a_source():
    from regard.decode.step import ModelStep

    kit = small_kit("transformer")
    one = example(kit, 1, 0, 7)
    batch = kit.batch(one.inputs[None], one.target[None])
    step = ModelStep(kit.model, batch, 8)
    found = lexical_beam(step, batch.ids, 8, {0}, BeamConfig(3, 2), [(40, 41), (9,)], [ban({5})])
    for h in found:
        assert holds(tuple(h.tokens), (40, 41)) and 9 in h.tokens and 5 not in h.tokens
        ids = torch.tensor([[*one.target.tolist(), *h.tokens]])
        log = kit.logits(one.inputs[None], ids[:, :-1])[0].log_softmax(-1)
        assert h.logprob == pytest.approx(
            sum(float(log[n, token]) for n, token in enumerate(h.tokens)), abs=1e-4
        )


def test_progress():
    assert held_tokens((1, 2), (2, 3, 4)) == 1 and held_tokens((2, 3), (2, 3, 4)) == 2
    assert held_tokens((2, 3, 4, 9), (2, 3, 4)) == 3 and held_tokens((), (2,)) == 0
    assert held_tokens((2, 2), (2, 2, 3)) == 2 and held_tokens((3,), (2, 3)) == 0


@pytest.mark.parametrize(
    ("start", "limit", "phrases", "said"),
    [
        (START, 2, [(1, 2), (3,)], "3 or more"),
        (START, 5, [()], "an empty phrase"),
        (START, 5, [(1, 0)], "one with an end"),
        (torch.zeros(2, 1).long(), 5, [(1,)], "one at a time"),
    ],
)
def test_impossible_phrases(start, limit, phrases, said):
    with pytest.raises(UsageError, match=said):
        lexical_beam(Toy(hashed(4, 0)), start, limit, {0}, BeamConfig(), phrases)


def test_a_word_that_goes_on_does_not_count():
    joins = lambda last, token: token == 7  # noqa: E731
    assert holds((3, 4), (4,), joins) and holds((4, 5), (4,), joins)
    assert not holds((4, 7), (4,), joins) and holds((4, 7, 4), (4,), joins)
    assert held_tokens((4, 7), (4,), joins) == 0
    likely = torch.full((9,), -9.0)
    likely[7] = 0.0  # by far the likeliest, whatever came before

    def rule(tokens: list[int], first: int) -> torch.Tensor:
        return likely

    (found, *_) = lexical_beam(Toy(rule), START, 4, {0}, BeamConfig(2), [(4,)], (), joins)
    assert holds(tuple(found.tokens), (4,), joins)
    (found, *_) = lexical_beam(Toy(rule), START, 4, {0}, BeamConfig(2), [(4,)])
    assert 4 in found.tokens and not holds(tuple(found.tokens), (4,), joins)
