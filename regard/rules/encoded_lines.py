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
class Coded:
    """Sequences over numbered symbols; shapes: N lines, T places, V symbols."""

    symbols: tuple[str, ...]
    """By name; those of many lines come first."""
    ids: Ints  # (N, T), -1 after the end
    lengths: Ints  # (N,)

    @cached_property
    def counts(self) -> Ints:
        """How often each symbol occurs in each line."""  # (V, N)
        made = np.zeros((len(self.symbols) + 1, len(self.ids)), np.int32)
        rows = np.repeat(np.arange(len(self.ids)), self.ids.shape[1])
        np.add.at(made, (self.ids.ravel(), rows), 1)  # padding, -1, falls on the last row
        return made[:-1]

    @cached_property
    def first(self) -> Ints:
        """The first place of each symbol; T where it is not."""  # (V, N)
        made = np.full((len(self.symbols) + 1, len(self.ids)), self.ids.shape[1], np.int32)
        places = np.arange(self.ids.shape[1] - 1, -1, -1, dtype=np.int32)
        made[self.ids[:, ::-1], np.arange(len(self.ids))[:, None]] = places  # what is last stays
        return made[:-1]

    @cached_property
    def last(self) -> Ints:
        """The last place of each symbol; -1 where it is not."""  # (V, N)
        made = np.full((len(self.symbols) + 1, len(self.ids)), -1, np.int32)
        places = np.arange(self.ids.shape[1], dtype=np.int32)
        made[self.ids, np.arange(len(self.ids))[:, None]] = places
        return made[:-1]

    def onehot(self, size: int) -> Bools:
        """Where each of the first `size` symbols stands."""  # (size, N, T)
        made: Bools = self.ids[None] == np.arange(size, dtype=np.int32)[:, None, None]
        return made

    def next_place(self, size: int) -> Ints:
        """One past the next place of a symbol from t on; T + 1 where there is none."""
        lines, width = self.ids.shape  # (size, N, T + 2)
        made = np.full((size, lines, width + 2), width + 1, np.int32)
        known, places = np.nonzero((self.ids >= 0) & (self.ids < size))
        made[self.ids[known, places], known, places] = places + 1
        np.minimum.accumulate(made[:, :, ::-1], 2, out=made[:, :, ::-1])
        return made

    def from_end(self, place: int) -> Ints:
        """The symbol at a place, 1 the first, -1 the last; -2 where a line is too short."""  # (N,)
        at = np.full(len(self.ids), place - 1) if place > 0 else self.lengths + place
        known = self.lengths >= abs(place)
        found = self.ids[np.arange(len(self.ids)), np.where(known, at, 0)]
        made: Ints = np.where(known, found, -2).astype(np.int32)
        return made

    def only(self, chosen: Any) -> Coded:
        """Some of the lines."""
        return Coded(self.symbols, self.ids[chosen], self.lengths[chosen])

    def reorder(self, chosen: Sequence[int]) -> Coded:
        """The same lines with these symbols first."""
        rest = [n for n in range(len(self.symbols)) if n not in set(chosen)]
        order = [*chosen, *rest]
        place = np.full(len(order) + 1, -1, np.int32)
        place[order] = np.arange(len(order))
        return Coded(tuple(self.symbols[n] for n in order), place[self.ids], self.lengths)


def encode(lines: Sequence[Sequence[str]]) -> Coded:
    """Number the symbols of some lines, those of most lines first."""
    held = Counter(symbol for line in lines for symbol in set(line))
    symbols = tuple(sorted(held, key=lambda symbol: (-held[symbol], symbol)))
    return encode_with(lines, symbols)


def encode_with(lines: Sequence[Sequence[str]], symbols: Sequence[str]) -> Coded:
    """Number lines whose symbols are all known."""
    number = {symbol: n for n, symbol in enumerate(symbols)}
    width = max((len(line) for line in lines), default=0)
    ids = np.full((len(lines), max(width, 1)), -1, np.int32)
    for row, line in enumerate(lines):
        ids[row, : len(line)] = [number[symbol] for symbol in line]
    return Coded(tuple(symbols), ids, np.array([len(line) for line in lines], np.int32))
