"""Sorted lines: a file in which lines are found where they lie, without reading all of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

from regard.errors import DataError


class SortedLines:
    """Lines in the order of their bytes, each with fields between TABs; found by bisection."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self.place = lru_cache(1 << 16)(self._place)
        if data and not data.endswith(b"\n"):
            raise self.broken("no end of the last line")

    def _place(self, want: bytes) -> int:
        """Where the first line lies that starts so, or the first after it."""
        data = self.data

        def begins(at: int) -> bytes:  # how the line begins that has this byte
            start = data.rfind(b"\n", 0, at) + 1
            return data[start : start + len(want)]

        return bisect_left(range(len(data)), want, key=begins)

    def starting(self, prefix: str) -> Iterator[list[str]]:
        """The fields of each line that starts so."""
        want = prefix.encode()
        start = self.place(want)
        while start < len(self.data) and self.data.startswith(want, start):
            end = self.data.index(b"\n", start)
            try:
                yield self.data[start:end].decode().split("\t")
            except UnicodeDecodeError as error:
                raise self.broken(f"{self.data[start:end]!r}: {error}") from None
            start = end + 1

    def __contains__(self, line: object) -> bool:
        want = f"{line}\n".encode()
        return self.data.startswith(want, self.place(want))

    def broken(self, wrong: str) -> DataError:
        """What is wrong with the file."""
        expected = "lines of UTF-8 in the order of their bytes, as regard writes them"
        return DataError(f"reading {self.name}", wrong, expected)


def sort_lines(lines: Iterable[str]) -> bytes:
    """The content of such a file."""
    return b"".join(sorted(f"{line}\n".encode() for line in lines))
