"""Windows, packing, buckets, masking and the loader, against brute force over small stores."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.bucket import Buckets
from regard.data.loader import Loader
from regard.data.packing import Masker, Packed, fit
from regard.data.windows import IGNORED, Examples, Windows
from regard.errors import DataError
from regard.model.batch import Batch
from tests.data.stores import make_store

START, END = 998, 999


def same(a, b):
    """Whether two batches are equal in every field."""
    for name in ("inputs", "labels", "target", "mask", "documents", "source_mask"):
        x, y = getattr(a, name), getattr(b, name)
        if (x is None) != (y is None) or (x is not None and not torch.equal(x, y)):
            return False
    return a.tokens == b.tokens


def numbered(total):
    """Documents whose ids are their places: each (input, label) names one prediction."""
    return [list(range(total))]


def predictions(source, epoch):
    """Each (input, label) at a real place, over a whole epoch; counts are checked on the way."""
    found = []
    for index in range(source.count(epoch)):
        batch = source.batch(epoch, index)
        real = batch.labels != IGNORED
        assert batch.tokens == int(real.sum()) > 0
        assert batch.mask is None or torch.equal(batch.mask, real)
        found += list(zip(batch.inputs[real].tolist(), batch.labels[real].tolist(), strict=True))
    return found


@settings(deadline=None, max_examples=50)
@given(
    st.integers(2, 60),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 9),
    st.integers(0, 3),
)
def test_windows_predict_each_token_once(tmp_path_factory, total, length, rows, seed, epoch):
    store = make_store(tmp_path_factory.mktemp("w") / "a", numbered(total))
    if total <= length:
        with pytest.raises(DataError, match=f"{total} tokens(.|\n)*at least {length + 1}"):
            Windows(store, length, rows, seed)
        return
    found = predictions(Windows(store, length, rows, None), epoch)
    assert found == [(n, n + 1) for n in range(total - 1)]  # in order, for validation
    drawn = Windows(store, length, rows, seed)
    found, full = predictions(drawn, epoch), (total - 1) // length
    assert len(found) == full * length and all(b == a + 1 for a, b in found)
    batches = [drawn.batch(epoch, n).inputs for n in range(drawn.count(epoch))]
    starts = sorted(int(row[0]) for batch in batches for row in batch)
    assert [start // length for start in starts[:-1]] == list(range(full - 1))  # one in each
    whole = Windows(store, length, rows, seed, whole=True)
    shapes = {tuple(whole.batch(epoch, n).inputs.shape) for n in range(whole.count(epoch))}
    assert shapes == {(min(rows, full), length)}


def test_windows_on_lines_of_one_length_begin_everywhere_in_a_line(tmp_path):
    """With one offset for an epoch, each began at the same place of a line: the loss then jumps."""
    windows = Windows(make_store(tmp_path / "a", numbered(900)), 20, 4)
    for epoch in range(3):
        starts = [windows.batch(epoch, n).inputs[:, 0] for n in range(windows.count(epoch))]
        assert len({int(start) % 10 for start in torch.cat(starts)}) == 10


def test_windows_move_and_shuffle_from_epoch_to_epoch(tmp_path):
    windows = Windows(make_store(tmp_path / "a", numbered(500)), 20, 2)
    starts = [[windows.batch(e, n).inputs[0, 0].item() for n in range(5)] for e in range(4)]
    assert len({tuple(s) for s in starts}) == 4
    assert len({s % 20 for row in starts for s in row if s}) > 2


documents = st.lists(st.integers(0, 25), min_size=1, max_size=30).filter(any)


@settings(deadline=None, max_examples=50)
@given(documents, st.integers(1, 12), st.integers(1, 3), st.integers(1, 40), st.integers(0, 5))
def test_packing_loses_and_doubles_nothing(tmp_path_factory, sizes, length, rows, ahead, seed):
    edges = np.cumsum([0, *sizes]).tolist()
    whole = [list(range(a, b)) for a, b in zip(edges, edges[1:], strict=False)]
    store = make_store(tmp_path_factory.mktemp("p") / "a", whole)
    expected = {(n, n + 1) for d in whole for n in d[:-1]}
    if not expected:
        with pytest.raises(DataError, match="none with 2 tokens"):
            Packed(store, length, rows, seed, ahead)
        return
    packed = Packed(store, length, rows, seed, ahead)
    found = predictions(packed, seed)
    assert sorted(found) == sorted(expected)
    home = {id: number for number, d in enumerate(whole) for id in d}
    split = Counter()
    for index in range(packed.count(seed)):
        batch = packed.batch(seed, index)
        assert batch.inputs.shape[1] == length
        for ids, marks in zip(batch.inputs.tolist(), batch.documents.tolist(), strict=True):
            for mark in set(marks) - {-1}:
                piece = [i for i, m in zip(ids, marks, strict=True) if m == mark]
                assert len({home[i] for i in piece}) == 1  # one document, its tokens in a run
                assert piece == list(range(piece[0], piece[0] + len(piece)))
                split[home[piece[0]]] += 1
    assert all(split[n] == -(-(len(d) - 1) // length) for n, d in enumerate(whole) if len(d) > 1)


def test_packing_is_tight():
    sizes = np.random.default_rng(0).lognormal(4, 0.8, 4000).clip(1, 512).astype(int).tolist()
    rows = fit(sizes, 512)
    assert sorted(i for row in rows for i in row) == list(range(4000))
    assert all(sum(sizes[i] for i in row) <= 512 for row in rows)
    assert sum(sizes) / (512 * len(rows)) > 0.98


def pair_store(path, lengths):
    """Pairs whose ids tell their number and side."""
    both = [
        [2 * n + side] * size for n, pair in enumerate(lengths) for side, size in enumerate(pair)
    ]
    return make_store(path, both, sides=2, vocab=10**6)


pairs = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=50)
@given(pairs, st.integers(5, 80), st.integers(1, 50), st.booleans(), st.integers(0, 3))
def test_buckets_hold_each_pair_once_within_the_budget(
    tmp_path_factory, lengths, budget, ahead, even, epoch
):
    store = pair_store(tmp_path_factory.mktemp("b") / "a", lengths)
    buckets = Buckets(store, budget, START, END, 7, ahead, even=even)
    seen = []
    for index in range(buckets.count(epoch)):
        batch = buckets.batch(epoch, index)
        rows, width = batch.inputs.shape[0], max(batch.inputs.shape[1], batch.labels.shape[1])
        assert rows * width <= budget or rows == 1
        assert not even or batch.source_mask is None
        Batch(**batch.parts())
        given_mask = batch.source_mask
        source_mask = torch.ones_like(batch.inputs) if given_mask is None else given_mask
        mask = batch.labels != IGNORED
        assert batch.mask is None and batch.tokens == int(mask.sum())
        for n in range(rows):
            source = batch.inputs[n][source_mask[n].bool()].tolist()
            target = batch.target[n][mask[n].bool()].tolist()
            labels = batch.labels[n][mask[n].bool()].tolist()
            pair = source[0] // 2
            left, right = lengths[pair]
            assert source == [2 * pair] * left + [END]
            assert target == [START] + [2 * pair + 1] * right
            assert labels == [2 * pair + 1] * right + [END]
            seen.append(pair)
    assert sorted(seen) == list(range(len(lengths)))


def realistic(count, seed=0):
    """Lengths like those of short sentences and their translations."""
    rng = np.random.default_rng(seed)
    left = rng.lognormal(2.3, 0.5, count).clip(1, 200)
    right = (left * rng.lognormal(0, 0.2, count)).clip(1, 200)
    return np.stack([left, right], 1).astype(int)


def test_padding_is_small_and_the_plan_is_quick(tmp_path):
    lengths = realistic(20_000)
    bounds = np.concatenate([[0], lengths.reshape(-1).cumsum()])
    store = make_store(tmp_path / "a", [[1]], vocab=10)
    store.bounds, store.documents, store.sides = bounds, len(bounds) - 1, 2
    store.stream, store.tokens = np.ones(bounds[-1], np.uint16), int(bounds[-1])
    buckets = Buckets(store, 1024, START, END)
    real = held = 0
    for index in range(buckets.count(0)):
        batch = buckets.batch(0, index)
        source = batch.inputs.numel() if batch.source_mask is None else int(batch.source_mask.sum())
        real += source + batch.tokens
        held += batch.inputs.numel() + batch.labels.numel()
    assert real == lengths.sum() + lengths.size
    assert 1 - real / held < 0.08
    sizes = [buckets.batch(0, n).inputs.shape[1] for n in range(30)]
    assert sizes != sorted(sizes)  # batches do not come in order of length


def test_a_limit_leaves_pairs_out_and_counts_them(tmp_path):
    store = pair_store(tmp_path / "a", [(3, 3), (9, 2), (2, 9), (1, 1)])
    buckets = Buckets(store, 100, START, END, limit=5)
    (batch,) = [buckets.batch(0, n) for n in range(buckets.count(0))]
    assert buckets.left_out == 2 and {row[0] // 2 for row in batch.inputs.tolist()} == {0, 3}
    with pytest.raises(DataError, match="none with both sides ≤ 1"):
        Buckets(store, 100, START, END, limit=1)


def test_masking_rates_and_counters():
    masker = Masker(1000, mask=3, never=(0, 1, 2), seed=5)
    ids = np.random.default_rng(0).integers(0, 1000, 400_000)
    places = np.arange(len(ids)) + 10**9
    hidden, labels = masker(ids, places, epoch=2)
    chosen = labels != IGNORED
    assert (labels[chosen] == ids[chosen]).all() and (hidden[~chosen] == ids[~chosen]).all()
    assert not np.isin(ids[chosen], [0, 1, 2, 3]).any()
    n, masked = int((ids > 3).sum()), hidden[chosen] == 3
    kept, random = hidden[chosen] == ids[chosen], hidden[chosen][~masked]
    assert not np.isin(random, [0, 1, 2, 3]).any()
    for count, of, rate in [
        (chosen.sum(), n, 0.15), (masked.sum(), chosen.sum(), 0.8), (kept.sum(), chosen.sum(), 0.1),
    ]:  # fmt: skip
        sigma = (of * rate * (1 - rate)) ** 0.5
        assert abs(count - of * rate) < 4 * sigma + of * 1e-3 * (rate == 0.1)
    some = np.arange(1000, 3000)[::-1]
    again = masker(ids[some], places[some], epoch=2)
    assert (again[0] == hidden[some]).all() and (again[1] == labels[some]).all()
    assert (masker(ids, places, epoch=3)[1] != labels).any()


def test_masked_packing_covers_every_token(tmp_path):
    whole = [list(range(a, a + 30)) for a in range(10, 910, 30)]
    masker = Masker(1000, mask=3, seed=1)
    packed = Packed(make_store(tmp_path / "a", whole), 64, 4, masker=masker)
    seen, labels = [], {}
    for index in range(packed.count(0)):
        batch = packed.batch(0, index)
        right = torch.where(batch.labels == IGNORED, batch.inputs, batch.labels)
        seen += right[batch.documents >= 0].tolist()
        labels[index] = batch.tokens
    assert sorted(seen) == list(range(10, 910)) and 80 < sum(labels.values()) < 200


def sources(tmp_path):
    """One of each kind."""
    rng = np.random.default_rng(1)
    texts = [list(range(n)) for n in rng.integers(1, 40, 60)]
    store = make_store(tmp_path / "t", texts)
    yield Windows(store, 16, 4, seed=3)
    yield Packed(store, 32, 3, seed=3, look_ahead=20)
    yield Packed(store, 32, 3, seed=3, masker=Masker(1000, 999))
    yield Buckets(pair_store(tmp_path / "p", realistic(80).tolist()), 200, START, END, 3, 30)


def test_resume_anywhere_with_any_number_of_workers(tmp_path):
    for source in sources(tmp_path):
        plain = list(Loader(source, workers=0).iterate(epochs=3))
        assert [(b.epoch, b.index) for b in plain] == [
            (e, n) for e in range(3) for n in range(source.count(e))
        ]
        for at, workers in ((0, 3), (1, 1), (len(plain) // 2, 4), (len(plain) - 1, 2)):
            here = plain[at]
            rest = list(Loader(source, workers).iterate(here.epoch, here.index, epochs=3))
            assert len(rest) == len(plain) - at
            for a, b in zip(plain[at:], rest, strict=True):
                assert (a.epoch, a.index) == (b.epoch, b.index) and same(a.examples, b.examples)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_processes_share_the_rows_of_every_batch(size, tmp_path):
    for source in sources(tmp_path):
        whole = list(Loader(source, 0).iterate(epochs=1))
        shares = [Loader(source, 2, rank=n, size=size).iterate(epochs=1) for n in range(size)]
        for batch, *parts in zip(whole, *shares, strict=True):
            wanted = batch.examples
            assert {part.examples.tokens for part in parts} == {wanted.tokens}
            labels = [part.examples.labels for part in parts]
            assert sum(int((one != -100).sum()) for one in labels) == wanted.tokens
            for rank, part in enumerate(parts):
                mine, real = part.examples, range(rank, len(wanted.labels), size)
                assert len(mine.labels) == max(len(real), 1)
                for name, tensor in mine.parts().items():
                    rows = getattr(wanted, name)[list(real) or [0]]
                    assert torch.equal(tensor, rows)


def test_leaving_a_loop_ends_the_workers(tmp_path):
    source = next(iter(sources(tmp_path)))
    before = threading.active_count()
    stream = Loader(source, workers=3).iterate()
    first = [loaded.index for loaded in islice(stream, 5)]
    assert first == list(range(5)) and threading.active_count() > before
    stream.close()
    assert threading.active_count() == before


class Broken:
    """A source with a bad batch."""

    def count(self, epoch):
        return 9

    def batch(self, epoch, index):
        if index == 4:
            raise DataError("reading", f"bad batch {index}")
        return Examples(torch.zeros(2, 3), torch.zeros(2, 3), 6)


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_an_error_in_a_worker_comes_in_its_turn(workers):
    before, got = threading.active_count(), []
    with pytest.raises(DataError, match="bad batch 4"):
        for loaded in Loader(Broken(), workers).iterate():
            got.append(loaded.index)
    assert got == [0, 1, 2, 3] and threading.active_count() == before


def test_an_epoch_without_a_batch_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(Broken, "count", lambda self, epoch: 0)
    with pytest.raises(DataError, match="no batch in epoch 0"):
        next(Loader(Broken()).iterate())
    with pytest.raises(IndexError):
        next(iter(sources(tmp_path))).batch(0, 10**6)
