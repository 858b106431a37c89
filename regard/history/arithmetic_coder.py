"""Arithmetic coding: a text in as many bits as a model needs to predict it, and back again.

A range coder (Martin 1979; Witten, Neal and Cleary 1987) in whole numbers, without carries
(Subbotin 1999): a range that has become small without agreeing on its first byte is cut off there.
A text lies in rows that are coded side by side, each into its own bytes, so that a predictor
(`predictor.py`) sees many symbols at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.history.ngrams import Floats, Ids

if TYPE_CHECKING:
    from regard.history.predictors import Predictor

Whole = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Tell = Callable[[int], None]
"""Called with the symbols done so far."""

WIDTH = 56  # bits of a code; with a byte more it still fits in 64
CODE = np.uint64((1 << WIDTH) - 1)
TOP = np.uint64(1 << WIDTH - 8)  # below it two codes have the same first byte
LEAST = np.uint64(1 << 40)  # a range is never smaller, so that every symbol has a share
SCALE = 1 << 28  # what probabilities are counted in
BYTE = np.uint64(8)

ROWS, ROW = 256, 4096  # rows at most, and symbols of each at least
ENTRIES = 1 << 22  # numbers in one (N, V) array of probabilities at most


def frequencies(p: Floats) -> Ids:
    """Probabilities (N, V) as cumulative whole numbers (N, V); every symbol has 1 or more."""
    if not np.isfinite(p).all() or p.min() < 0:
        raise DataError("coding a text", "probabilities that are no numbers", "a sound model")
    cumulative: Ids = np.cumsum((p * SCALE).astype(np.int64) + 1, 1)
    return cumulative


def share_of(upto: Ids, words: Ids) -> tuple[Ids, Ids, Ids]:
    """Of cumulative frequencies (N, V): before a word (N,), its own, and all."""
    each = np.arange(len(words))
    first = np.where(words > 0, upto[each, np.maximum(words, 1) - 1], 0)
    return first, upto[each, words] - first, upto[:, -1]


def rows_for(count: int, vocab: int) -> int:
    """How many rows a text is coded in: each costs three bytes or so, and a first context."""
    return max(1, min(ROWS, count // ROW, ENTRIES // max(1, vocab)))


def rows_of(ids: Ids, rows: int) -> Ids:
    """A text as columns (L, N): row after row, the first ones a symbol longer; −1 fills up."""
    length, longer = divmod(len(ids), rows)
    columns = np.full((rows, length + 1), -1)
    cut = longer * (length + 1)
    columns[:longer] = ids[:cut].reshape(longer, length + 1)
    columns[longer:, :length] = ids[cut:].reshape(rows - longer, length)
    return columns.T[: length + (longer > 0)]


def text_of(columns: Ids) -> Ids:
    """The text of columns (L, N)."""
    flat = columns.T.reshape(-1)
    return flat[flat >= 0]


class Ranges:
    """The part of all codes that is left for each row: from `low`, `size` of them."""

    def __init__(self, rows: int) -> None:
        self.low = np.zeros(rows, np.uint64)
        self.size = np.full(rows, CODE + np.uint64(1))

    def narrow(self, first: Ids, own: Ids, total: Ids) -> None:
        """To the share of a symbol: `own` of `total` after the first ones."""
        share = self.size // total.astype(np.uint64)
        self.low += share * first.astype(np.uint64)
        self.size = share * own.astype(np.uint64)

    def moving(self) -> Ids:
        """Rows whose first byte is known, ranges that are too small cut so that it is."""
        same = (self.low ^ (self.low + self.size - np.uint64(1))) < TOP
        small = ~same & (self.size < LEAST)
        self.size = np.where(small, LEAST - (self.low & (LEAST - np.uint64(1))), self.size)
        return np.flatnonzero(same | small)

    def shift(self, rows: Ids) -> Bytes:
        """Take the first bytes away."""
        out = (self.low[rows] >> np.uint64(WIDTH - 8)).astype(np.uint8)
        self.low[rows] = (self.low[rows] << BYTE) & CODE
        self.size[rows] <<= BYTE
        return out

    def finish(self, moved: list[tuple[Ids, Bytes]]) -> bytes:
        """The bytes of each row in turn, after their lengths: those that moved, and a short end."""
        ends = [
            shortest(int(low), int(size)) for low, size in zip(self.low, self.size, strict=True)
        ]
        of = np.concatenate([np.repeat(np.arange(len(ends)), [len(end) for end in ends])])
        row = np.concatenate([*(rows for rows, _ in moved), of])
        out = np.concatenate(
            [*(sent for _, sent in moved), np.frombuffer(b"".join(ends), np.uint8)]
        )
        lengths = np.bincount(row, minlength=len(ends))
        width = 2 if lengths.max() < 1 << 16 else 4
        table = lengths.astype(f"<u{width}").tobytes()
        return bytes([width]) + table + out[np.argsort(row, kind="stable")].tobytes()


def shortest(low: int, size: int) -> bytes:
    """The fewest bytes that begin a code of a range, zeros after them."""
    for count in range(WIDTH // 8):
        step = 1 << WIDTH - 8 * count
        code = -(-low // step) * step
        if code < low + size:
            break
    else:
        code = low
    return code.to_bytes(WIDTH // 8, "big").rstrip(b"\0")


@dataclass(frozen=True)
class ArithmeticCode:
    """A text in bytes."""

    data: bytes
    """The width of a length, the lengths of the rows, then the bytes of each."""
    count: int
    """Symbols of the text."""
    rows: int
    bits: float
    """What the predictor's probabilities ask for; infinite where they rule a symbol out."""
    never: tuple[int, ...] = ()
    """Places of the symbols that are ruled out; the coder writes them even so."""


def pack(ids: Ids, predictor: Predictor, tell: Tell | None = None) -> ArithmeticCode:
    """Code a text of symbols 0 to V − 1."""
    rows = rows_for(len(ids), predictor.vocab)
    ranges, each, bits = Ranges(rows), np.arange(rows), 0.0
    moved: list[tuple[Ids, Bytes]] = []
    predictor.start(rows)
    ruled_out = list[Ids]()  # (N,) of each step: 1 or 0, −1 where a row has ended
    for n, words in enumerate(rows_of(ids, rows), 1):
        p = predictor.predict()
        upto = frequencies(p)
        real = words >= 0
        ranges.narrow(*share_of(upto, np.maximum(words, 0)))  # of a row that has ended any symbol
        while len(known := ranges.moving()):
            moved.append((known, ranges.shift(known)))
        own = np.where(real, p[each, words], 1.0)
        ruled_out.append(np.where(real, own == 0, -1))
        with np.errstate(divide="ignore"):
            bits -= float(np.log2(own).sum())
        if real.all():
            predictor.read(words)
        if tell:
            tell(n * rows)
    never = np.flatnonzero(text_of(np.array(ruled_out))) if np.isinf(bits) else ()
    return ArithmeticCode(ranges.finish(moved), len(ids), rows, bits, tuple(map(int, never)))


def unpack(packed: ArithmeticCode, predictor: Predictor, tell: Tell | None = None) -> Ids:
    """The text again, with the predictor that it was coded with."""
    rows, each = packed.rows, np.arange(packed.rows)
    data, place, past = streams(packed)
    ranges, code = Ranges(rows), np.zeros(rows, np.uint64)

    def feed(some: Ids) -> None:
        """The next byte of these rows; zeros after the last."""
        next_bytes = data[np.where(place[some] < past[some], place[some], len(data) - 1)]
        code[some] = ((code[some] << BYTE) & CODE) | next_bytes
        place[some] += 1

    for _ in range(WIDTH // 8):
        feed(each)
    predictor.start(rows)
    columns, longer = list[Ids](), packed.count % rows
    for n in range(1, -(-packed.count // rows) + 1):
        upto = frequencies(predictor.predict())
        total = upto[:, -1]
        share = ranges.size // total.astype(np.uint64)
        target = np.minimum((code - ranges.low) // share, total.astype(np.uint64) - np.uint64(1))
        words = (upto <= target.astype(np.int64)[:, None]).sum(1)
        ranges.narrow(*share_of(upto, words))
        while len(known := ranges.moving()):
            ranges.shift(known)
            feed(known)
        columns.append(words)
        if n * rows <= packed.count:
            predictor.read(words)
        if tell:
            tell(n * rows)
    if longer:
        columns[-1][longer:] = -1
    return text_of(np.stack(columns)) if columns else np.zeros(0, np.int64)


def streams(packed: ArithmeticCode) -> tuple[Bytes, Ids, Ids]:
    """All bytes and a zero, where each row begins, and where it ends."""
    width = packed.data[0]
    lengths = np.frombuffer(packed.data, f"<u{width}", packed.rows, 1).astype(np.int64)
    past = 1 + width * packed.rows + np.cumsum(lengths)
    return np.frombuffer(packed.data + b"\0", np.uint8), past - lengths, past
