"""IBM model 1: which words are translations of which, learnt from sentence pairs (Brown 1993).

Each target word comes from one source word of its sentence, or from none (NULL), all equally
likely beforehand: p(target | source) = Π_j 1 / (l + 1) Σ_i t(target_j | source_i). Order plays no
part. The log-likelihood is concave, so EM (expectation, maximisation) climbs to the best t.

All in arrays. A *link* is a source word beside a target word of one pair, a *cell* one of the
distinct (source id, target id) that meet anywhere. Memory is 4 bytes a link and 30 a cell, twice
that while cells are counted: at most 2 GB for 200,000 pairs of 25 tokens. From a larger corpus take
pairs evenly spaced (`data/sample.py`), so that all its parts are seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.ambient import track

Ids = NDArray[np.int64]
Short = NDArray[np.int32]
Floats = NDArray[np.float64]
LINKS = 1 << 23  # links that are computed together


@dataclass(frozen=True)
class Ragged:
    """Sentences of ids, one after the other: a ragged array."""

    ids: Ids
    bounds: Ids
    """Sentence n is ids[bounds[n]:bounds[n + 1]]."""

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Ragged:
        """Lists as arrays."""
        bounds = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        return cls(np.fromiter(chain.from_iterable(sentences), np.int64, int(bounds[-1])), bounds)

    def after(self, id: int) -> Ragged:
        """The sentences, each with an id before it."""
        starts = self.bounds[:-1]
        return Ragged(np.insert(self.ids, starts, id), self.bounds + np.arange(len(self.bounds)))


class Links(NamedTuple):
    """The links of some pairs, those of one target word side by side."""

    cell: Short  # (n,)
    sizes: Ids  # (words,) source words beside each target word, NULL counted


class IBM1:
    """The model of some pairs; each `step` is a round of EM.

    t(target | source) is sparse: row n, from bounds[n] on, holds the `targets` that source id n
    met, ascending; the last row is NULL's, which stands in every sentence. `counts` is how often
    the one was translated by the other, by expectation.
    """

    def __init__(self, sources: Ragged, targets: Ragged, source_ids: int, target_ids: int) -> None:
        heard = sources.after(source_ids)  # NULL has the id after the last
        parts, self.links = list[Ids](), list[Links]()
        for keys, sizes in link_keys(heard, targets, target_ids):
            cells, at = np.unique(keys, return_inverse=True)
            parts.append(cells)
            self.links.append(Links(at.astype(np.int32), sizes))
        cells = np.unique(np.concatenate([*parts, np.zeros(0, np.int64)]))
        for n, some in enumerate(parts):
            place = np.searchsorted(cells, some).astype(np.int32)
            self.links[n] = self.links[n]._replace(cell=place[self.links[n].cell])
        self.bounds = np.searchsorted(cells, np.arange(source_ids + 2) * target_ids)
        self.targets = (cells % target_ids).astype(np.int32)
        sizes = np.diff(self.bounds)
        self.t: Floats = 1 / np.repeat(sizes, sizes)  # uniform
        self.counts: Floats = np.zeros_like(self.t)

    def row(self, source: int) -> tuple[Short, Floats, Floats]:
        """Target ids of one source id, their probabilities and counts."""
        own = slice(int(self.bounds[source]), int(self.bounds[source + 1]))
        return self.targets[own], self.t[own], self.counts[own]

    def step(self) -> float:
        """One round of EM; returns the log-likelihood of the pairs before it, in nats."""
        counts, total = np.zeros_like(self.t), 0.0
        for cell, sizes in self.links:
            likely = self.t[cell]
            norm = np.add.reduceat(likely, np.cumsum(sizes) - sizes)  # (words,)
            total += float(np.log(norm / sizes).sum())
            np.add.at(counts, cell, likely / np.repeat(norm, sizes))
        sums = np.add.reduceat(np.append(counts, 0.0), self.bounds[:-1])
        sizes = np.diff(self.bounds)  # an empty row repeats nothing
        sums = np.maximum(sums, np.finfo(np.float64).tiny)  # of a word that others explain wholly
        self.t, self.counts = counts / np.repeat(sums, sizes), counts
        return total


def link_keys(sources: Ragged, targets: Ragged, target_ids: int) -> Iterator[tuple[Ids, Ids]]:
    """Pairs' links as source id · target_ids + target id, with the sizes, some pairs at a time."""
    length, words = np.diff(sources.bounds), np.diff(targets.bounds)
    ends = np.cumsum(length * words)
    start, pairs = 0, len(ends)
    while start < pairs:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + LINKS, "right")))
        sizes = np.repeat(length[start:stop], words[start:stop])  # (words,)
        heard = sources.ids[runs(np.repeat(sources.bounds[start:stop], words[start:stop]), sizes)]
        said = np.repeat(targets.ids[targets.bounds[start] : targets.bounds[stop]], sizes)
        yield heard * target_ids + said, sizes
        start = stop


def runs(first: Ids, sizes: Ids) -> Ids:
    """Whole numbers from each of some on, so many of them, one run after the other."""
    before: Ids = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(first - before, sizes)


# Word by word -------------------------------------------------------------------------------------

LEAST = 1e-3  # translations that are less likely are left out


class Chosen(NamedTuple):
    """The word of a place; "" is none."""

    text: str
    logprob: float


def copy_unknown(word: str) -> Chosen:
    """A source word that was never seen is copied; nothing tells whether that is right."""
    return Chosen(word, math.log(0.5))


@dataclass(frozen=True)
class Sparse:
    """A matrix by rows: row n has values[bounds[n]:bounds[n + 1]] in these columns, ascending."""

    bounds: Ids  # (rows + 1,)
    columns: NDArray[np.int32]  # (cells,)
    values: Floats  # (cells,)

    @classmethod
    def of(cls, row: Ids, column: Ids, values: NDArray[Any], rows: int) -> Sparse:
        """A matrix of cells that are listed by rows."""
        bounds = np.searchsorted(row, np.arange(rows + 1))
        return cls(bounds, column.astype(np.int32), values.astype(np.float64))

    def row(self, n: int) -> tuple[NDArray[np.int32], Floats]:
        """Columns and values of one row."""
        own = slice(int(self.bounds[n]), int(self.bounds[n + 1]))
        return self.columns[own], self.values[own]

    def keep(self, kept: NDArray[np.bool_], values: Floats) -> Sparse:
        """Some of the cells, with other values for all of them."""
        return Sparse(np.append(0, np.cumsum(kept))[self.bounds], self.columns[kept], values[kept])

    @property
    def row_of(self) -> Ids:
        """The row of each cell."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))


@dataclass(frozen=True)
class WordByWord:
    """A dictionary with probabilities: each source word becomes its likeliest target word.

    A source word that accounts for less than one target word on average may become nothing: of its
    n occurrences, those that no target word came from.
    """

    table: Sparse
    """t(target | source)."""
    silent: Floats
    """How often each source word becomes nothing."""

    def choose(self, sentence: list[str], ids: Ids, targets: list[str]) -> list[Chosen]:
        """The word of each place; unknown source words (-1) are copied."""
        return [
            copy_unknown(word) if id < 0 else self.likeliest(int(id), targets)
            for word, id in zip(sentence, ids, strict=True)
        ]

    def likeliest(self, id: int, targets: list[str]) -> Chosen:
        """The translation of one source word."""
        columns, t = self.table.row(id)
        n, nothing = t.argmax(), float(self.silent[id])
        said = float(t[n]) * (1 - nothing)
        if nothing > said:
            return Chosen("", math.log(nothing))
        return Chosen(targets[columns[n]], math.log(said))


def train_words(
    sources: Ragged, targets: Ragged, sizes: tuple[int, int], rounds: int
) -> WordByWord:
    """Some rounds of EM and a last one without NULL; then what is likely enough is kept."""
    model = IBM1(sources, targets, *sizes)
    for _ in track(range(rounds), "expectation and maximisation"):
        model.step()
    words = sizes[0]
    cells = int(model.bounds[words])  # without NULL's
    model.t[cells:] = np.finfo(np.float64).tiny  # NULL would take half of what stands everywhere
    model.step()
    whole = Sparse(model.bounds[: words + 1], model.targets[:cells], model.t[:cells])
    row = whole.row_of
    said = np.bincount(row, model.counts[:cells], words) / np.bincount(sources.ids, minlength=words)
    silent = np.clip(1 - said, 0.0, 1 - LEAST)
    best = np.zeros(words)
    np.maximum.at(best, row, whole.values)
    kept = whole.values >= np.minimum(LEAST, best[row])
    return WordByWord(whole.keep(kept, whole.values), silent)
