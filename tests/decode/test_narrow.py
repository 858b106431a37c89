"""Decoding with a shortlist: the same search over fewer words, each row with its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.core.tap import taps
from regard.decode.beam import BeamConfig
from regard.decode.sampling import Ends
from regard.decode.loop import can_narrow, write_narrow
from regard.decode.sampling import SampleConfig
from regard.decode.shortlist import Shortlist
from regard.decode.step import Hypothesis
from regard.decode.loop import run_search
from regard.history.ibm1 import Rows
from regard.model.batch import Batch, pad_rows
from regard.model.model import Model
from regard.model.precision import set_precision
from tests.properties.small_models import CONFIGS, PAIRS, VOCAB, small_kit
from tests.properties.threads import one_thread  # noqa: F401

ROOM = 12
ENDS = Ends([1, 9, 20])  # so that some rows end before others
LATE = Ends([1])  # for one that would end at once
SEARCHES = [None, BeamConfig(4), BeamConfig(4, 2)]


def made(name: str, precision: str | None) -> Model:
    """A model whose scores are not tied to what it reads, so that it does not repeat itself."""
    model = small_kit(name, head=replace(CONFIGS[name].head, tied=False, scale=0.7)).model
    if precision:
        set_precision(model, precision)
    return model


def drawn_list(seed: int = 0) -> Shortlist:
    """Few words always, and three of its own for each source word."""
    draw, always = np.random.default_rng(seed), np.array([0, 1, 5, 9, 20, 44 + seed])
    rest = np.setdiff1d(np.arange(VOCAB), always)
    lists = [sorted(draw.choice(rest, 3, replace=False).tolist()) for _ in range(VOCAB)]
    flat = Rows.of(lists)
    return Shortlist(always, flat.ids, flat.bounds, VOCAB)


def drawn_rows(count: int) -> list[list[int]]:
    draw = np.random.default_rng(1)
    return [draw.integers(2, VOCAB, draw.integers(2, 9)).tolist() for _ in range(count)]


def batch_of(rows: Sequence[Sequence[int]]) -> Batch:
    ids, real = pad_rows([list(row) for row in rows], 0)
    return Batch(ids, torch.zeros(len(rows), 1, dtype=torch.long), source_mask=real)


def words_of(shortlist: Shortlist, row: Sequence[int]) -> set[int]:
    bounds = shortlist.bounds
    own = [shortlist.best[bounds[word] : bounds[word + 1]].tolist() for word in row]
    return {*shortlist.always.tolist(), *(id for ids in own for id in ids)}


def assert_same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in wanted]
    assert [h.logprob for h in found] == pytest.approx([h.logprob for h in wanted], 1e-5, 1e-5)
    assert [h.finished for h in found] == [h.finished for h in wanted]


@pytest.mark.parametrize("precision", [None, "int8"])
@pytest.mark.parametrize("how", SEARCHES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_row_alone_and_among_others(name: str, how: BeamConfig | None, precision: Any) -> None:
    model, shortlist, rows = made(name, precision), drawn_list(), drawn_rows(32)
    ends = LATE if name == "t5" else ENDS
    together = write_narrow(model, batch_of(rows), ROOM, how, ends, shortlist)
    over = 0
    for row, found in zip(rows, together, strict=True):
        assert_same(write_narrow(model, batch_of([row]), ROOM, how, ends, shortlist)[0], found)
        allowed = words_of(shortlist, row)
        assert all(set(h.tokens) <= allowed for h in found) and len(allowed) < VOCAB
        over += found[0].finished
    assert len({tuple(row[0].tokens) for row in together}) > 8 and 0 < over < 32


@pytest.mark.parametrize("precision", [None, "fp32", "int8"])
@pytest.mark.parametrize("how", SEARCHES)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("apart", [False, True])
def test_a_list_of_everything_changes_nothing(
    name: str, how: BeamConfig | None, precision: Any, apart: bool
) -> None:
    everything, nothing = np.arange(VOCAB), np.zeros(0, np.int64)
    whole = Shortlist(everything, nothing, np.zeros(VOCAB + 1, np.int64), VOCAB)
    if apart:  # the last words in the lists of the source words
        flat = Rows.of([everything[40:].tolist()] * VOCAB)
        whole = Shortlist(everything[:40], flat.ids, flat.bounds, VOCAB)
    model, batch = made(name, precision), batch_of(drawn_rows(7))
    found = write_narrow(model, batch, ROOM, how, ENDS, whole)
    for one, other in zip(found, write(model, batch, ROOM, how, ENDS), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("name", PAIRS)
def test_greedy_takes_the_best_that_is_allowed(name: str) -> None:
    model, shortlist = made(name, None), drawn_list(3)
    for row in drawn_rows(8):
        allowed = torch.tensor(sorted(words_of(shortlist, row)))

        def bar(logits: Tensor, history: Tensor, allowed: Tensor = allowed) -> Tensor:
            return torch.full_like(logits, -torch.inf).index_copy(
                1, allowed, logits.index_select(1, allowed)
            )

        batch = batch_of([row])
        found = write_narrow(model, batch, ROOM, None, ENDS, shortlist)
        wanted = write(model, batch, ROOM, None, ENDS, [bar])
        assert found[0][0].tokens == wanted[0][0].tokens


def test_scores_are_shares_of_the_list() -> None:
    model, shortlist, row = made("t5", None), drawn_list(), [4, 7]
    (found,) = write_narrow(model, batch_of([row]), 1, None, ENDS, shortlist)[0]
    batch, allowed = batch_of([row]), sorted(words_of(shortlist, row))
    with torch.no_grad():
        log = model(batch)[0, -1, allowed].double().log_softmax(-1)
    assert found.logprob == pytest.approx(float(log.max()), abs=1e-5)


def test_packed_rows_follow_their_model_and_list() -> None:
    batch = batch_of(drawn_rows(3))
    for seed in (0, 1):  # another list for the same map, then the first again
        model = made("t5", "int8")
        for shortlist in (drawn_list(seed), drawn_list(seed + 5), drawn_list(seed)):
            fresh = made("t5", "int8")
            found = write_narrow(model, batch, ROOM, None, ENDS, shortlist)
            assert found == write_narrow(fresh, batch, ROOM, None, ENDS, shortlist)


def test_when_all_words_are_scored() -> None:
    model, batch = made("t5", None), batch_of([[3, 4]])
    assert can_narrow(model, batch, None, ENDS) and can_narrow(model, batch, BeamConfig(), ENDS)
    assert not can_narrow(model, batch, SampleConfig(), ENDS)
    assert not can_narrow(model, batch, None, Ends([1], stop=lambda tokens: False))
    assert not can_narrow(model, batch, None, Ends([1], watch=lambda row, token: None))
    assert not can_narrow(small_kit("gpt2").model, Batch(batch.inputs), None, ENDS)
    whisper = small_kit("whisper").model
    assert not can_narrow(whisper, Batch(torch.zeros(1, 8, 100), batch.target), None, ENDS)
    tap = taps(model)["logits"]
    tap.fn = lambda x: x
    assert not can_narrow(model, batch, None, ENDS)
    tap.fn = None
    hook = model.head.register_forward_hook(lambda *given: None)
    assert not can_narrow(model, batch, None, ENDS)
    hook.remove()
    assert can_narrow(model, batch, None, ENDS)
