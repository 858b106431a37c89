"""Sorted lines: a file in which lines are found where they lie, without reading all of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property

from regard.errors import DataError

BLOCK = 2048  # bytes


class SortedLines:
    """Lines in the order of their bytes, each with fields between TABs; found by bisection."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        if data and not data.endswith(b"\n"):
            raise self.broken("no end of the last line")

    @cached_property
    def blocks(self) -> tuple[list[int], list[bytes]]:
        """(Where every so many bytes a line begins, that line), and the end of all."""
        starts = [0]
        while (end := self.data.find(b"\n", starts[-1] + BLOCK)) >= 0:
            starts.append(end + 1)
        return [*starts, len(self.data)], [
            self.data[a : self.data.find(b"\n", a) + 1] for a in starts
        ]

    def place(self, want: bytes) -> int:
        """Where the first line lies that starts so; the end of all where there is none."""
        starts, lines = self.blocks
        after = bisect_left(lines, want)
        if not after:  # no block begins before it
            return 0
        end = starts[after] + len(want)
        place = self.data.find(b"\n" + want, max(0, starts[after - 1] - 1), end)
        return place + 1 if place >= 0 else len(self.data)

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
