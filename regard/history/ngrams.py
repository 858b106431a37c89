"""n-gram models: the next word from the n − 1 before it, by counting (Shannon 1948).

All in arrays. The n-grams of one length are a *level*, sorted by their first n − 1 words (their
*context*, a number in the level below) and their last one. So a text is looked up level by level:
the n-gram that ends at a place is found from the (n − 1)-gram that ended one place before, for all
places at once.

A probability stands with the longest n-gram that was seen; each longer context that was seen, but
not with this word, gives its share for unseen words, `backoff`. The ways of smoothing
(`smoothing.py`) only fill in these two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """The n-grams of one length that a text holds, sorted by context, then by word."""

    context: Ids
    """(N,) the first words of each, a number in the level below."""
    word: Ids
    """(N,) its last."""
    suffix: Ids
    """(N,) the last words of each, a number in the level below."""
    count: Ids
    """(N,) how often it was seen."""

    def __len__(self) -> int:
        return len(self.word)


@dataclass(frozen=True)
class Level:
    """The n-grams of one length with what a model knows of them."""

    context: Ids
    word: Ids
    logprob: Floats
    """(N,) log p(word | context); NaN where probabilities of this length are not kept."""
    backoff: Floats
    """(N,) as a context: log of the factor on the shorter context, for a word unseen after it."""
    count: Ids
    """(N,) how often it was seen; zeros where that is not known."""

    def __len__(self) -> int:
        return len(self.word)


@dataclass(frozen=True)
class Ngrams:
    """A model over ids 0 to `vocab` − 1; the first level holds every id."""

    vocab: int
    levels: tuple[Level, ...]
    start: int | None = None
    """Id that stands before each sentence and is never predicted."""
    base: float = -np.inf
    """Log-probability of a word without any n-gram."""

    @property
    def order(self) -> int:
        """Words that a probability looks at, the predicted one counted."""
        return len(self.levels)

    @property
    def sizes(self) -> list[int]:
        """How many n-grams of each length there are."""
        return [len(level) for level in self.levels]

    @cached_property
    def keys(self) -> list[Ids]:
        """Of each level context · vocab + word, which ascends, and at last the largest number."""
        most = np.iinfo(np.int64).max
        return [np.append(level.context * self.vocab + level.word, most) for level in self.levels]

    def find(self, level: int, context: Ids, word: Ids) -> Ids:
        """Numbers (T,) of n-grams in a level; −1 where unseen, or where the context is −1."""
        keys, wanted = self.keys[level], context * self.vocab + word
        place = np.searchsorted(keys, wanted)
        return np.where((context >= 0) & (keys[place] == wanted), place, -1)

    def logprobs(self, ids: Sequence[int] | Ids) -> Floats:
        """log p of each id (T,) given those before it; NaN at the start of a sentence."""
        words = np.asarray(ids, np.int64)
        fresh = words == self.start if self.start is not None else np.zeros(len(words), np.bool_)
        first = self.levels[0].logprob[words]
        total = np.where(np.isnan(first), self.base, first)
        ends = words  # the n-gram of the length before that ends at each place
        for n in range(1, self.order):
            context = np.concatenate(([-1], ends[:-1]))[: len(words)]
            context[fresh] = -1
            ends = self.find(n, context, words)
            total += np.where(context >= 0, self.levels[n - 1].backoff[context], 0.0)
            seen = np.flatnonzero(ends >= 0)
            own = self.levels[n].logprob[ends[seen]]
            total[seen] = np.where(np.isnan(own), total[seen], own)
        total[fresh] = np.nan
        return total

    @cached_property
    def suffixes(self) -> list[Ids]:
        """Of each n-gram without its first word, the number in the level below; −1 for none."""
        numbers = [np.zeros(len(self.levels[0]), np.int64)]
        for n, level in enumerate(self.levels[1:], 1):
            shorter = numbers[-1][level.context] if n > 1 else np.zeros(len(level), np.int64)
            numbers.append(self.find(n - 1, shorter, level.word))
        return numbers


def count_ngrams(ids: Ids, vocab: int, order: int, start: int | None = None) -> list[Counts]:
    """The n-grams of a text up to a length, none over the beginning of a sentence (`start`)."""
    nothing, all_ids = np.zeros(vocab, np.int64), np.arange(vocab)
    levels = [Counts(nothing, all_ids, nothing, np.bincount(ids, minlength=vocab))]
    fresh = ids == start if start is not None else np.zeros(len(ids), np.bool_)
    ends = ids
    for _ in range(1, order):
        before = np.concatenate(([-1], ends[:-1]))
        before[fresh] = -1
        at = np.flatnonzero(before >= 0)
        keys, first, own, count = np.unique(
            before[at] * vocab + ids[at], return_index=True, return_inverse=True, return_counts=True
        )
        suffix = ends[at[first]]
        ends = np.full(len(ids), -1)
        ends[at] = own
        levels.append(Counts(keys // vocab, keys % vocab, suffix, count))
    return levels
