"""Labelled lines: read from text files or tables, cut into words or characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.data.tabular import read_table
from regard.data.text_files import read_lines
from regard.errors import DataError, UsageError
from regard.rules.results import BothSides, LabelledLine

MAX_LINES = 20_000  # that are looked at; of more, as many at even distances
ANIMALS = Path(__file__).with_name("animals.txt")
ANSWER = "reading --label"
YES = ("1", "+", "yes", "true", "y", "pos", "positive")
NO = ("0", "-", "no", "false", "n", "neg", "negative")

Side = str | Path | Sequence[str] | Sequence[Sequence[str]]
"""The lines of one label: a file, or the lines themselves, as texts or as tokens."""


class LineFormat(NamedTuple):
    """How lines become tokens: words or characters, of a text file or of a table's column."""

    chars: bool = False
    column: str | None = None
    label_column: str | None = None

    def split(self, text: str) -> tuple[str, ...]:
        """Words, or the characters of a text without the blanks around it."""
        return tuple(text.strip()) if self.chars else tuple(text.split())

    def line(self, text: str, positive: bool, file: str | Path, number: int) -> LabelledLine:
        """A line that was read."""
        return LabelledLine(self.split(text), positive, str(file), number, text.strip())


WORDS = LineFormat()


def read_side(side: Side, positive: bool, form: LineFormat = WORDS) -> Iterator[LabelledLine]:
    """The lines of one label, or of a table with both, empty ones left out."""
    if not isinstance(side, str | Path):
        name = "positives" if positive else "negatives"
        for n, line in enumerate(side, 1):
            text = line if isinstance(line, str) else " ".join(line)
            tokens = form.split(text) if isinstance(line, str) else tuple(line)
            if tokens:
                yield LabelledLine(tokens, positive, name, n, text.strip())
        return
    if form.column is None:
        lines = enumerate(read_lines(side), 1)
        yield from (form.line(text, positive, side, n) for n, text in lines if text.strip())
        return
    columns = [form.column, *([form.label_column] if form.label_column else [])]
    for row in read_table(side, columns):
        text = str(row.cells[form.column])
        if text.strip():
            if form.label_column:
                doing = f"reading {side}, line {row.line}"
                positive = read_label(str(row.cells[form.label_column]), doing)
            yield form.line(text, positive, side, row.line)


def read_blocks(path: str | Path, form: LineFormat = WORDS) -> Iterator[LabelledLine]:
    """One file of two blocks with an empty line between them: the first is the positive one."""
    blocks, inside = 0, False
    for number, text in enumerate(read_lines(path), 1):
        blocks += bool(text.strip()) and not inside
        inside = bool(text.strip())
        if blocks > 2:
            problem = f"a third block in line {number}"
            raise DataError(f"reading {path}", problem, "two blocks, an empty line between them")
        if inside:
            yield form.line(text, blocks == 1, path, number)


def read_label(text: str, doing: str) -> bool:
    """Yes or no."""
    word = text.strip().lower()
    if word not in YES + NO:
        kind = UsageError if doing == ANSWER else DataError
        raise kind(doing, f"label {word!r}", f"{', '.join(YES)}; or {', '.join(NO)}")
    return word in YES


def read_examples(
    sides: Sequence[Side], animals: bool, blocks: bool, form: LineFormat, answers: Sequence[str]
) -> tuple[list[LabelledLine], list[str]]:
    """The lines that the arguments of `discover` name, and what a reader must know of them."""
    check_sides(sides, animals, blocks, form)
    notes: list[str] = []
    if animals:
        lines = [replace(line, file=ANIMALS.name) for line in read_blocks(ANIMALS, form)]
    elif blocks or form.label_column:
        if not isinstance(sides[0], str | Path):
            raise UsageError("choosing lines", "lines instead of a file", "a file with both labels")
        lines = list(read_blocks(sides[0], form) if blocks else read_side(sides[0], True, form))
    else:
        lines = []
        for n, side in enumerate(sides):
            part = list(read_side(side, n == 0, form))
            lines += part
            if not (part or answers):
                which = ("positives", "negatives")[n]
                raise DataError(f"reading the {which}", f"no lines in {side}", "a sequence on each")
    if not lines:
        where = ", ".join(str(side) for side in sides if isinstance(side, str | Path))
        problem = f"no tokens in {where or 'the lines'}"
        raise DataError("looking for a rule", problem, "a sequence on each line")
    answered = []
    for number, text in enumerate(answers, 1):
        words, colon, label = text.rpartition(":")
        if not colon or not words.strip():
            fix = "--label 'leeuw olifant leeuw : yes'"
            raise UsageError(ANSWER, repr(text), "a sequence, a colon, yes or no", fix)
        answered.append(form.line(words, read_label(label, ANSWER), "--label", number))
    if not any(line.positive for line in [*lines, *answered]):
        lines, answered = ([replace(x, positive=True) for x in part] for part in (lines, answered))
        notes.append("there are negatives only: the rules are about what they have in common")
    if len(lines) > MAX_LINES:
        count = f"{len(lines):,} lines: {MAX_LINES:,} of them"
        notes.append(f"{count}, at even distances, were looked at")
        lines = thin_sides(lines, MAX_LINES)
    return [*lines, *answered], notes


def check_sides(sides: Sequence[Side], animals: bool, blocks: bool, form: LineFormat) -> None:
    """Which files go with which options."""
    doing, most = "choosing lines", 0 if animals else 1 if blocks or form.label_column else 2
    if len(sides) > most or not (sides or animals):
        expected = ("no file with --animals", "one file", "POS, or POS and NEG")[most]
        raise UsageError(doing, f"{len(sides)} files", expected, "regard discover --animals")
    if form.column and (animals or blocks):
        flag = "--animals" if animals else "--blocks"
        raise UsageError(doing, f"--column with {flag}", "--column with tables", "leave one out")
    if form.label_column and not form.column:
        fix = f"--column NAME --label-column {form.label_column}"
        raise UsageError(doing, "--label-column without --column", "both", fix)


def thin_sides(lines: Sequence[LabelledLine], most: int) -> list[LabelledLine]:
    """All lines, or about so many: of either side as many as may be, at even distances."""
    if len(lines) <= most:
        return list(lines)
    sides = [[line for line in lines if line.positive == sign] for sign in (True, False)]
    room = max(most // 2, most - min(map(len, sides)))
    places = (np.linspace(0, len(side) - 1, min(room, len(side))).round() for side in sides)
    return [side[int(n)] for side, chosen in zip(sides, places, strict=True) for n in chosen][:most]


def find_in_both(lines: Sequence[LabelledLine]) -> list[BothSides]:
    """Sequences that stand on both sides: the first place of each."""
    sides: dict[bool, dict[tuple[str, ...], LabelledLine]] = {True: {}, False: {}}
    for line in lines:
        sides[line.positive].setdefault(line.tokens, line)
    return [
        BothSides(line.text, line.place, sides[False][tokens].place)
        for tokens, line in sides[True].items()
        if tokens in sides[False]
    ]
