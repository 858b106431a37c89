"""Tables as iterators of rows: CSV, TSV and JSONL."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.text_files import read_lines
from regard.errors import DataError, UsageError, did_you_mean

COMPRESSED = (".gz", ".xz")


class TableRow(NamedTuple):
    """One row and the line of the file it begins on."""

    line: int
    cells: dict[str, Any]


def kind_of(path: Path | str) -> str:
    """The ending of a file's name without that of its compression: 'a.csv.gz' → 'csv'."""
    name = Path(path).name
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return Path(name).suffix.removeprefix(".").lower()


def read_table(
    path: Path | str, need: Sequence[str] = (), names: Sequence[str] | None = None
) -> Iterator[TableRow]:
    """Rows by column name; `names` are those of a file without a header, `need` must be there."""
    if Path(path).is_dir():
        raise DataError(f"reading {path}", "a folder", "a file: .csv, .tsv or .jsonl")
    kind = kind_of(path)
    if kind in ("jsonl", "ndjson"):
        yield from read_jsonl(path, need)
        return
    if kind not in ("csv", "tsv"):
        fault = f"{path}, a name that ends in .{kind}"
        raise UsageError(
            "reading a table", fault, ".csv, .tsv or .jsonl, or one of them compressed"
        )
    rows = split_rows(path, kind)
    if names is None:
        _, names = next(rows, (0, ()))
    check_columns(path, need, names)
    for line, cells in rows:
        if len(cells) != len(names):
            problem = f"{len(cells)} cells in line {line}"
            raise DataError(f"reading {path}", problem, f"{len(names)}: {', '.join(names)}")
        yield TableRow(line, dict(zip(names, cells, strict=True)))


def split_rows(path: Path | str, kind: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells): CSV with quotes, TSV without; empty lines are left out."""
    if kind == "tsv":
        for line, text in enumerate(read_lines(path), 1):
            if text:
                yield line, text.split("\t")
        return
    reader = csv.reader((f"{text}\n" for text in read_lines(path)), strict=True)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"reading {path}", f"{error}, in the row of line {start}", "CSV") from None


def read_jsonl(path: Path | str, need: Sequence[str]) -> Iterator[TableRow]:
    """One JSON object per line."""
    for line, text in enumerate(read_lines(path), 1):
        if not text.strip():
            continue
        try:
            cells = json.loads(text)
        except ValueError as error:
            raise DataError(f"reading {path}", f"line {line}: {error}", "JSON") from None
        if not isinstance(cells, dict):
            fault = f"line {line}: {type(cells).__name__}"
            raise DataError(f"reading {path}", fault, "a JSON object on each line")
        check_columns(path, need, cells, line)
        yield TableRow(line, cells)


def check_columns(
    path: Path | str, need: Sequence[str], names: Iterable[str], line: int = 1
) -> None:
    """Stop at the first column that is not there, listing those that are."""
    have = list(names)
    for name in need:
        if name not in have:
            found, fix = f"no column {name!r} in line {line}", did_you_mean(name, have, 1)
            listed = f"one of {', '.join(have) or 'none: the file is empty'}"
            raise DataError(f"reading {path}", found, listed, fix)
