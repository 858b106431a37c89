"""Bans, beginnings, stop strings, words that must be there."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from regard.decode.beam import BeamConfig, length_penalty
from regard.decode.constraints import (
    LexicalSearch,
    StopText,
    at_least,
    ban,
    begin_with,
    held_tokens,
    holds,
    no_repeat,
)
from regard.errors import UsageError
from tests.decode.test_beam import oracle
from tests.decode.toy import Toy, beam, hashed, lexical_beam, scored
from tests.properties.small_models import example, small_kit
from tests.properties.threads import one_thread  # noqa: F401

never = lambda last, token: False  # noqa: E731
# constraints -------------------------------------------------------------------------------------


LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]])
NOTHING = torch.zeros(2, 0, dtype=torch.long)


def closed(process, history):
    """Ids that may not come next, of each row; what may keeps its logit."""
    found = process(LOGITS, history)
    shut = found == -math.inf
    assert torch.equal(found[~shut], LOGITS[~shut])
    return [row.nonzero()[:, 0].tolist() for row in shut]


def test_ban():
    assert closed(ban({3, 1}), NOTHING) == [[1, 3], [1, 3]]
    assert closed(ban(()), NOTHING) == [[], []]


def test_at_least():
    process = at_least(2, {0})
    assert closed(process, NOTHING) == [[0], [0]]
    assert closed(process, torch.tensor([[1], [2]])) == [[0], [0]]
    assert closed(process, torch.tensor([[1, 1], [2, 2]])) == [[], []]


def test_begin_with():
    process = begin_with([2, 0])
    assert closed(process, NOTHING) == [[0, 1, 3]] * 2
    assert closed(process, torch.tensor([[2], [2]])) == [[1, 2, 3]] * 2
    assert closed(process, torch.tensor([[2, 0], [2, 0]])) == [[], []]


def test_no_repeat():
    history = torch.tensor([[1, 2, 1], [3, 3, 3]])
    assert closed(no_repeat(1), history) == [[1, 2], [3]]
    assert closed(no_repeat(2), history) == [[2], [3]]
    assert closed(no_repeat(3), history) == [[], [3]]
    assert closed(no_repeat(4), history) == [[], []]
    assert closed(no_repeat(1), NOTHING) == [[], []]
    longer = torch.tensor([[1, 2, 3, 1, 2], [0, 1, 0, 2, 0]])
    assert closed(no_repeat(3), longer) == [[3], []]
    assert closed(no_repeat(2), longer) == [[3], [1, 2]]
    with pytest.raises(UsageError, match="1 or more"):
        no_repeat(0)


# stop --------------------------------------------------------------------------------------------


LETTERS = "abcdefghijklmnopqrstuvwxyz \n"


def decode(tokens):
    return "".join(LETTERS[token] for token in tokens)


def encode(text):
    return [LETTERS.index(letter) for letter in text]


def test_true_once_the_text_holds_one():
    stop = StopText(decode, ["the end", "\n"])
    tokens = encode("this is the end of it")
    ends = [n for n in range(len(tokens) + 1) if stop(tokens[:n])]
    assert ends[0] == len("this is the end")
    assert stop(encode("a\n")) and not stop(encode("a")) and not stop([])


def test_only_the_end_is_decoded():
    asked = []
    stop = StopText(lambda tokens: asked.append(len(tokens)) or decode(tokens), ["abc"])
    assert not stop(encode("x" * 1000)) and asked == [7]


def test_cut_at_the_first():
    stop = StopText(decode, ["b", "cd"])
    assert stop.cut("aacdb") == "aa" and stop.cut("xyz") == "xyz" and stop.cut("b") == ""


def test_empty_strings_stop_nothing():
    stop = StopText(decode, ["", ""])
    assert not stop(encode("abc")) and stop.cut("abc") == "abc"


# lexical_search ----------------------------------------------------------------------------------


START = torch.tensor([[0]])
CASES = ([(1,)], [(2, 3)], [(1,), (3,)], [(2, 2)], [(1, 2), (1, 3)], [])


@pytest.mark.parametrize("phrases", CASES)
def test_wide_enough_it_equals_the_filtered_oracle(phrases):
    for seed in range(8):
        config = BeamConfig(256, 3, length_penalty("gnmt", 0.6))
        rule = hashed(4, seed)
        found = lexical_beam(Toy(rule), START, 5, {0}, config, phrases)
        every = oracle(rule, 0, 4, 5, {0}, replace(config, width=9999, count=9999))
        wanted = [h for h in every if all(holds(tuple(h.tokens), p, never) for p in phrases)][:3]
        assert [h.tokens for h in found] == [h.tokens for h in wanted]
        assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_a_narrow_beam_holds_the_words_too(seed):
    rule, phrases = hashed(9, seed, 3.0), [(7, 5), (8,)]
    found = lexical_beam(Toy(rule), START, 8, {0}, BeamConfig(2, 2), phrases)
    assert found
    for h in found:
        assert all(holds(tuple(h.tokens), phrase, never) for phrase in phrases)
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
        assert holds(tuple(h.tokens), (40, 41), never) and 9 in h.tokens and 5 not in h.tokens
        ids = torch.tensor([[*one.target.tolist(), *h.tokens]])
        log = kit.logits(one.inputs[None], ids[:, :-1])[0].log_softmax(-1)
        assert h.logprob == pytest.approx(
            sum(float(log[n, token]) for n, token in enumerate(h.tokens)), abs=1e-4
        )


def test_progress():
    assert held_tokens((1, 2), (2, 3, 4), never) == 1 and held_tokens((2, 3), (2, 3, 4), never) == 2
    assert held_tokens((2, 3, 4, 9), (2, 3, 4), never) == 3 and held_tokens((), (2,), never) == 0
    assert held_tokens((2, 2), (2, 2, 3), never) == 2 and held_tokens((3,), (2, 3), never) == 0


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


def test_words_that_must_be_there_are_searched_where_the_column_is() -> None:
    search = LexicalSearch(BeamConfig(2), frozenset({0}), [(2,)], never)
    state = search.begin(torch.zeros(1, 1, dtype=torch.long, device="meta"), [3], 3)
    state = search.advance(state, LOGITS[:1])
    assert state.parent is not None
    assert state.column.device == state.parent.device  # rows of the cache are chosen by it
