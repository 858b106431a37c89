"""Text files in pieces or lines: plain, .gz or .xz, one file, several, or whole folders."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from regard.errors import DataError, bad_byte

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Item = TypeVar("Item")
CHUNK = 1 << 20  # bytes read at once, and about the characters of a piece


def read_pieces(paths: Paths) -> Iterator[str]:
    """All text of the files in pieces of about a million characters, in bounded memory.

    A piece ends where a word ends and blanks begin, wherever there is such a place, so that
    cutting it into tokens gives what the whole text would give. A byte-order mark is dropped.
    """
    for texts in read_files(paths):
        yield from cut_at_blanks(texts)


def read_parts(paths: Paths) -> Iterator[str]:
    """Lines with their line feeds, in bounded memory: a very long line comes in several parts."""
    for texts in read_files(paths):
        yield from split_lines(texts)


def split_lines(texts: Iterable[str]) -> Iterator[str]:
    """The lines of one text that comes in chunks, with their line feeds, long ones in parts."""
    rest = ""
    for text in texts:
        *lines, rest = (rest + text).split("\n")
        yield from (line + "\n" for line in lines)
        if len(rest) > 4 * CHUNK:
            at = last_cut(rest) or len(rest)
            yield rest[:at]
            rest = rest[at:]
    if rest:
        yield rest


def read_lines(paths: Paths) -> Iterator[str]:
    """The lines without their ends: a line feed, or a carriage return and a line feed."""
    for texts in read_files(paths):
        yield from join_lines(texts)


def join_lines(texts: Iterable[str]) -> Iterator[str]:
    """The lines of one text that comes in chunks, without their ends."""
    rest: list[str] = []  # of the line that goes on; a list, lest a long line be copied often
    for text in texts:
        first, *lines = text.split("\n")
        rest.append(first)
        for line in lines:
            yield "".join(rest).removesuffix("\r")
            rest = [line]
    if any(rest):
        yield "".join(rest).removesuffix("\r")


def find_files(paths: Paths) -> list[Path]:
    """The files themselves and those under the folders, in sorted order, hidden ones left out."""
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    found: list[Path] = []
    for path in map(Path, several):
        if not path.exists():
            raise DataError(f"reading {path}", "no such file or folder", "one that is there")
        if not path.is_dir():
            found.append(path)
            continue
        inside = [file for file in path.rglob("*") if file.is_file()]
        shown = [f for f in inside if not any(p[0] == "." for p in f.relative_to(path).parts)]
        if not shown:
            raise DataError(f"reading {path}", "a folder without files", "files in it")
        found += sorted(shown, key=lambda file: file.parts)
    return found


def read_files(paths: Paths) -> Iterator[Iterator[str]]:
    """The text of each file in turn, in chunks."""
    if paths in ("-", ["-"]):
        yield decode(sys.stdin.buffer, "stdin")
        return
    for file in find_files(paths):
        with open_raw(file) as raw:
            yield decode(unpack(raw, str(file)), str(file))


def open_raw(file: Path) -> io.BufferedReader:
    """The bytes of a file as they lie on the disk."""
    try:
        return file.open("rb")
    except OSError as error:
        raise DataError(f"reading {file}", str(error.strerror), "a text file") from error


def read_chunk(stream: ByteStream, name: str) -> bytes:
    """The next bytes of a stream, none at the end."""
    try:
        return stream.read(CHUNK)
    except Exception as error:  # gzip and lzma have no class in common
        fix = "fetch the file anew; it may be cut short"
        raise DataError(f"reading {name}", str(error), "a whole file", fix) from error


def decode(stream: ByteStream, name: str) -> Iterator[str]:
    """The text of a stream in chunks, or an error that names the first byte that is not UTF-8."""
    offset, line, rest, chunk = 0, 1, b"", b" "
    while chunk:
        chunk = read_chunk(stream, name)
        data = rest + chunk
        try:
            text, used = codecs.utf_8_decode(data, "strict", not chunk)
        except UnicodeDecodeError as error:
            line += data.count(b"\n", 0, error.start)
            fault = f"line {line}, {bad_byte(error, offset)}"
            code = "utf-16" if not offset and data[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
            fix = f"convert it, as in: iconv -f {code} -t utf-8 old.txt > new.txt"
            raise DataError(f"reading {name}", fault, "UTF-8 text", fix) from None
        if text:
            yield text.removeprefix("\ufeff") if offset == 0 else text
        offset, line, rest = offset + used, line + data.count(b"\n", 0, used), data[used:]


def cut_at_blanks(texts: Iterable[str]) -> Iterator[str]:
    """A text in pieces that end at blanks, or anywhere after four chunks without a good place."""
    rest = ""
    for text in texts:
        rest += text
        at = last_cut(rest) or (len(rest) if len(rest) > 4 * CHUNK else 0)
        if at:
            yield rest[:at]
            rest = rest[at:]
    if rest:
        yield rest


def last_cut(text: str) -> int:
    """Where the last line feed, else the last space, stands right after a visible character."""
    for blank in ("\n", " "):
        at = text.rfind(blank)
        while at > 0 and text[at - 1].isspace():
            at = text.rfind(blank, 0, at)
        if at > 0:
            return at
    return 0


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Texts or pairs of texts in lists of about CHUNK characters, to be cut into tokens at once."""
    held: list[Item] = []
    size = 0
    for item in items:
        held.append(item)
        size += 64 + (sum(map(len, item)) if isinstance(item, tuple) else len(str(item)))
        if size >= CHUNK:
            yield held
            held, size = [], 0
    if held:
        yield held


@contextmanager
def naming(files: Sequence[object], doing: str) -> Iterator[None]:
    """Errors in what was read say of which files; those of one file have said so already."""
    try:
        yield
    except DataError as error:
        if error.doing != doing:
            raise
        read = f"{doing} ({', '.join(map(str, files))})"
        raise DataError(read, error.found, error.expected, error.fix) from None


# Compressed files ---------------------------------------------------------------------------------


class ByteStream(Protocol):
    """What can be read in chunks."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, none at the end."""


def unpack(raw: io.BufferedReader, name: str) -> ByteStream:
    """The bytes of the text, unpacked where they are compressed; no UTF-8 text begins so."""
    start = raw.peek(6)
    if start.startswith(b"\x1f\x8b"):
        return gzip.open(raw)
    if start.startswith(b"\xfd7zXZ\x00"):
        return lzma.open(raw)
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        expected, fix = "text, or gzip or xz", f"zstd -d {name}"
        raise DataError(f"reading {name}", "a file packed by zstd", expected, fix)
    return raw


def evenly(items: Iterable[Item], most: int) -> list[Item]:
    """At most `most` items, in order and evenly spaced, so that all parts of a corpus are seen.

    Never holds more than twice as many: when it does, every second one goes.
    """
    kept, stride = list[Item](), 1
    for number, item in enumerate(items):
        if number % stride == 0:
            kept.append(item)
            if len(kept) > 2 * most:
                kept, stride = kept[::2], 2 * stride
    if len(kept) <= most:
        return kept
    return [kept[n * len(kept) // most] for n in range(most)]
