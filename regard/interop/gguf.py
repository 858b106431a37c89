"""The GGUF file format, versions 2 and 3 (github.com/ggml-org/ggml, docs/gguf.md).

The file is mapped. Every count and length in it is checked against the bytes that are left before
anything is made from it, so a corrupt number costs an error message and not memory.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import DataError

MAGIC = b"GGUF"
STRING, ARRAY = 8, 9
SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # type -> struct code
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# ggml type -> name, values per block, bytes per block
TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    30: ("BF16", 1, 2),
    2: ("Q4_0", 32, 18),  # fp16 scale, 16 bytes of two 4-bit values
    3: ("Q4_1", 32, 20),  # fp16 scale, fp16 minimum, 16 bytes of two 4-bit values
    8: ("Q8_0", 32, 34),  # fp16 scale, 32 int8 values
}
OTHER_TYPES = {6: "Q5_0", 7: "Q5_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"}
CHUNK = 1 << 13  # blocks dequantised at a time: scratch memory stays near a megabyte


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in the file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    end: int


class Reader:
    """A cursor over the mapped file that never reads past its end."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        self.size = path.stat().st_size
        if self.size < 24:
            self.at = self.size
            raise self.error("the file ends inside the 24-byte header")
        with path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def take(self, code: str) -> Any:
        """Read one number by its struct code."""
        self.need(1, struct.calcsize(code), "a number")
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize(code)
        return value

    def text(self) -> str:
        """Read a string: its length in 8 bytes, then UTF-8."""
        length = self.take("Q")
        self.need(length, 1, "a string")
        self.at += length
        try:
            return self.data[self.at - length : self.at].decode()
        except UnicodeDecodeError as error:
            self.at += error.start - length
            raise self.error("a string that is not UTF-8") from error

    def value(self, kind: int) -> Any:
        """Read a metadata value; arrays of numbers stay numpy views of the file."""
        if kind == STRING:
            return self.text()
        if kind in SCALARS:
            return self.take(SCALARS[kind])
        if kind != ARRAY:
            raise self.error(f"unknown value type {kind}", "a type from 0 to 12")
        item, count = self.take("I"), self.take("Q")
        if item == STRING:
            self.need(count, 8, "an array of strings")
            return [self.text() for _ in range(count)]
        if item not in SCALARS:
            raise self.error(f"an array of type {item}", "an array of numbers or strings")
        dtype = np.dtype(SCALARS[item]).newbyteorder("<")
        self.need(count, dtype.itemsize, "an array")
        self.at += count * dtype.itemsize
        start = self.at - count * dtype.itemsize
        return np.frombuffer(self.data, dtype, count, start) if count else np.empty(0, dtype)

    def need(self, count: int, size: int, what: str) -> None:
        """Refuse `count` items of at least `size` bytes when fewer bytes are left."""
        if count * size > self.size - self.at:
            left = f"{self.size - self.at:,} bytes are left of {self.size:,}"
            raise self.error(f"{what} needs {count * size:,} bytes and {left}")

    def error(self, found: str, expected: str = "a whole GGUF file", fix: str = "") -> DataError:
        """Say where in the file reading stopped."""
        return error_at(self.path, self.at, found, expected, fix)


class GGUFFile:
    """The metadata and the tensors of a GGUF file, under its own names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        reader = Reader(path)
        if reader.data[:4] != MAGIC:
            raise reader.error(f"starts with {reader.data[:4]!r}", f"{MAGIC!r}")
        reader.at = 4
        version = reader.take("I")
        if version not in (2, 3):
            kind = "a big-endian file" if version & 0xFFFF == 0 else f"version {version}"
            raise reader.error(kind, "little-endian GGUF, version 2 or 3", "convert it again")
        tensors, pairs = reader.take("Q"), reader.take("Q")
        reader.need(pairs, 13, f"metadata of {pairs:,} pairs")
        self.metadata: dict[str, Any] = {}
        self.key_at: dict[str, int] = {}  # byte of each key, for error messages
        for _ in range(pairs):
            start, key = reader.at, reader.text()
            self.metadata[key], self.key_at[key] = reader.value(reader.take("I")), start
        self.places = _read_places(reader, tensors, self.metadata.get("general.alignment", 32))
        self._bytes = torch.frombuffer(reader.data, dtype=torch.uint8)

    def read(self, name: str) -> Tensor:
        """Read one tensor: plain types as mapped memory, quantised ones as new float32."""
        place = self.places[name]
        raw = self._bytes[place.start : place.end]
        if place.kind in PLAIN:
            return raw.view(PLAIN[place.kind]).view(place.shape)
        weight = torch.empty(place.shape, dtype=torch.float32)
        values = weight.view(-1, 32)
        blocks = raw.view(len(values), -1)
        for i in range(0, len(blocks), CHUNK):
            values[i : i + CHUNK] = dequantise(blocks[i : i + CHUNK], place.kind)
        return weight


def dequantise(blocks: Tensor, kind: str) -> Tensor:
    """Turn quantised blocks (N, bytes) into values (N, 32), as ggml's dequantize_row_* do."""
    scale = blocks[:, :2].view(torch.float16).float()  # (N, 1)
    if kind == "Q8_0":
        return blocks[:, 2:].view(torch.int8) * scale
    packed = blocks[:, -16:]  # low halves are values 0 to 15, high halves 16 to 31
    values = torch.cat([packed & 15, packed >> 4], dim=1)
    if kind == "Q4_0":
        return (values.to(torch.int8) - 8) * scale
    return values * scale + blocks[:, 2:4].view(torch.float16).float()


def error_at(path: Path, at: int, found: str, expected: str, fix: str = "") -> DataError:
    """Name the file and the byte at which something is wrong."""
    fix = fix or "the file is truncated or corrupt: copy or download it again"
    return DataError(f"reading {path}", f"byte {at:,}: {found}", expected, fix)


def _read_places(reader: Reader, count: int, align: Any) -> dict[str, Place]:
    """Read the tensor table and check that each tensor lies alone inside the file."""
    if type(align) is not int or align < 8 or align % 8:
        raise reader.error(f"general.alignment is {align!r}", "a multiple of 8")
    reader.need(count, 24, f"a table of {count:,} tensors")
    entries = [(reader.at, *_read_entry(reader, align)) for _ in range(count)]
    base = reached = -(-reader.at // align) * align
    places: dict[str, Place] = {}
    for at, name, offset, nbytes, kind, shape in sorted(entries, key=lambda entry: entry[2]):
        start, end = base + offset, base + offset + nbytes
        if start < reached or end > reader.size or name in places:
            reader.at = at
            found = f"tensor {name!r} lies at {start:,} to {end:,}"
            raise reader.error(found, f"each tensor once, between {reached:,} and {reader.size:,}")
        places[name] = Place(kind, shape, start, end)
        reached = end
    return places


def _read_entry(reader: Reader, align: int) -> tuple[str, int, int, str, tuple[int, ...]]:
    """Read one row of the tensor table: name, offset, bytes, type and shape."""
    name, dims = reader.text(), reader.take("I")
    if not 1 <= dims <= 4:
        raise reader.error(f"tensor {name!r} has {dims} dimensions", "1 to 4")
    shape = tuple(reader.take("Q") for _ in range(dims))[::-1]  # stored innermost first
    number, offset = reader.take("I"), reader.take("Q")
    if number not in TYPES:
        found = f"tensor {name!r} has type {OTHER_TYPES.get(number, number)}"
        known = ", ".join(kind for kind, _, _ in TYPES.values())
        raise reader.error(found, f"one of {known}", "take the file in another quantisation")
    kind, block, size = TYPES[number]
    if min(shape) == 0 or shape[-1] % block or offset % align:
        found = f"tensor {name!r} of type {kind} has shape {shape} and data at {offset:,}"
        raise reader.error(found, f"rows of {block}n values and data at {align}n")
    return name, offset, math.prod(shape) // block * size, kind, shape
