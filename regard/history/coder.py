"""Arithmetic coding: a text in as many bits as a model needs to predict it, and back again.

A range coder (Martin 1979; Witten, Neal and Cleary 1987) in whole numbers, without carries
(Subbotin 1999): a range that has become small without agreeing on its first byte is cut off there.
A text lies in rows that are coded side by side, each into its own bytes, so that a predictor
(`predictor.py`) sees many symbols at a time.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.files import BROKEN, corrupt, parse_json
from regard.history.ngram import Floats, Ids
from regard.history.predictor import Predictor

Whole = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Told = Callable[[int], None]
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
    made: Ids = np.cumsum((p * SCALE).astype(np.int64) + 1, 1)
    return made


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
    made = np.full((rows, length + 1), -1)
    cut = longer * (length + 1)
    made[:longer] = ids[:cut].reshape(longer, length + 1)
    made[longer:, :length] = ids[cut:].reshape(rows - longer, length)
    return made.T[: length + (longer > 0)]


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
class Packed:
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


def pack(ids: Ids, predictor: Predictor, told: Told | None = None) -> Packed:
    """Code a text of symbols 0 to V − 1."""
    if len(ids) and not 0 <= ids.min() <= ids.max() < predictor.vocab:
        found = f"symbols from {ids.min()} to {ids.max()}"
        raise DataError("coding a text", found, f"0 to {predictor.vocab - 1}")
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
        if told:
            told(n * rows)
    never = np.flatnonzero(text_of(np.array(ruled_out))) if np.isinf(bits) else ()
    return Packed(ranges.finish(moved), len(ids), rows, bits, tuple(map(int, never)))


def unpack(packed: Packed, predictor: Predictor, told: Told | None = None) -> Ids:
    """The text again, with the predictor that it was coded with."""
    rows, each = packed.rows, np.arange(packed.rows)
    data, place, past = streams(packed)
    ranges, code = Ranges(rows), np.zeros(rows, np.uint64)

    def feed(some: Ids) -> None:
        """The next byte of these rows; zeros after the last."""
        found = data[np.where(place[some] < past[some], place[some], len(data) - 1)]
        code[some] = ((code[some] << BYTE) & CODE) | found
        place[some] += 1

    for _ in range(WIDTH // 8):
        feed(each)
    predictor.start(rows)
    made, longer = list[Ids](), packed.count % rows
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
        made.append(words)
        if n * rows <= packed.count:
            predictor.read(words)
        if told:
            told(n * rows)
    if longer:
        made[-1][longer:] = -1
    return text_of(np.stack(made)) if made else np.zeros(0, np.int64)


def streams(packed: Packed) -> tuple[Bytes, Ids, Ids]:
    """All bytes and a zero, where each row begins, and where it ends."""
    width = packed.data[0] if packed.data else 0
    begin = 1 + width * packed.rows
    if width not in (2, 4) or len(packed.data) < begin:
        raise DataError("decoding a text", "no lengths of rows", "what `pack` made")
    lengths = np.frombuffer(packed.data, f"<u{width}", packed.rows, 1).astype(np.int64)
    past = begin + np.cumsum(lengths)
    if past[-1] != len(packed.data):
        raise DataError("decoding a text", f"{len(packed.data)} bytes", f"{past[-1]}")
    return np.frombuffer(packed.data + b"\0", np.uint8), past - lengths, past


# Files --------------------------------------------------------------------------------------------

MAGIC = b"regard\0\1"
BLOCK = 4096  # bytes that have a checksum together, so that an error has a place


def to_bytes(packed: Packed, ids: Ids, fingerprint: str, about: Mapping[str, Any]) -> bytes:
    """A file: magic, length of the header, header in JSON, its checksum, the code, its checksums.

    `fingerprint` tells the predictor; `about` is what a reader must know to make it again.
    """
    header = {
        "count": packed.count,
        "rows": packed.rows,
        "bytes": len(packed.data),
        "bits": packed.bits,
        "check": zlib.crc32(ids.astype("<i8").tobytes()),
        "fingerprint": fingerprint,
        **about,
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    head = MAGIC + struct.pack("<I", len(text)) + text
    head += struct.pack("<I", zlib.crc32(head))
    return head + packed.data + block_checks(packed.data)


def block_checks(data: bytes) -> bytes:
    """Four bytes for each block."""
    sums = [zlib.crc32(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
    return struct.pack(f"<{len(sums)}I", *sums)


def from_bytes(data: bytes, name: str) -> tuple[Packed, dict[str, Any]]:
    """What a file holds, and its header; an error names the byte at which it breaks."""
    if not data.startswith(MAGIC):
        raise corrupt(name, 0, f"{data[:8]!r}", "a file of `regard entropy --compress`")
    if len(data) < len(MAGIC) + 4:
        raise corrupt(name, len(data), "the file ends", "the length of its header")
    begin = len(MAGIC) + 4
    end = begin + struct.unpack_from("<I", data, len(MAGIC))[0]
    if end + 4 > len(data):
        raise corrupt(name, len(data), "the file ends", f"a header up to byte {end + 4:,}")
    if zlib.crc32(data[:end]) != struct.unpack_from("<I", data, end)[0]:
        raise corrupt(name, end, "the checksum of the header differs", "a header as it was written")
    header = parse_json(data[begin:end], name, start=begin)
    start, size = end + 4, int(header["bytes"])
    whole = start + size + 4 * -(-size // BLOCK)
    if len(data) != whole:
        raise corrupt(name, min(len(data), whole), f"{len(data):,} bytes", f"{whole:,}")
    code, sums = data[start : start + size], data[start + size :]
    for at in range(0, size, BLOCK):
        if block_checks(code[at : at + BLOCK]) != sums[at // BLOCK * 4 :][:4]:
            last = start + min(at + BLOCK, size) - 1
            found = f"up to byte {last:,} the checksum differs"
            raise corrupt(name, start + at, found, "bytes as they were written")
    return Packed(code, header["count"], header["rows"], header["bits"]), header


def check_fingerprint(header: Mapping[str, Any], fingerprint: str, data: bytes, name: str) -> None:
    """Whether a predictor is the one a file was coded with."""
    if header["fingerprint"] != fingerprint:
        at = data.find(header["fingerprint"].encode())
        found = f"byte {at:,}: coded with the model {header['fingerprint']}"
        fix = f"give the model it was coded with{made_with(header)}"
        raise DataError(f"reading {name}", found, f"this model, {fingerprint}", fix)


def made_with(header: Mapping[str, Any]) -> str:
    """The path that a model had when a text was coded."""
    return f": it was {header['model']}" if header.get("model") else ""


def check_decoded(header: Mapping[str, Any], ids: Ids, name: str, start: int) -> None:
    """Whether what was decoded is what was coded."""
    if zlib.crc32(ids.astype("<i8").tobytes()) != header["check"]:
        found = f"byte {start:,}: what was decoded from here on has another checksum"
        fix = "a model's last bits may differ on another machine, or with more threads: " + BROKEN
        raise DataError(f"reading {name}", found, "the text that was coded", fix)
