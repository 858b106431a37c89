"""Treebanks: sentences as words with their tags and heads, from CoNLL-U and simpler CoNLL files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from regard.data.tabular import check_columns
from regard.data.text_files import read_lines
from regard.errors import DataError

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
SHORT = ("id", "form", "upos", "head", "deprel")
PLAIN = ("form", "label")
Span = tuple[int, int]


class ConllSentence(NamedTuple):
    """A sentence: the line of the file it begins on, and its columns by name."""

    line: int
    columns: dict[str, list[str]]

    @property
    def forms(self) -> list[str]:
        """The words as they are written."""
        return self.columns["form"]

    def text(self) -> tuple[str, list[Span]]:
        """The sentence with blanks between its words, but not after SpaceAfter=No; the spans."""
        tight = ["SpaceAfter=No" in misc for misc in self.columns.get("misc", [])]
        text, spans = "", list[Span]()
        for n, form in enumerate(self.forms):
            text += " " if n and not (tight and tight[n - 1]) else ""
            spans.append((len(text), len(text) + len(form)))
            text += form
        return text, spans


def read_conll(path: Path | str, need: Sequence[str] = ()) -> Iterator[ConllSentence]:
    """Sentences with a blank line between them, one token per line; `#` lines before are comments.

    Cells are parted by TABs, or by spaces where a line has no TAB; the columns are called 1, 2, ….
    """
    rows: list[list[str]] = []
    start, names = 0, list[str]()
    for line, text in enumerate(chain(read_lines(path), [""]), 1):
        if not text.strip():
            if rows:
                columns = map(list, zip(*rows, strict=True))
                yield ConllSentence(start, dict(zip(names, columns, strict=True)))
            rows = []
            continue
        if not rows and text.startswith("#") and "\t" not in text:
            continue
        cells = text.split("\t") if "\t" in text else text.split()
        names = names or [str(n + 1) for n in range(len(cells))]
        if len(cells) != len(names):
            fault = f"{len(cells)} columns in line {line}: {text[:60]!r}"
            raise DataError(f"reading {path}", fault, f"{len(names)}: {', '.join(names)}")
        if not rows:
            start = line
            check_columns(path, need, names, line)
        rows.append(cells)


def read_treebank(
    path: Path | str, need: Sequence[str] = (), names: Sequence[str] | None = None
) -> Iterator[ConllSentence]:
    """Each sentence of a CoNLL file; `need` are columns that must be there.

    Ten columns are CoNLL-U's, whose spans of words (1-2) and empty nodes (1.1) are left out; five
    with numbers are id, form, upos, head and deprel; two are form and label. `names` says others.
    """
    for sentence in read_conll(path):
        called = names or guess_names(path, sentence)
        if len(called) != len(sentence.columns):
            fault = f"{len(sentence.columns)} columns in line {sentence.line}"
            raise DataError(f"reading {path}", fault, f"{len(called)}: {', '.join(called)}")
        check_columns(path, ("form", *need), called, sentence.line)
        columns = dict(zip(called, sentence.columns.values(), strict=True))
        if "id" in columns:
            kept = [n for n, id in enumerate(columns["id"]) if id.isdecimal()]
            columns = {name: [column[n] for n in kept] for name, column in columns.items()}
        if columns["form"]:
            yield ConllSentence(sentence.line, columns)


def guess_names(path: Path | str, sentence: ConllSentence) -> Sequence[str]:
    """What the columns are called, from how many there are."""
    columns = list(sentence.columns.values())
    if len(columns) == len(CONLLU):
        return CONLLU
    if len(columns) == len(SHORT) and all(map(str.isdecimal, (*columns[0], *columns[3]))):
        return SHORT
    if len(columns) == len(PLAIN):
        return PLAIN
    doing = f"reading {path}"
    expected = f"CoNLL-U's ten, or {', '.join(SHORT)}, or {', '.join(PLAIN)}"
    fix = "name the columns in their order (--columns), one of them form"
    raise DataError(doing, f"{len(columns)} columns in line {sentence.line}", expected, fix)


def heads_of(path: Path | str, words: ConllSentence) -> list[int]:
    """Place of each word's head, from 0; −1 is the root. Stops at what is no tree."""
    column, count = words.columns["head"], len(words.forms)
    heads = [int(head) - 1 if head.isdecimal() else count for head in column]
    if any(head >= count for head in heads):
        wrong = next(n for n, head in enumerate(heads) if head >= count)
        fault = f"head {column[wrong]!r} of {words.forms[wrong]!r}, sentence of line {words.line}"
        raise DataError(f"reading {path}", fault, f"0, the root, to {count}")
    above = list(range(count))
    for _ in heads:
        above = [heads[n] if n >= 0 else n for n in above]
    if heads.count(-1) != 1 or max(above) >= 0:
        fault = f"{heads.count(-1)} roots" if heads.count(-1) != 1 else "heads in a circle"
        fault = f"{fault} in the sentence of line {words.line}"
        raise DataError(f"reading {path}", fault, "a tree: one root, above every word")
    return heads
