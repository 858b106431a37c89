"""Sequences as numbers: a padded matrix, and where each symbol occurs first, last, how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class EncodedLines:
    """Sequences over numbered symbols; shapes: N lines, T places, V symbols."""

    symbols: tuple[str, ...]
    """By name; those of many lines come first."""
    ids: Ints  # (N, T), -1 after the end
    lengths: Ints  # (N,)

    @cached_property
    def counts(self) -> Ints:
        """How often each symbol occurs in each line."""  # (V, N)
        counts = np.zeros((len(self.symbols) + 1, len(self.ids)), np.int32)
        rows = np.repeat(np.arange(len(self.ids)), self.ids.shape[1])
        np.add.at(counts, (self.ids.ravel(), rows), 1)  # padding, -1, falls on the last row
        return counts[:-1]

    @cached_property
    def first(self) -> Ints:
        """The first place of each symbol; T where it is not."""  # (V, N)
        first: Ints = self.ids.shape[1] - 1 - self.last_in(self.ids[:, ::-1])
        return first

    @cached_property
    def last(self) -> Ints:
        """The last place of each symbol; -1 where it is not."""  # (V, N)
        return self.last_in(self.ids)

    def last_in(self, ids: Ints) -> Ints:
        """The last place of each symbol in some lines; -1 where it is not."""  # (V, N)
        last = np.full((len(self.symbols) + 1, len(ids)), -1, np.int32)
        last[ids, np.arange(len(ids))[:, None]] = np.arange(ids.shape[1], dtype=np.int32)
        return last[:-1]  # padding, -1, falls on the last row

    def onehot(self, size: int) -> Bools:
        """Where each of the first `size` symbols stands."""  # (size, N, T)
        stands: Bools = self.ids[None] == np.arange(size, dtype=np.int32)[:, None, None]
        return stands

    def next_place(self, size: int) -> Ints:
        """One past the next place of a symbol from t on; T + 1 where there is none."""
        lines, width = self.ids.shape  # (size, N, T + 2)
        following = np.full((size, lines, width + 2), width + 1, np.int32)
        known, places = np.nonzero((self.ids >= 0) & (self.ids < size))
        following[self.ids[known, places], known, places] = places + 1
        np.minimum.accumulate(following[:, :, ::-1], 2, out=following[:, :, ::-1])
        return following

    def from_end(self, place: int) -> Ints:
        """The symbol at a place, 1 the first, -1 the last; -2 where a line is too short."""  # (N,)
        at = np.full(len(self.ids), place - 1) if place > 0 else self.lengths + place
        known = self.lengths >= abs(place)
        there = self.ids[np.arange(len(self.ids)), np.where(known, at, 0)]
        symbols: Ints = np.where(known, there, -2).astype(np.int32)
        return symbols

    def only(self, chosen: Any) -> EncodedLines:
        """Some of the lines."""
        return EncodedLines(self.symbols, self.ids[chosen], self.lengths[chosen])

    def reorder(self, chosen: Sequence[int]) -> EncodedLines:
        """These lines with some symbols numbered first."""
        order = list(dict.fromkeys([*chosen, *range(len(self.symbols))]))
        place = np.full(len(order) + 1, -1, np.int32)
        place[order] = np.arange(len(order))
        return EncodedLines(tuple(self.symbols[n] for n in order), place[self.ids], self.lengths)


def encode(lines: Sequence[Sequence[str]], symbols: Sequence[str] = ()) -> EncodedLines:
    """Number the symbols of some lines: in this order, or those of most lines first."""
    held = Counter(symbol for line in lines for symbol in set(line))
    symbols = symbols or sorted(held, key=lambda symbol: (-held[symbol], symbol))
    number = {symbol: n for n, symbol in enumerate(symbols)}
    ids = np.full((len(lines), max([1, *map(len, lines)])), -1, np.int32)
    for row, line in enumerate(lines):
        ids[row, : len(line)] = [number[symbol] for symbol in line]
    return EncodedLines(tuple(symbols), ids, np.array([len(line) for line in lines], np.int32))
