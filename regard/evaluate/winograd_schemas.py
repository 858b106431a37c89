"""Winograd schemas: a sentence with a pronoun and two candidates, and its twin that turns it round.

Each candidate is put in; the answer is the one after which what follows is likelier (the partial
score of Trinh and Le 2018).

Read from the XML of the Winograd Schema Challenge (Levesque 2012), or a table (.tsv, .csv, .jsonl;
tools/xwinograd.py makes one of XWinograd's) with the columns

    text     the sentence, with _ in the place of the pronoun
    a, b     the candidates, as they are to stand there
    answer   a or b
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from regard.data.tabular import TableRow, kind_of, read_table
from regard.data.text_files import find_files
from regard.errors import DataError
from regard.evaluate.multiple_choice import accuracy, score_options
from regard.evaluate.results import JudgedSchema, WinogradScores

if TYPE_CHECKING:
    from regard.kit import Kit

ANSWERS = "ab"
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


def read_schemas(path: Path | str) -> list[Schema]:
    """The schemas of a file; a line that is none is an error that names it."""
    if kind_of(path) == "xml":
        schemas = list(read_challenge(path))
    else:
        schemas = [read_row(path, row) for row in read_table(path, ("text", "a", "b", "answer"))]
    if not schemas:
        raise DataError(f"reading {path}", "no schemas", "sentences with two candidates")
    return schemas


def wrong(path: Path | str, place: str, found: str, expected: str) -> DataError:
    """What is wrong with one schema."""
    return DataError(f"reading {path}", f"{place}: {found}", expected)


def read_row(path: Path | str, row: TableRow) -> Schema:
    """A row of a table of our own."""
    place, text = f"line {row.line}", str(row.cells["text"])
    a, b, answer = (str(row.cells[name]).strip() for name in ("a", "b", "answer"))
    if text.count("_") != 1:
        raise wrong(path, place, f"{text.count('_')} times _ in {text[:60]!r}", "one, as the gap")
    if answer.lower() not in ("a", "b"):
        raise wrong(path, place, f"answer {answer!r}", "a or b")
    check_candidates(path, place, (a, b))
    before, _, after = text.partition("_")
    return Schema(place, before, after, (a, b), ANSWERS.index(answer.lower()))


def check_candidates(path: Path | str, place: str, candidates: Sequence[str]) -> None:
    """Two that differ."""
    if len({name.casefold() for name in candidates if name}) != 2:
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
        if answer not in ("a", "b") or not pronoun:
            fault = f"pronoun {pronoun!r}, answer {answer!r}"
            raise wrong(path, place, fault, "a pronoun, and A or B")
        before = first + (" " if first and not first.endswith(("(", "“", "‘")) else "")
        after = rest if re.match(r"[.,;:!?)'’”]", rest) else f" {rest}" if rest else ""
        a, b = (fitted(name, before, pronoun, after) for name in named)
        yield Schema(place, before, after, (a, b), ANSWERS.index(answer))


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


# Pairs ------------------------------------------------------------------------------------------


def pair_up(schemas: Sequence[Schema]) -> list[tuple[int, int]]:
    """Places of the two members of each pair: neighbours with other answers."""
    pairs, n = list[tuple[int, int]](), 0
    while n + 1 < len(schemas):
        one, other = schemas[n], schemas[n + 1]
        both = [[name.casefold() for name in schema.candidates] for schema in (one, other)]
        twins = sorted(both[0]) == sorted(both[1])
        twins = twins and both[0][one.answer] != both[1][other.answer]
        pairs += [(n, n + 1)] if twins else []
        n += 2 if twins else 1
    return pairs


# Judging ------------------------------------------------------------------------------------------


def judge(kit: Kit, schemas: Sequence[Schema]) -> list[JudgedSchema]:
    """Both candidates of each schema; a tie is not right."""
    filled = [(each.before + name, each.after) for each in schemas for name in each.candidates]
    scores = score_options(kit, [before for before, _ in filled], [[end] for _, end in filled])
    judged = []
    for n, schema in enumerate(schemas):
        (one,), (other,) = scores[2 * n : 2 * n + 2]
        text, answer = f"{schema.before}_{schema.after}", ANSWERS[schema.answer]
        right = one > other if schema.answer == 0 else other > one
        own = schema.place, text, schema.candidates, answer, (one, other), right
        judged.append(JudgedSchema(*own))
    return judged


def evaluate_schemas(kit: Kit, schemas: Sequence[Schema]) -> WinogradScores:
    """Accuracy of schemas, and of their pairs, of which both members must be right."""
    judged, pairs = judge(kit, schemas), pair_up(schemas)
    return WinogradScores(
        single=accuracy(sum(each.right for each in judged), len(judged)),
        pairs=accuracy(sum(judged[a].right and judged[b].right for a, b in pairs), len(pairs)),
        alone=len(judged) - 2 * len(pairs),
        ties=sum(each.scores[0] == each.scores[1] for each in judged),
        schemas=judged,
        pairs_at=pairs,
    )
