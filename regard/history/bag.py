"""Bags of words: which target words a source has, whatever its order, by one linear classifier.

A class is a target word, or the second, third, … time it stands in a sentence, so that a sentence
is a set of classes. Of a bag of source words f with counts x

    log p(class | bag) = base[class] + Σ_f x_f (each[class] + rows[f, class]) − log Z

Naive Bayes (`bayes.py`) counts these weights, logistic regression (`logreg.py`) fits them. As many
of the likeliest classes as sources of that length have target words are the translation, each at
the place it mostly has. Nothing knows which source word a target word came from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.history.ibm1 import Floats, Ids, Rows, link_keys

RUNNERS_UP = 8  # other classes that could stand at any place


class Option(NamedTuple):
    """A word that could stand at a place; "" is none."""

    text: str
    logprob: float


Slot = list[Option]
"""What could stand at one place, the choice first."""


def unknown_slot(word: str) -> Slot:
    """A source word that was never seen is copied, or said to be unknown; nothing tells which."""
    return [Option(word, math.log(0.5)), Option("<unk>", math.log(0.5))]


@dataclass(frozen=True)
class Sparse:
    """A matrix by rows: row n has values[bounds[n]:bounds[n + 1]] in these columns, ascending."""

    bounds: Ids  # (rows + 1,)
    columns: NDArray[np.int32]  # (cells,)
    values: Floats  # (cells,)

    def row(self, n: int) -> tuple[NDArray[np.int32], Floats]:
        """Columns and values of one row."""
        own = slice(int(self.bounds[n]), int(self.bounds[n + 1]))
        return self.columns[own], self.values[own]

    def keep(self, kept: NDArray[np.bool_], values: Floats) -> Sparse:
        """Some of the cells, with other values for all of them."""
        before = np.append(0, np.cumsum(kept))
        return Sparse(before[self.bounds], self.columns[kept], values[kept])

    @property
    def row_of(self) -> Ids:
        """The row of each cell."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))


@dataclass(frozen=True)
class Classes:
    """What a bag of source words is told apart into."""

    word: Ids  # (classes,) the target word
    seen: Ids  # (classes,) in how many sentences
    place: Floats  # (classes,) where it stands on average: 0 begins a sentence, 1 ends it
    lengths: Floats  # (n,) target words of a source of 0, 1, 2, … words, on average


@dataclass(frozen=True)
class BagModel:
    """A linear classifier of bags."""

    classes: Classes
    base: Floats  # (classes,)
    each: Floats  # (classes,)
    rows: Sparse  # (source words, classes)

    def logprobs(self, ids: Ids) -> Floats:
        """log p(class | bag) of each class; the order of the ids plays no part."""
        scores: Floats = self.base + len(ids) * self.each
        for id in np.sort(ids):  # sums in one order are the same to the bit
            columns, values = self.rows.row(int(id))
            scores[columns] += values
        scores -= scores.max()
        scores -= np.log(np.exp(scores).sum())
        return scores

    def slots(self, sentence: list[str], ids: Ids, targets: list[str]) -> list[Slot]:
        """What could stand at each place; unknown source words (-1) are copied near theirs."""
        logprobs = self.logprobs(ids[ids >= 0])
        lengths = self.classes.lengths
        full = lengths[min(len(ids), len(lengths) - 1)] * max(1, len(ids) / (len(lengths) - 1))
        unknown = np.flatnonzero(ids < 0)
        size = max(round(float(full)) - len(unknown), int(len(unknown) < len(ids)))
        order = np.argsort(-logprobs, kind="stable")
        runners_up = [self.option(n, logprobs, targets) for n in order[size : size + RUNNERS_UP]]
        placed = [
            (float(self.classes.place[n]), [self.option(n, logprobs, targets), *runners_up])
            for n in order[:size]
        ]
        placed += [((n + 0.5) / len(ids), unknown_slot(sentence[n])) for n in unknown]
        return [slot for _, slot in sorted(placed, key=lambda pair: pair[0])]

    def option(self, n: np.integer, logprobs: Floats, targets: list[str]) -> Option:
        """The word of a class and how likely it is."""
        return Option(targets[self.classes.word[n]], float(logprobs[n]))


def classify(sources: Rows, targets: Rows) -> tuple[Classes, Rows]:
    """The classes of some pairs, and the target sentences as classes."""
    sizes = np.diff(targets.bounds)
    sentence = np.repeat(np.arange(len(sizes)), sizes)
    times = nth_time(sentence, targets.ids)
    words = int(targets.ids.max()) + 1
    named = times * words + targets.ids
    keys, ids, seen = np.unique(named, return_inverse=True, return_counts=True)
    places = (np.arange(len(ids)) - targets.bounds[sentence] + 0.5) / sizes[sentence]
    heard = np.diff(sources.bounds)
    met = np.bincount(heard)
    known = np.flatnonzero(met)
    mean = np.bincount(heard, sizes)[known] / met[known]
    lengths = np.interp(np.arange(len(met)), np.append(0, known), np.append(0.0, mean))
    classes = Classes(keys % words, seen, np.bincount(ids, places) / seen, lengths)
    return classes, Rows(ids, targets.bounds)


def nth_time(sentence: Ids, ids: Ids) -> Ids:
    """How often each word stood in its sentence before."""
    order = np.lexsort((ids, sentence))
    a, b = sentence[order], ids[order]
    new = np.append(True, (a[1:] != a[:-1]) | (b[1:] != b[:-1]))
    starts = np.flatnonzero(new)
    times = np.empty(len(ids), np.int64)
    times[order] = np.arange(len(ids)) - starts[np.cumsum(new) - 1]
    return times


def meetings(sources: Rows, classes: Rows, source_words: int, count: int) -> Sparse:
    """How often each source word and class stood in one pair; a word twice there counts twice."""
    found = [np.unique(keys, return_counts=True) for keys, _ in link_keys(sources, classes, count)]
    cells, place = np.unique(np.concatenate([keys for keys, _ in found]), return_inverse=True)
    values = np.bincount(place, np.concatenate([times for _, times in found]))
    bounds = np.searchsorted(cells, np.arange(source_words + 1) * count)
    return Sparse(bounds, (cells % count).astype(np.int32), values.astype(np.float64))
