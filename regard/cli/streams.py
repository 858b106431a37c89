"""Texts for a command: its own words, lines of files, or lines of stdin as they arrive."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from io import BufferedReader
from itertools import chain, islice
from typing import Self, cast

from regard.ambient import note
from regard.data.text_files import CHUNK, find_files, open_raw, read_chunk, unpack
from regard.errors import DataError, RegardError, UsageError, bad_byte

Line = str | RegardError
"""A line of text, or why it could not be read."""


def read_texts(
    words: Sequence[str], files: Sequence[str] | None, joined: bool = False
) -> Iterable[Line]:
    """The words as texts, or the lines of the files, else of stdin, as a stream."""
    if words and files:
        raise UsageError("reading texts", "texts and --file", "one of the two")
    if words and list(words) != ["-"]:
        return [checked(" ".join(words))] if joined else [checked(word) for word in words]
    if files and list(files) != ["-"]:
        return file_lines(files)
    stdin = cast(BufferedReader, sys.stdin.buffer)
    if sys.stdin.isatty():
        note("reading lines from the terminal, until Ctrl-D")
        if sys.stdout.isatty():
            return ArrivingLines(typed_lines(), "the terminal")
    return ArrivingLines(iter(lambda: stdin.read1(CHUNK), b""), "stdin")


def typed_lines() -> Iterator[bytes]:
    """Lines that somebody types, each after a prompt, with the keys of a shell to edit them."""
    with suppress(ImportError):  # not on every system
        import readline  # noqa: F401
    with suppress(EOFError):
        while True:
            yield f"{input('> ')}\n".encode(errors="surrogateescape")


class ArrivingLines:
    """Lines of a slow stream: one after the other, or as many as have arrived."""

    def __init__(self, chunks: Iterable[bytes], name: str) -> None:
        self.ready = deque[Line]()
        self.groups = stream_groups(chunks, name)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Line:
        while not self.ready:
            self.ready.extend(next(self.groups))
        return self.ready.popleft()

    def take(self, size: int) -> list[Line]:
        """At most `size` lines, at least one unless the stream has ended."""
        first = list(islice(self, 1))
        return first + [self.ready.popleft() for _ in range(min(size - 1, len(self.ready)))]


def read_whole(words: Sequence[str], files: Sequence[str] | None, joined: bool = True) -> str:
    """The words as one text, or all of the files, else of stdin."""
    lines = list(read_texts(words, files, joined=True))
    for line in lines:
        if isinstance(line, RegardError):
            raise line
    return "\n".join(map(str, lines))


def checked(word: str) -> str:
    """A word of the command; bytes that are not UTF-8 come as halves of surrogate pairs."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        problem = f"character {error.start} of {word[:20]!r} is not UTF-8"
        raise DataError("reading the command line", problem, "UTF-8 text") from None
    return word


def file_lines(files: Sequence[str]) -> Iterator[Line]:
    """The lines of files, compressed or not, one file after the other."""
    for file in find_files(files):
        with open_raw(file) as raw:
            read = partial(read_chunk, unpack(raw, str(file)), str(file))
            yield from chain.from_iterable(stream_groups(iter(read, b""), str(file)))


def stream_groups(chunks: Iterable[bytes], name: str) -> Iterator[list[Line]]:
    """The lines that end in each chunk, without their ends; bad ones are told apart."""
    rest: list[bytes] = []  # of the line that goes on; a list, lest a long line be copied often
    number = offset = 0
    for chunk in chunks:
        first, *lines = chunk.split(b"\n")
        rest.append(first)
        group = list[Line]()
        for line in lines:
            number += 1
            whole = b"".join(rest)
            group.append(decoded(whole, name, number, offset))
            offset += len(whole) + 1
            rest = [line]
        yield group
    if any(rest):
        yield [decoded(b"".join(rest), name, number + 1, offset)]


def decoded(line: bytes, name: str, number: int, offset: int) -> Line:
    """A line as text; the first of a file without its byte-order mark."""
    try:
        text = line.decode().removesuffix("\r")
    except UnicodeDecodeError as error:
        problem = f"{name}, line {number}, {bad_byte(error, offset)}"
        return DataError("reading a line", problem, "UTF-8 text")
    return text.removeprefix("\ufeff") if number == 1 else text
