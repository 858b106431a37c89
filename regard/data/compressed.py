"""Compressed files as streams of bytes: gzip, xz and zstd, told by how they begin."""

from __future__ import annotations

import gzip
import io
import lzma
from typing import Any, Protocol

from regard.errors import RegardError

MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""How compressed files begin; no UTF-8 text begins so, hence names need not be trusted."""


class Stream(Protocol):
    """What can be read in chunks."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, none at the end."""


def unpack(raw: io.BufferedReader, name: str) -> Stream:
    """The bytes of the text, unpacked where they are compressed."""
    start = raw.peek(6)
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
    if kind == "zstd":
        return Zstd(raw, name)
    if kind is None:
        return raw
    return gzip.open(raw) if kind == "gzip" else lzma.open(raw)


class Zstd:
    """A .zst file through the package zstandard; one that is cut short is an error, as in gzip."""

    def __init__(self, raw: io.BufferedReader, name: str) -> None:
        try:
            import zstandard
        except ImportError as error:
            found, fix = "zstandard is not installed", "pip install 'regard[zst]'"
            raise RegardError(f"reading {name}", found, "the zst extra", fix) from error
        self.raw, self.make = raw, zstandard.ZstdDecompressor().decompressobj
        self.frame: Any = None  # a file may hold several frames, one after the other
        self.left = b""

    def read(self, size: int) -> bytes:
        """The next bytes; few are unpacked at once, since 4 KiB may hold a hundred MiB."""
        while True:
            data, self.left = self.left or self.raw.read(4096), b""
            if not data:
                if self.frame is not None:
                    raise EOFError("the file ends inside a frame")
                return b""
            self.frame = self.frame or self.make()
            made: bytes = self.frame.decompress(data)
            if self.frame.eof:
                self.left, self.frame = self.frame.unused_data, None
            if made:
                return made
