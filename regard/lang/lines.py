"""Labelled lines: read from text files or tables, cut into words or characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.data.tabular import read_table
from regard.data.text_files import read_lines
from regard.errors import DataError, UsageError

MOST = 20_000  # lines that are looked at; of more, as many at even distances
RANDOM = "<random>"  # the file of lines that were drawn
ANSWER = "reading --label"
YES = ("1", "+", "yes", "true", "y", "pos", "positive")
NO = ("0", "-", "no", "false", "n", "neg", "negative")


class Line(NamedTuple):
    """One line with its label and where it stands."""

    tokens: tuple[str, ...]
    positive: bool
    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """file:line."""
        return f"{self.file}:{self.line}"


class Cut(NamedTuple):
    """How lines become tokens."""

    chars: bool = False
    column: str | None = None
    label_column: str | None = None

    def __call__(self, text: str) -> tuple[str, ...]:
        """Words, or the characters of a text without the blanks around it."""
        return tuple(text.strip()) if self.chars else tuple(text.split())


def read_side(path: str | Path, positive: bool, cut: Cut) -> Iterator[Line]:
    """The lines of one file, empty ones left out."""
    if cut.column is None:
        for number, text in enumerate(read_lines(path), 1):
            if text.strip():
                yield Line(cut(text), positive, str(path), number, text.strip())
        return
    for row in read_table(path, [cut.column]):
        text = str(row.cells[cut.column])
        if text.strip():
            yield Line(cut(text), positive, str(path), row.line, text.strip())


def read_labelled(path: str | Path, cut: Cut) -> Iterator[Line]:
    """The rows of one table with both kinds of label."""
    assert cut.column is not None and cut.label_column is not None
    for row in read_table(path, [cut.column, cut.label_column]):
        text, label = str(row.cells[cut.column]), str(row.cells[cut.label_column])
        where = f"reading {path}, line {row.line}"
        if text.strip():
            yield Line(cut(text), as_label(label, where), str(path), row.line, text.strip())


def read_blocks(path: str | Path, cut: Cut) -> Iterator[Line]:
    """One file of two blocks with an empty line between them: the first is the positive one."""
    blocks, inside = 0, False
    for number, text in enumerate(read_lines(path), 1):
        blocks += bool(text.strip()) and not inside
        inside = bool(text.strip())
        if blocks > 2:
            found = f"a third block in line {number}"
            raise DataError(f"reading {path}", found, "two blocks, an empty line between them")
        if inside:
            yield Line(cut(text), blocks == 1, str(path), number, text.strip())


def as_label(text: str, doing: str) -> bool:
    """Yes or no."""
    word = text.strip().lower()
    if word not in YES + NO:
        kind = UsageError if doing == ANSWER else DataError
        raise kind(doing, f"label {word!r}", f"{', '.join(YES)}; or {', '.join(NO)}")
    return word in YES


def read_answers(given: Iterable[str], cut: Cut) -> Iterator[Line]:
    """Answered probes: 'leeuw olifant leeuw : yes'."""
    for number, text in enumerate(given, 1):
        words, colon, label = text.rpartition(":")
        if not colon or not words.strip():
            fix = "--label 'leeuw olifant leeuw : yes'"
            raise UsageError(ANSWER, repr(text), "a sequence, a colon, yes or no", fix)
        yes = as_label(label, ANSWER)
        yield Line(cut(words), yes, "--label", number, words.strip())


def thin(lines: Sequence[Line], most: int = MOST) -> list[Line]:
    """At most so many lines, at even distances."""
    if len(lines) <= most:
        return list(lines)
    return [lines[n] for n in np.linspace(0, len(lines) - 1, most).round().astype(int)]


def in_both(lines: Sequence[Line]) -> list[tuple[Line, Line]]:
    """Sequences that stand on both sides: the first place of each."""
    sides: dict[bool, dict[tuple[str, ...], Line]] = {True: {}, False: {}}
    for line in lines:
        sides[line.positive].setdefault(line.tokens, line)
    return [(line, sides[False][key]) for key, line in sides[True].items() if key in sides[False]]
