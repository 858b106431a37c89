"""Lines as they arrive, from the command, files or stdin; one that is not UTF-8 is told apart."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedReader
from typing import NamedTuple, cast

from regard.cli.show import Show
from regard.cli.texts import groups
from regard.data.text_files import CHUNK, find_files, open_raw, read_chunk, unpack
from regard.errors import DataError, UsageError, bad_byte

FAULTS = 10  # lines that could not be done and are named one by one
Read = Callable[[], bytes]
"""The next bytes that are there, none at the end."""


class Line(NamedTuple):
    """One line, or where and why it could not be read."""

    text: str
    fault: str = ""

    def read(self) -> str:
        """The text, or the fault raised."""
        if self.fault:
            raise DataError("reading a line", self.fault, "UTF-8 text")
        return self.text


class Faults:
    """Lines that a verb could not do: told as they come, the others are done, exit 3 at the end."""

    def __init__(self, show: Show) -> None:
        self.show, self.count = show, 0

    def tell(self, fault: str) -> None:
        """One more."""
        self.count += 1
        if self.count <= FAULTS:
            self.show.error(fault)

    def finish(self) -> int:
        """The exit code."""
        if self.count > FAULTS:
            self.show.error(f"{self.count:,} lines could not be done; the first {FAULTS} are named")
        return DataError.exit_code if self.count else 0


def numbered_lines(given: Sequence[str] | None) -> Iterator[tuple[int, Line]]:
    """Texts of the command, or lines of stdin as they come, from 1."""
    number = 0
    for group in line_groups(given, None, 1):
        for line in group:
            number += 1
            yield number, line


def line_groups(
    given: Sequence[str] | None, files: Sequence[str] | None, size: int
) -> Iterator[list[Line]]:
    """At most `size` lines at once, as many as are there: a slow pipe gives one after the other."""
    if given and files:
        raise UsageError("reading texts", "texts and --file", "one of the two")
    if given:
        texts = [argument(text, n) for n, text in enumerate(given, 1)]
        return groups(texts, size)
    if files and list(files) != ["-"]:
        return file_groups(files, size)
    stdin = cast(BufferedReader, sys.stdin.buffer)
    return chunk_groups(lambda: stdin.read1(CHUNK), "stdin", size)


def argument(text: str, number: int) -> Line:
    """A text of the command; bytes that are not UTF-8 come as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return Line("", f"text {number}: not UTF-8")
    return Line(text)


def file_groups(files: Sequence[str], size: int) -> Iterator[list[Line]]:
    """Lines of files, compressed or not."""
    for file in find_files(files):
        with open_raw(file) as raw:
            read = partial(read_chunk, unpack(raw, str(file)), str(file))
            yield from chunk_groups(read, str(file), size)


def chunk_groups(read: Read, name: str, size: int) -> Iterator[list[Line]]:
    """The lines of each chunk, in groups."""
    number, offset = 0, 0  # lines and bytes before
    rest = list[bytes]()  # of the line that goes on, lest a long one be copied often
    while chunk := read():
        first, *more = chunk.split(b"\n")
        rest.append(first)
        if more:
            whole = [b"".join(rest), *more[:-1]]
            rest = [more[-1]]
            yield from groups(decoded(whole, name, number, offset), size)
            number, offset = number + len(whole), offset + sum(map(len, whole)) + len(whole)
    if any(rest):
        yield list(decoded([b"".join(rest)], name, number, offset))


def decoded(lines: Sequence[bytes], name: str, before: int, offset: int) -> Iterator[Line]:
    """Lines of text without their ends; the first of a file without its byte-order mark."""
    for number, line in enumerate(lines, before + 1):
        try:
            text = line.decode().removesuffix("\r")
            yield Line(text.removeprefix("\ufeff") if number == 1 else text)
        except UnicodeDecodeError as error:
            yield Line("", f"{name}, line {number}, {bad_byte(error, offset)}")
        offset += len(line) + 1
