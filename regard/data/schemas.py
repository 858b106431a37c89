"""Winograd schemas: a sentence with a pronoun and two candidates, and its twin that turns it round.

Read from the XML of the Winograd Schema Challenge (Levesque 2012), XWinograd's table (Tikhonov
2021), WinoGrande's lines (Sakaguchi 2020), or a table (.tsv, .csv, .jsonl) with the columns

    text     the sentence, with _ in the place of the pronoun
    a, b     the candidates, as they are to stand there
    answer   a or b
    pair     optional: a name that the two members of a pair share
    group    optional: what accuracy is counted by
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.tabular import Row, kind_of, read_table
from regard.data.text_files import find_files, read_lines
from regard.errors import DataError

XWINOGRAD = 7  # cells of a line: language, source, ?, sentence, its words, pronoun, candidates
ANSWERS = {"a": 0, "b": 1, "1": 0, "2": 1}
NAMES = {"text": "sentence", "a": "option1", "b": "option2", "pair": "qID"}  # as WinoGrande has it
THINGS = frozenset("it its they them their".split())
POSSESSIVE = frozenset("my his her its our their".split())
SMALL = frozenset(  # small letters unless they begin a sentence
    "the a an my his her its our their this that these those some each every "
    "le la les un une des du ce cet cette ces mon ma mes son sa ses leur leurs".split()
)


class Schema(NamedTuple):
    """A sentence with a gap and what may stand there."""

    place: str
    """Where it stands in the file, in words."""
    before: str
    after: str
    candidates: tuple[str, str]
    """As they are put between the two."""
    answer: int
    """Which of them is right, 0 or 1."""
    pair: str | None = None
    """A name that two schemas share; None: neighbours with the same candidates are a pair."""
    group: str = ""

    def text(self, candidate: int) -> str:
        """The sentence with a candidate in it."""
        return self.before + self.candidates[candidate] + self.after

    def span(self, candidate: int) -> tuple[int, int]:
        """Where the candidate stands in that text."""
        start = len(self.before)
        return start, start + len(self.candidates[candidate])


def read_schemas(path: Path | str) -> list[Schema]:
    """The schemas of a file; a line that is none is an error that names it."""
    if kind_of(path) == "xml":
        found = list(read_challenge(path))
    elif kind_of(path) == "tsv" and is_xwinograd(next(iter(read_lines(path)), "")):
        lines = enumerate(read_lines(path), 1)
        found = [read_xwinograd(path, n, line) for n, line in lines if line.strip()]
    else:
        found = [read_row(path, row) for row in read_table(path)]
    if not found:
        raise DataError(f"reading {path}", "no schemas", "sentences with two candidates")
    return found


def wrong(path: Path | str, place: str, found: str, expected: str) -> DataError:
    """What is wrong with one schema."""
    return DataError(f"reading {path}", f"{place}: {found}", expected)


# A table of our own, or WinoGrande's ------------------------------------------------------------


def read_row(path: Path | str, row: Row) -> Schema:
    """A row with text, a, b, answer."""
    place, cells = f"line {row.line}", row.cells

    def cell(name: str, usual: Any = None) -> str:
        value = cells.get(name, cells.get(NAMES.get(name, name), usual))
        if not isinstance(value, str) or (usual is None and not value.strip()):
            lacking = f"no {name}" if value is None else f"{name} {value!r}"
            columns = "text, a, b and answer, or WinoGrande's sentence, option1, option2, answer"
            raise wrong(path, place, lacking, columns)
        return value

    text, answer = cell("text"), cell("answer").strip().lower()
    if text.count("_") != 1:
        raise wrong(path, place, f"{text.count('_')} times _ in {text[:60]!r}", "one, as the gap")
    if answer not in ANSWERS:
        raise wrong(path, place, f"answer {answer!r}", "a or b")
    candidates = cell("a").strip(), cell("b").strip()
    check_candidates(path, place, candidates)
    before, _, after = text.partition("_")
    pair = cell("pair", "").strip()
    if "qID" in cells and "pair" not in cells:
        pair = pair.rpartition("-")[0]  # the members of WinoGrande's twins end in -1 and -2
    return Schema(
        place, before, after, candidates, ANSWERS[answer], pair or None, cell("group", "")
    )


def check_candidates(path: Path | str, place: str, candidates: Sequence[str]) -> None:
    """Two that differ."""
    if len(candidates) != 2 or candidates[0].casefold() == candidates[1].casefold():
        raise wrong(path, place, f"candidates {list(candidates)}", "two that differ")


# The Winograd Schema Challenge ------------------------------------------------------------------


def read_challenge(path: Path | str) -> Iterator[Schema]:
    """WSC273 and WSC285 as their authors give them."""
    (file,) = find_files(path)
    try:
        root = ElementTree.parse(file).getroot()
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"reading {path}", str(error), "XML of the challenge") from None
    for number, schema in enumerate(root.iter("schema"), 1):
        place = f"schema {number}"
        first, pronoun, rest = (squeezed(schema, f"text/{n}") for n in ("txt1", "pron", "txt2"))
        named = [" ".join("".join(each.itertext()).split()) for each in schema.iter("answer")]
        answer = squeezed(schema, "correctAnswer").strip(" .").lower()
        check_candidates(path, place, named)
        if answer not in ANSWERS or not pronoun:
            found = f"pronoun {pronoun!r}, answer {answer!r}"
            raise wrong(path, place, found, "a pronoun, and A or B")
        before = first + (" " if first and not first.endswith(("(", "“", "‘")) else "")
        after = rest if re.match(r"[.,;:!?)'’”]", rest) else f" {rest}" if rest else ""
        a, b = (fitted(name, before, pronoun, after) for name in named)
        yield Schema(place, before, after, (a, b), ANSWERS[answer])


def squeezed(schema: ElementTree.Element, name: str) -> str:
    """The text of a part, with single blanks."""
    part = schema.find(name)
    return "" if part is None else " ".join("".join(part.itertext()).split())


def fitted(name: str, before: str, pronoun: str, after: str) -> str:
    """A candidate in the pronoun's place: small or capital, with 's for English possessives.

    *Her* before a word is taken for a possessive, and before a mark for an object.
    """
    begins = not before.strip() or before.rstrip(" \"”'’").endswith((".", "!", "?"))
    owner = pronoun.lower() not in THINGS  # Susan of Susan's door, but Tina's drawing
    first, blank, rest = (name.removesuffix("'s") if owner else name).partition(" ")
    if begins:
        first = first[:1].upper() + first[1:]
    elif first.lower() in SMALL:
        first = first.lower()
    owns = pronoun.lower() in POSSESSIVE and after[:1] == " "
    return first + blank + rest + ("'s" if owns else "")


# XWinograd --------------------------------------------------------------------------------------


def is_xwinograd(line: str) -> bool:
    """Whether a line has XWinograd's cells."""
    cells = line.split("\t")
    return len(cells) == XWINOGRAD and cells[4].startswith("[")


def read_xwinograd(path: Path | str, number: int, line: str) -> Schema:
    """A line of XWinograd; its group is the language and the source."""
    place = f"line {number}"
    try:
        language, source, _, text, *packed = line.split("\t")
        words, (pronoun, (first, _), _), both = map(json.loads, packed)
        named, right = [each[0] for each in both], [bool(each[3]) for each in both]
        start = find_word(text, words, first, pronoun)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        expected = "language, source, ?, sentence, words, pronoun, candidates"
        raise wrong(path, place, str(error), expected) from None
    check_candidates(path, place, named)
    if sorted(right) != [False, True]:
        raise wrong(path, place, f"{sum(right)} right candidates", "one")
    before, after = text[:start], text[start + len(pronoun) :]
    a, b = (fitted(name, before, pronoun, after) for name in named)
    return Schema(place, before, after, (a, b), right.index(True), group=f"{language} {source}")


def find_word(text: str, words: Sequence[str], place: int, word: str) -> int:
    """Where the word of this place begins; words that the text writes otherwise are passed over."""
    at = 0
    for other in words[:place]:
        found = text.find(other, at)
        at = found + len(other) if found >= 0 and found - at < 3 else at
    found = text.find(word, at)
    if found < 0:
        raise ValueError(f"{word!r} is not in {text[:60]!r}")
    return found


# Pairs ------------------------------------------------------------------------------------------


def pair_up(schemas: Sequence[Schema]) -> list[tuple[int, int]]:
    """Places of the two members of each pair: the same name, or neighbours that are twins."""
    named: dict[str, list[int]] = {}
    found, n = [], 0
    for place, schema in enumerate(schemas):
        if schema.pair is not None:
            named.setdefault(schema.pair, []).append(place)
    for name, members in named.items():
        if len(members) > 2:
            where = ", ".join(schemas[member].place for member in members)
            raise DataError("pairing schemas", f"pair {name!r} in {where}", "two members")
        found += [(members[0], members[1])] if len(members) == 2 else []
    while n + 1 < len(schemas):
        twins = are_twins(schemas[n], schemas[n + 1])
        found += [(n, n + 1)] if twins else []
        n += 2 if twins else 1
    return sorted(found)


def are_twins(one: Schema, other: Schema) -> bool:
    """Whether two unnamed schemas have the same candidates and other answers."""
    if one.pair is not None or other.pair is not None or one.group != other.group:
        return False
    names = [[name.casefold() for name in schema.candidates] for schema in (one, other)]
    same = sorted(names[0]) == sorted(names[1])
    return same and names[0][one.answer] != names[1][other.answer]
