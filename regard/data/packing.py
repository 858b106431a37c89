"""Packing: whole documents side by side in rows of one length, parted by document numbers.

For masked language models 15 % of the tokens are chosen, of these 80 % hidden, 10 % random, 10 %
left (Devlin 2018). Masking is dynamic (Liu 2019, RoBERTa) and counted: what happens to a token
depends on the seed, the epoch and its place in the store, so that batches of any shape, and a
resumed run, see the same masks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.order import Counts, key, shuffled, uniform
from regard.data.token_store import Store
from regard.data.windows import IGNORED, Examples, batch_rows, mask_of, tensor
from regard.errors import DataError


class Packed:
    """Documents packed best-fit in stretches of `look_ahead`; only those longer than a row split.

    Language modelling (inputs but the last, labels but the first of each document), or masked with
    a `masker`. Of a store with two sides, prompt and answer, the answers alone have labels. The
    pieces take 16 bytes a document, an epoch's plan 8 more and 8 a row.
    """

    def __init__(
        self,
        store: Store,
        length: int,
        rows: int,
        seed: int | None = 0,
        look_ahead: int = 4096,
        masker: Masker | None = None,
    ) -> None:
        self.store, self.length, self.rows = store, length, rows
        self.seed, self.look_ahead, self.masker = seed, look_ahead, masker
        self.starts, self.sizes = cut(store, length, 0 if masker else 1)
        if not len(self.sizes):
            fault = f"{store.documents:,} documents, none with {1 if masker else 2} tokens"
            raise DataError(
                f"packing {store.path}", fault, "at least one with something to predict"
            )
        self.plan = lru_cache(2)(self.make_plan)

    def make_plan(self, epoch: int) -> tuple[Counts, Counts]:
        """(pieces in the order of their rows, where each row begins and ends)."""
        n = len(self.sizes)
        order: list[Counts] = []
        counts: list[int] = []
        for first in range(0, n, self.look_ahead):
            last = min(first + self.look_ahead, n)
            pieces = shuffled(np.arange(first, last), n, self.seed, epoch)
            for row in fit(self.sizes[pieces].tolist(), self.length):
                order.append(pieces[row])
                counts.append(len(row))
        return np.concatenate(order), np.concatenate([[0], np.cumsum(counts)])

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        return -(-(len(self.plan(epoch)[1]) - 1) // self.rows)

    def batch(self, epoch: int, index: int) -> Examples:
        """Inputs, labels, documents and mask, all (B, length)."""
        order, edges = self.plan(epoch)
        numbers = batch_rows(index, self.rows, len(edges) - 1, self.seed, epoch, stream=1)
        inputs = np.zeros((len(numbers), self.length), np.int64)
        labels = np.full_like(inputs, IGNORED)
        documents = np.full_like(inputs, -1)
        for row, number in enumerate(numbers.tolist()):
            at = 0
            for document, piece in enumerate(order[edges[number] : edges[number + 1]].tolist()):
                start, size = int(self.starts[piece]), int(self.sizes[piece])
                here = slice(at, at + size)
                inputs[row, here], labels[row, here] = self.read(start, size, epoch)
                documents[row, here] = document
                at += size
        tokens = int((labels != IGNORED).sum())
        mask = mask_of(documents >= 0)
        return Examples(
            tensor(inputs), tensor(labels), tokens, mask=mask, documents=tensor(documents)
        )

    def read(self, start: int, size: int, epoch: int) -> tuple[Counts, Counts]:
        """Inputs and labels of one piece."""
        if self.masker is None:
            ids = self.store.read(start, start + size + 1)
            labels = ids[1:]
            if self.store.sides == 2:  # the prompt is read, not learnt
                side = np.searchsorted(self.store.bounds, start + 1 + np.arange(size), "right")
                labels = np.where(side % 2, IGNORED, labels)
            return ids[:-1], labels
        ids = self.store.read(start, start + size)
        return self.masker(ids, np.arange(start, start + size), epoch)


def cut(store: Store, length: int, after: int) -> tuple[Counts, Counts]:
    """(starts, sizes) of pieces; the last `after` tokens of a document are labels only."""
    bounds = store.bounds[:: store.sides]
    sizes = np.maximum(np.diff(bounds) - after, 0)
    pieces = -(-sizes // length)
    document = np.repeat(np.arange(len(sizes)), pieces)
    number = np.arange(len(document)) - np.repeat(pieces.cumsum() - pieces, pieces)
    starts = bounds[document] + number * length
    return starts, np.minimum(sizes[document] - number * length, length)


def fit(sizes: list[int], room: int) -> list[list[int]]:
    """Best fit, longest first: each item goes into the fullest row that has room for it."""
    rows: list[list[int]] = []
    open_rows: list[tuple[int, int]] = []  # (room left, row), sorted
    for item in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        at = bisect_left(open_rows, (sizes[item], -1))
        if at < len(open_rows):
            left, row = open_rows.pop(at)
        else:
            left, row = room, len(rows)
            rows.append([])
        rows[row].append(item)
        if left > sizes[item]:
            insort(open_rows, (left - sizes[item], row))
    return rows


# Masked language models ---------------------------------------------------------------------------


class Masker:
    """Chooses tokens to hide and what stands in their stead."""

    def __init__(
        self, vocab: int, mask: int, never: Iterable[int] = (), share: float = 0.15, seed: int = 0
    ) -> None:
        self.mask, self.share, self.seed = mask, share, seed
        self.never = np.unique([mask, *never])  # control tokens: neither chosen nor put in
        self.others = np.setdiff1d(np.arange(vocab), self.never)

    def __call__(self, ids: Counts, places: NDArray[Any], epoch: int) -> tuple[Counts, Counts]:
        """(ids with some hidden, labels at those) from ids and their places in the store."""
        chance, fate, other = (uniform(key(self.seed, epoch, n, 1), places) for n in range(3))
        chosen = (chance < self.share) & ~np.isin(ids, self.never)
        labels = np.where(chosen, ids, IGNORED)
        random = self.others[(other * len(self.others)).astype(np.int64)]
        put = np.where(fate < 0.8, self.mask, np.where(fate < 0.9, random, ids))
        return np.where(chosen, put, ids), labels
