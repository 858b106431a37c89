"""Texts with their labels, and words with their tags, from tables and CoNLL files."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.tabular import check_columns, kind_of, read_table, split_rows
from regard.data.text_files import read_lines
from regard.data.treebank import ConllSentence, Span, guess_names, read_conll, read_treebank
from regard.errors import DataError

TEXT, LABEL = ("text", "sentence"), ("label", "labels")
"""Columns that are taken where none is named."""
TABLES = ("csv", "tsv", "jsonl", "ndjson")
PARTED = re.compile(r"[,;|]")
"""Between several labels in one cell."""


class LabelledText(NamedTuple):
    """A text of a file, and its labels as they are written; none where they were not asked for."""

    place: str
    """The line it begins on, and the file."""
    text: str
    labels: list[str]
    """Of the text, or of each of its words."""
    spans: Sequence[Span] = ()
    """Where the words stand that the labels are of, in characters."""


def read_labelled(
    path: Path | str,
    kind: str = "classify",
    text: str | None = None,
    label: str | None = None,
    labelled: bool = True,
) -> Iterator[LabelledText]:
    """Texts of a file for a kind of task; of `tag` sentences, see `read_tagged`.

    Rows of CSV, TSV or JSONL; columns are called `text` and `label` unless others are named. TSV of
    two columns whose first line has no such name has no header: text TAB label. Of `several`, a
    cell holds any number of labels with commas between them, JSON a list; of `regress` a number.
    Not `labelled`: the texts alone, also of a file of plain lines.
    """
    if kind == "tag":
        yield from read_tagged(path, label, labelled)
        return
    if not labelled and kind_of(path) not in TABLES:
        lines = enumerate(read_lines(path), 1)
        yield from (LabelledText(f"line {n} of {path}", line, []) for n, line in lines if line)
        return
    source, answer = text, label
    for line, cells in read_table(path, names=bare_columns(path, text, label)):
        answer = answer or first_of(LABEL, cells, LABEL[0])
        rest = [name for name in cells if name != answer]
        source = source or first_of(TEXT, cells, rest[0] if len(rest) == 1 else TEXT[0])
        check_columns(path, [answer, source][1 - labelled :], cells, line)
        labels = split_labels(cells[answer], kind == "several") if labelled else []
        if not isinstance(value := cells[source], str) or not value.strip():
            fault = f"{source} = {value!r} in line {line}"
            raise DataError(f"reading {path}", fault, "a text")
        if labelled and not labels and kind != "several":
            fault = f"no {answer} in line {line}"
            raise DataError(f"reading {path}", fault, "a label for each text")
        place = f"line {line} of {path}"
        if labelled and kind == "regress":
            read_number(place, labels[0])
        yield LabelledText(place, value, labels)


def first_of(usual: Sequence[str], have: Collection[str], otherwise: str) -> str:
    """The first of some names that is there."""
    return next((name for name in usual if name in have), otherwise)


def bare_columns(path: Path | str, *asked: str | None) -> list[str] | None:
    """The columns of a TSV without a header, text TAB label; None where it has one."""
    if kind_of(path) != "tsv":
        return None
    _, first = next(split_rows(path, "tsv"), (0, []))
    known = {*asked, *TEXT, *LABEL} & set(first)
    return None if known or len(first) > 2 else [TEXT[0], LABEL[0]][: len(first)]


def split_labels(cell: Any, several: bool) -> list[str]:
    """The labels of one cell."""
    if isinstance(cell, list):
        return [str(label) for label in cell] if several else []
    parts = PARTED.split(str(cell)) if several else [str(cell)]
    return [] if cell is None else [part.strip() for part in parts if part.strip()]


def read_tagged(
    path: Path | str, tag: str | None = None, labelled: bool = True
) -> Iterator[LabelledText]:
    """Sentences with the tag of each word; not `labelled`: words alone, also of plain lines.

    CoNLL files have a word a line, and the tags are those of the column `tag`: upos, or the last;
    JSONL has lists `tokens` and `tags` as long as each other.
    """
    kind = kind_of(path)
    if kind in ("jsonl", "ndjson"):
        for row in read_table(path, ["tokens", *([tag or "tags"] if labelled else [])]):
            words = row.cells["tokens"]
            tags = row.cells[tag or "tags"] if labelled else words
            if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags):
                counts = [len(x) if isinstance(x, list) else "no" for x in (words, tags)]
                fault = f"{counts[0]} tokens and {counts[1]} tags in line {row.line}"
                raise DataError(f"reading {path}", fault, "a tag for each token")
            if words:
                columns = {"form": list(map(str, words)), "label": list(map(str, tags))}
                yield tagged(path, ConllSentence(row.line, columns), "label")
        return
    if kind == "txt" and not labelled:
        for line, text in enumerate(read_lines(path), 1):
            if text.strip():
                yield tagged(path, ConllSentence(line, {"form": text.split()}), None)
        return
    for first in islice(read_conll(path), 1):
        count = len(first.columns)
        names: Sequence[str] = ["form", *list(first.columns)[1:-1], "label"]  # CoNLL 2000 and 2003
        names = names[:count] if count in (1, 3, 4) else guess_names(path, first)
        chosen = (tag or ("upos" if "upos" in names else "label")) if labelled else None
        for sentence in read_treebank(path, [chosen] if chosen else [], names):
            yield tagged(path, sentence, chosen)


def tagged(path: Path | str, sentence: ConllSentence, column: str | None) -> LabelledText:
    """A sentence with the tags of one of its columns."""
    tags, (text, spans) = sentence.columns[column] if column else [], sentence.text()
    return LabelledText(f"line {sentence.line} of {path}", text, tags, spans)


def sort_classes(labels: Sequence[str]) -> list[str]:
    """Each label once: numbers by size, others by their letters."""
    classes = set(labels)
    whole = all(label.removeprefix("-").isdecimal() for label in classes)
    return sorted(classes, key=int) if whole else sorted(classes)


def is_number(cell: Any) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except (TypeError, ValueError):
        return False


def read_number(place: str, label: str) -> float:
    """A label as a number."""
    if not is_number(label):
        raise DataError(f"reading {place}", f"the label {label!r}", "a number")
    return float(label)
