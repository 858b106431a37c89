"""Shortlists: what a source may be translated with, on disk and off it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from regard.decode.shortlist import Shortlist, coverage, make_shortlist, spelling_ids
from regard.errors import DataError, UsageError
from regard.history.ibm1 import IBM1, Rows
from regard.tokens.trainers import train_tokenizer

LISTS = [[3, 5], [], [4], [3, 4, 11], [11]]
WORDS = ["the cat sat on the mat", "naïve café, déjà vu", "a dog ran far"] * 5


def small() -> Shortlist:
    flat = Rows.of(LISTS)
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
    flat = Rows.of(lists)
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
        (changed(always=None), "tensors best, sizes"),
        (changed(more=np.zeros(1, np.uint8)), "always, best, more, sizes"),
        (changed(best=np.zeros(7, np.float32)), "best .* of float32"),
        (changed(best=np.zeros(7, np.int64)), "best .* of int64"),
        (changed(best=np.zeros((7, 1), np.uint8)), "best .7, 1."),
        (changed(sizes=np.array([2, 0, 1], np.uint8)), "lists of 3 source ids"),
        (changed(sizes=np.array([2, 0, 1, 3, 2], np.uint8)), "7 ids in lists of 8"),
        (changed(best=np.array([3, 5, 4, 3, 4, 11, 12], np.uint8)), "id 12"),
        (changed(always=np.array([0, 2, 12], np.uint8)), "id 12"),
        (changed(always=np.array([0, 2, 2], np.uint8)), "out of order"),
        (changed(always=np.array([], np.uint8)), "empty"),
        (changed(always=np.array([0, 2, 11], np.uint8)), "in a list"),
    ],
)
def test_broken_files_say_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Shortlist.from_bytes(data, 5, 12)
    assert "shortlist.safetensors" in str(caught.value) and "regard shortlist" in str(caught.value)


def test_any_text_can_be_spelt() -> None:
    for kind, size in (("bpe", 400), ("chars", None)):
        tokenizer = train_tokenizer(WORDS, kind, size, specials=("pad", "eos"), wrap="eos")
        ids = spelling_ids(tokenizer)
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
    model = IBM1(Rows.of(sources), Rows.of(targets), vocab, vocab)
    for _ in range(5):
        model.step()
    seen = np.bincount(np.concatenate(targets), minlength=vocab)
    made = make_shortlist(model.table, seen, tokenizer, {1}, best=1, always=3)
    frequent = set(np.argsort(-seen, kind="stable")[:3].tolist())
    assert set(made.always.tolist()) == frequent | set(spelling_ids(tokenizer)) | {1}
    for source in range(vocab):
        listed = set(made.best[made.bounds[source] : made.bounds[source + 1]].tolist())
        own = {source} if seen[source] else set()  # which may be copied
        wanted = own | ({(source - 270) // 2 + 275} if source >= 270 else set())
        assert listed == wanted - set(made.always.tolist())
    whole = coverage(made, sources, targets)
    assert whole.share == 1 and len(made.always) < whole.length <= len(made.always) + 8
    none = coverage(made, [[0]], [[299, 299]])
    assert none == (len(made.always), float(299 in made.always))
