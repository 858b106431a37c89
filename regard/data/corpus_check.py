"""What a data file holds and what is odd about it, in one pass: 16 bytes a line."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from regard.data import results
from regard.data.duplicates import SHOWN, hash_text, overlap, pair_overlap, repeated
from regard.data.pairs import read_pairs
from regard.data.results import FileReport, Overlap
from regard.data.speech import find_marks, show_marks
from regard.data.tabular import kind_of, read_table
from regard.data.text_files import find_files, read_lines
from regard.data.treebank import read_conll
from regard.errors import DataError, UsageError

SPOKEN = ("text", "conll")  # kinds whose fillers and restarts are marked
LABELS = ("label", "labels", "class", "tag", "category")
RATIO, SHORT = 3.0, 30  # one side more than 3 times the other, and of 30 characters or more
MOST_LABELS = 1000


Named = str | Path | list[str | Path]
Couple = tuple[Path | str, Path | str | None]
"""A file, or a file of sources and one of targets."""


class Unit(NamedTuple):
    """One line, pair, row or sentence and the line it begins on."""

    line: int
    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()


def pair_files(files: Named, targets: Named | None, option: str) -> list[Couple]:
    """Files as they are, or each with its file of targets."""
    if not targets:
        return [(path, None) for path in find_files(files)]
    sources, others = ([f] if isinstance(f, str | Path) else f for f in (files, targets))
    if len(sources) != len(others):
        fault = f"{len(sources)} files and {len(others)} after {option}"
        raise UsageError("pairing files", fault, "as many of one as of the other")
    return list(zip(sources, others, strict=True))


def check_file(
    path: Path | str,
    target: Path | str | None = None,
    kind: str | None = None,
    label: str | None = None,
) -> FileReport:
    """Count lines, empty ones, repeats, lengths, labels; a broken file is a DataError."""
    kind = kind or ("pairs" if target is not None else guess_kind(path))
    if label is not None and kind in ("text", "pairs"):
        fault = f"the column {label!r} of a file of kind {kind}"
        raise UsageError(f"checking {path}", fault, "a table or a CoNLL file", "say --kind")
    odd: dict[str, array[int]] = defaultdict(lambda: array("q"))  # lines of each kind
    hashes, places, speech = array("q"), array("q"), list[results.MarkedLine]()
    sides = ("source", "target") if kind == "pairs" else ("all",)
    words, labels, count = {side: Counter[int]() for side in sides}, Counter[str](), 0
    for unit in read_units(path, target, kind, label):
        count += 1
        for side, text in zip(sides, unit.texts, strict=True):
            words[side][len(text.split()).bit_length()] += 1
        if len(labels) < MOST_LABELS:
            labels.update(unit.labels)
        for name in oddities(unit):
            odd[name].append(unit.line)
        if kind in SPOKEN:
            said = unit.texts[0].split()
            marks = find_marks(said)
            for mark in dict.fromkeys(mark.kind for mark in marks):
                odd[f"{mark}s"].append(unit.line)
            if marks and len(speech) < SHOWN:
                speech.append(results.MarkedLine(unit.line, show_marks(said, marks)))
        if any(map(str.strip, unit.texts)):
            hashes.append(hash_text("\t".join(unit.texts)))
            places.append(unit.line)
    if not count:
        raise DataError(f"checking {path}", "an empty file", "at least one line")
    if again := repeated(hashes):
        odd["repeated"] = array("q", [places[n] for n in again])
    findings = {name: results.Finding(len(some), list(some[:SHOWN])) for name, some in odd.items()}
    bands = {
        side: {results.band_name(n): lengths[n] for n in sorted(lengths)}
        for side, lengths in words.items()
    }
    return FileReport(str(path), kind, count, findings, bands, dict(labels.most_common()), speech)


def oddities(unit: Unit) -> Iterator[str]:
    """What is odd about one line."""
    if not all(map(str.strip, unit.texts)):
        yield "empty"
        return
    if any("\0" in text for text in unit.texts):
        yield "NUL bytes (U+0000)"
    if any("\ufffd" in text for text in unit.texts):
        yield "damaged characters (U+FFFD)"
    if len(unit.texts) == 2:
        if unit.texts[0].strip() == unit.texts[1].strip():
            yield "source same as target"
        shorter, longer = sorted(map(len, unit.texts))
        if longer >= SHORT and longer > RATIO * shorter:
            yield f"one side over {RATIO:g} times as long"


def guess_kind(path: Path | str) -> str:
    """What a file is, from its name and first lines."""
    name = kind_of(path)
    if name in ("csv", "jsonl", "ndjson"):
        return "table"
    if name in ("conll", "conllu", "iob", "bio"):
        return "conll"
    if name != "tsv":
        return "text"
    first = list(islice(read_lines(path), 200))
    cells = [line.split("\t") for line in first if line]
    if cells and all(len(row) == 2 for row in cells):
        last = {row[1] for row in cells}
        few = len(last) <= max(1, len(cells) // 5) and all(len(v.split()) <= 1 for v in last)
        return "labelled" if few and len(cells) >= 10 else "pairs"
    if "" in first and len({len(row) for row in cells}) == 1 and len(cells[0]) > 1:
        return "conll"
    return "table" if cells and len(cells[0]) > 2 else "pairs"


def read_units(
    path: Path | str, target: Path | str | None, kind: str, label: str | None
) -> Iterator[Unit]:
    """The file as units."""
    if kind == "text":
        yield from (Unit(n, (text,)) for n, text in enumerate(read_lines(path), 1))
    elif kind == "pairs":
        yield from (Unit(n, pair) for n, pair in enumerate(read_pairs(path, target), 1))
    elif kind == "conll":
        for sentence in read_conll(path, need=[label] if label else []):
            columns = sentence.columns
            words = next((c for c in columns.values() if not c[0].isdecimal()), [])
            yield Unit(sentence.line, (" ".join(words),), tuple(columns[label]) if label else ())
    else:
        names = ("text", "label") if kind == "labelled" else None
        for row in read_table(path, [label] if label else [], names):
            chosen = label or next((name for name in LABELS if name in row.cells), None)
            rest = [str(value) for name, value in row.cells.items() if name != chosen]
            labels = () if chosen is None else (str(row.cells.get(chosen)),)
            yield Unit(row.line, ("\t".join(rest),), labels)


def find_overlap(train: Sequence[Couple], test: Sequence[Couple]) -> dict[str, Overlap]:
    """What of each test file stands in the training files; by pairs if all files are pairs."""
    kinds = {"pairs" if target else guess_kind(path) for path, target in (*train, *test)}
    overlaps = dict[str, Overlap]()
    for couple in test:
        if kinds == {"pairs"}:
            pairs = (pair for trained in train for pair in read_pairs(*trained))
            sides = pair_overlap(pairs, read_pairs(*couple))
        else:
            texts = (text for trained in train for text in read_texts(trained))
            sides = {"line": overlap(texts, read_texts(couple))}
        overlaps |= {f"{couple[0]} by {side}": each for side, each in sides.items()}
    return overlaps


def read_texts(couple: Couple) -> Iterator[str]:
    """The texts of a file; the sides of a pair in turn."""
    for unit in read_units(*couple, "pairs" if couple[1] else guess_kind(couple[0]), None):
        yield from unit.texts
