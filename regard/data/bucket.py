"""Buckets: sentence pairs of like length in batches by token budget."""

from __future__ import annotations

import sys
from functools import lru_cache

import numpy as np

from regard.data.order import Counts, shuffled
from regard.data.token_store import Store
from regard.data.windows import IGNORED, Examples, check_index, mask_of, tensor
from regard.errors import DataError


class Buckets:
    """Sentence pairs of like length together: rows × longest side ≤ `budget` tokens.

    An epoch's plan is made from lengths alone: pairs are shuffled, sorted by length inside
    stretches of `look_ahead`, cut into batches, and the batches shuffled. It takes 8 bytes a pair,
    the lengths 16 more. Lengths count the end token; a source that is stored whole gets none.
    `even`, for a compiler: all sources of a batch have one length, so that no mask is needed. A
    stretch is the whole epoch then; on little data it makes more batches, smaller ones.
    `limit` leaves out pairs with a longer side; `left_out` counts them. A pair longer than the
    budget is a batch of its own.
    """

    varying = True

    def __init__(
        self,
        store: Store,
        budget: int,
        start: int,
        end: int,
        seed: int | None = 0,
        look_ahead: int = 100_000,
        limit: int | None = None,
        even: bool = False,
    ) -> None:
        self.store, self.budget, self.start, self.end = store, budget, start, end
        self.seed, self.look_ahead, self.even = seed, look_ahead, even
        self.ends = (0 if store.header.get("special") else 1), 1  # end tokens of the two sides
        sizes = store.lengths() + self.ends
        kept = np.flatnonzero(sizes.max(1, initial=0) <= (limit or sys.maxsize))
        self.left_out = len(sizes) - len(kept)
        self.kept = kept if self.left_out else np.arange(0)  # empty: all
        self.sizes = sizes[kept]
        if not len(kept):
            fault = f"{len(sizes):,} pairs in {store.path}, none with both sides ≤ {limit} tokens"
            raise DataError("making batches of pairs", fault, "at least one pair")
        self.plan = lru_cache(2)(self.make_plan)  # of this epoch, and of the next for prefetching

    def make_plan(self, epoch: int) -> tuple[Counts, Counts]:
        """(pairs in the order of the batches, where each batch begins and ends)."""
        n = len(self.sizes)
        order, edges = np.empty(n, np.int64), [0]
        for first in range(0, n, n if self.even else self.look_ahead):
            last = n if self.even else min(first + self.look_ahead, n)
            numbers = shuffled(np.arange(first, last), n, self.seed, epoch)
            source, target = self.sizes[numbers].T
            longest, more = np.maximum(source, target), source - target
            # Like a snake, up and down in turn, so that neighbours are alike in both sides.
            snake = np.where(longest % 2, more, -more), longest
            sorting = np.lexsort((target, source) if self.even else snake)
            order[first:last], longest = numbers[sorting], longest[sorting]
            kinds = source[sorting] if self.even else np.zeros(last - first)
            ends = np.searchsorted(kinds, kinds, side="right")  # of the pairs that may be together
            at = 0
            while at < last - first:
                most = longest[at : ends[at]][: max(1, self.budget // int(longest[at]))]
                fits = most * np.arange(1, len(most) + 1) <= self.budget  # true, then false
                at += max(1, int(fits.sum()))
                edges.append(first + at)
        return order, np.array(edges)

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        return len(self.plan(epoch)[1]) - 1

    def batch(self, epoch: int, index: int) -> Examples:
        """Source + end; start + target; target + end as labels.

        A causal decoder never looks ahead, so the padding at a target's end needs no mask.
        """
        order, edges = self.plan(epoch)
        check_index(index, len(edges) - 1)
        at = int(shuffled(np.array([index]), len(edges) - 1, self.seed, epoch, stream=1)[0])
        numbers = order[edges[at] : edges[at + 1]]
        width = self.sizes[numbers].max(0)
        numbers = self.kept[numbers] if self.left_out else numbers
        ends = [self.store.bounds[2 * numbers + n] for n in range(3)]
        inputs, real = self.rows(ends[0], ends[1], int(width[0]), self.ends[0])
        labels, right = self.rows(ends[1], ends[2], int(width[1]), self.ends[1])
        target = np.concatenate([np.full((len(labels), 1), self.start), labels[:, :-1]], 1)
        return Examples(
            tensor(inputs),
            tensor(np.where(right, labels, IGNORED)),
            int(right.sum()),
            tensor(np.where(right, target, self.end)),
            source_mask=mask_of(real),
        )

    def rows(
        self, starts: Counts, stops: Counts, width: int, ends: int
    ) -> tuple[Counts, np.ndarray]:
        """Ids and the end token, padded with it (else with 0) to (B, width), and what is real."""
        sizes = stops - starts
        ids = self.store.gather(starts, sizes, width, pad=self.end * ends)
        return ids, np.arange(width) < sizes[:, None] + ends
