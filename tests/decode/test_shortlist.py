"""Shortlists: what a translation may need, and decoding with nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from torch import Tensor

from regard.core.tap import taps
from regard.decode.beam import BeamConfig
from regard.decode.loop import can_shorten, run_search
from regard.decode.sampling import Ends, SampleConfig
from regard.decode.shortlist import Shortlist
from regard.decode.step import Hypothesis
from regard.errors import DataError, UsageError
from regard.history.ibm1 import IBM1, Ragged
from regard.model.batch import Batch, pad_rows
from regard.model.model import Model
from regard.model.precision import set_precision
from regard.tokens.trainers import train_tokenizer
from regard.translation.lexical_shortlist import coverage, make_shortlist
from tests.properties.small_models import CONFIGS, PAIRS, VOCAB, small_kit
from tests.properties.threads import one_thread  # noqa: F401

# shortlist ---------------------------------------------------------------------------------------


LISTS = [[3, 5], [], [4], [3, 4, 11], [11]]
WORDS = ["the cat sat on the mat", "naïve café, déjà vu", "a dog ran far"] * 5


def small() -> Shortlist:
    flat = Ragged.of(LISTS)
    return Shortlist(np.array([0, 2, 7]), flat.ids, flat.bounds, 12)


def changed(**parts: object) -> bytes:
    """The file with other tensors; None leaves one out."""
    made = {**load(small().to_bytes()), **parts}
    return bytes(save({name: np.asarray(part) for name, part in made.items() if part is not None}))


def test_each_row_has_its_own_list() -> None:
    sources = torch.tensor([[0, 2, 9], [3, 1, 1], [1, 9, 9]])
    real = torch.tensor([[True, True, False], [True, True, True], [True, False, False]])
    choice = small().choose(sources.clamp(max=4), real)
    assert choice.common.tolist() == [0, 2, 7] and choice.others.tolist() == [3, 4, 5, 11]
    for row, words in zip(range(3), ([0, 2], [3, 1, 1], [1]), strict=True):
        own = {id for word in words for id in LISTS[word]}
        count = 3 + len(own)
        assert choice.words()[row, :count].tolist() == [0, 2, 7, *sorted(own)]
        assert choice.barred[row].tolist() == [n >= len(own) for n in range(3)]
        alone = small().choose(torch.tensor([words]))
        assert alone.words().tolist() == [[0, 2, 7, *sorted(own)]] and not alone.barred.any()


def test_lists_of_many_words_keep_their_order() -> None:
    draw = np.random.default_rng(0)
    lists = [sorted(draw.choice(np.arange(9, 900), 30, replace=False).tolist()) for _ in range(50)]
    flat = Ragged.of(lists)
    large = Shortlist(np.arange(9), flat.ids, flat.bounds, 900)
    sources = torch.from_numpy(draw.integers(0, 50, (20, 6)))
    choice = large.choose(sources)
    for row, words in enumerate(sources.tolist()):
        own = sorted({id for word in words for id in lists[word]})
        kept = ~choice.barred[row]
        assert choice.words()[row, 9:][kept].tolist() == own and int(kept.sum()) == len(own)


def test_ends_keep_their_places() -> None:
    assert small().local([7, 0]) == [0, 2]
    for lost in (3, 11):
        with pytest.raises(UsageError, match="not always allowed"):
            small().local([0, lost])


def test_written_and_read() -> None:
    again = Shortlist.from_bytes(small().to_bytes(), 5, 12)
    for name in ("always", "best", "bounds"):
        assert getattr(again, name).tolist() == getattr(small(), name).tolist()
    large = Shortlist(np.array([0, 300]), np.arange(1, 300), np.array([0, 299]), 16000)
    parts = load(large.to_bytes())
    assert {name: str(part.dtype) for name, part in parts.items()} == {
        "always": "uint16",
        "best": "uint16",
        "sizes": "uint16",
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no safetensors file"),
        (small().to_bytes()[:-1], "no safetensors file"),
        (changed(always=None), "no safetensors file with lists .'always'"),
        (changed(sizes=np.array([2, 0, 1], np.uint8)), "lists of 3 source ids"),
        (changed(sizes=np.array([2, 0, 1, 3, 2], np.uint8)), "7 ids in lists of 5"),
        (changed(best=np.array([3, 5, 4, 3, 4, 11, 12], np.uint8)), "id 12"),
        (changed(always=np.array([0, 2, 12], np.uint8)), "id 12"),
    ],
)
def test_broken_files_say_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Shortlist.from_bytes(data, 5, 12)
    assert "shortlist.safetensors" in str(caught.value) and "regard train shortlist" in str(
        caught.value
    )


def test_any_text_can_be_spelt() -> None:
    for kind, size in (("bpe", 400), ("chars", None)):
        tokenizer = train_tokenizer(WORDS, kind, size, specials=("pad", "eos"), wrap="eos")
        model = IBM1(Ragged.of([[0]]), Ragged.of([[0]]), tokenizer.size, tokenizer.size)
        nothing = np.zeros(tokenizer.size, np.int64)
        ids = make_shortlist(model, nothing, tokenizer, (), best=1, always=1).always.tolist()
        assert set(tokenizer.specials.values()) <= set(ids)
        single = {
            id for mark in set("".join(WORDS)) for id in tokenizer.encode(mark, special=False)
        }
        assert single <= set(ids)
        if kind == "bpe":  # all bytes, so any text at all
            assert {id for id in tokenizer.encode("🦜 ß 中", special=False)} <= set(ids)
            assert len(ids) < tokenizer.size


def test_lists_hold_what_the_table_says() -> None:
    tokenizer = train_tokenizer(WORDS, "bpe", 300, specials=("pad", "eos"), wrap="eos")
    vocab, draw = tokenizer.size, np.random.default_rng(0)
    sources = [draw.integers(270, vocab, 4).tolist() for _ in range(200)]
    targets = [[(word - 270) // 2 + 275 for word in row] for row in sources]
    model = IBM1(Ragged.of(sources), Ragged.of(targets), vocab, vocab)
    for _ in range(5):
        model.step()
    seen = np.bincount(np.concatenate(targets), minlength=vocab)
    made = make_shortlist(model, seen, tokenizer, {1}, best=1, always=3)
    frequent = set(np.argsort(-seen, kind="stable")[:3].tolist())
    short = {id for id in range(vocab) if len(tokenizer.decode([id]).strip()) <= 1}
    assert set(made.always.tolist()) == frequent | short | {*tokenizer.specials.values(), 1}
    for source in range(vocab):
        listed = set(made.best[made.bounds[source] : made.bounds[source + 1]].tolist())
        own = {source} if seen[source] else set()  # which may be copied
        wanted = own | ({(source - 270) // 2 + 275} if source >= 270 else set())
        assert listed == wanted - set(made.always.tolist())
    length, share = coverage(made, sources, targets)
    assert share == 1 and len(made.always) < length <= len(made.always) + 8
    none = coverage(made, [[0]], [[299, 299]])
    assert none == (len(made.always), float(299 in made.always))


# narrow ------------------------------------------------------------------------------------------


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
    flat = Ragged.of(lists)
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
    assert [h.logprob for h in found] == pytest.approx([h.logprob for h in wanted], 1e-4, 1e-5)
    assert [h.finished for h in found] == [h.finished for h in wanted]


@pytest.mark.parametrize("precision", [None, "int8"])
@pytest.mark.parametrize("how", SEARCHES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_row_alone_and_among_others(name: str, how: BeamConfig | None, precision: Any) -> None:
    model, shortlist, rows = made(name, precision), drawn_list(), drawn_rows(32)
    ends = LATE if name == "t5" else ENDS
    together = run_search(model, batch_of(rows), ROOM, how, ends, shortlist=shortlist)
    over = 0
    for row, found in zip(rows, together, strict=True):
        assert_same(
            run_search(model, batch_of([row]), ROOM, how, ends, shortlist=shortlist)[0], found
        )
        allowed = words_of(shortlist, row)
        assert all(set(h.tokens) <= allowed for h in found) and len(allowed) < VOCAB
        over += found[0].finished
    assert len({tuple(row[0].tokens) for row in together}) > 8 and 0 < over < 32


@pytest.mark.parametrize("precision", [None, "int8"])
@pytest.mark.parametrize("how", SEARCHES)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("apart", [False, True])
def test_a_list_of_everything_changes_nothing(
    name: str, how: BeamConfig | None, precision: Any, apart: bool
) -> None:
    everything, nothing = np.arange(VOCAB), np.zeros(0, np.int64)
    whole = Shortlist(everything, nothing, np.zeros(VOCAB + 1, np.int64), VOCAB)
    if apart:  # the last words in the lists of the source words
        flat = Ragged.of([everything[40:].tolist()] * VOCAB)
        whole = Shortlist(everything[:40], flat.ids, flat.bounds, VOCAB)
    model, batch = made(name, precision), batch_of(drawn_rows(7))
    found = run_search(model, batch, ROOM, how, ENDS, shortlist=whole)
    for one, other in zip(found, run_search(model, batch, ROOM, how, ENDS), strict=True):
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
        found = run_search(model, batch, ROOM, None, ENDS, shortlist=shortlist)
        wanted = run_search(model, batch, ROOM, None, ENDS, [bar])
        assert found[0][0].tokens == wanted[0][0].tokens


def test_scores_are_shares_of_the_list() -> None:
    model, shortlist, row = made("t5", None), drawn_list(), [4, 7]
    (found,) = run_search(model, batch_of([row]), 1, None, ENDS, shortlist=shortlist)[0]
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
            found = run_search(model, batch, ROOM, None, ENDS, shortlist=shortlist)
            assert found == run_search(fresh, batch, ROOM, None, ENDS, shortlist=shortlist)


def test_when_all_words_are_scored() -> None:
    model, batch = made("t5", None), batch_of([[3, 4]])
    assert can_shorten(model, batch, None, ENDS) and can_shorten(model, batch, BeamConfig(), ENDS)
    assert not can_shorten(model, batch, SampleConfig(), ENDS)
    assert not can_shorten(model, batch, None, Ends([1], stop=lambda tokens: False))
    assert not can_shorten(model, batch, None, Ends([1], watch=lambda row, token: None))
    assert not can_shorten(small_kit("gpt2").model, Batch(batch.inputs), None, ENDS)
    whisper = small_kit("whisper").model
    assert not can_shorten(whisper, Batch(torch.zeros(1, 8, 100), batch.target), None, ENDS)
    tap = taps(model)["logits"]
    tap.fn = lambda x: x
    assert not can_shorten(model, batch, None, ENDS)
    tap.fn = None
    hook = model.head.register_forward_hook(lambda *given: None)
    assert not can_shorten(model, batch, None, ENDS)
    hook.remove()
    assert can_shorten(model, batch, None, ENDS)
