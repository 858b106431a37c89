"""Sentence pairs: one file with a TAB in each line, or two files read side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from regard.data.text_files import find_files, read_lines
from regard.errors import DataError

Pair = tuple[str, str]
"""Source and target."""
MEMORY_FILE = "memory.tsv"  # of a translator's folder: word, place, origin, source, target


def read_pairs(source: Path | str, target: Path | str | None = None) -> Iterator[Pair]:
    """Pairs of one TSV file, or line by line of two files; each may be compressed."""
    return read_tsv(source) if target is None else read_two(source, target)


def read_tsv(path: Path | str) -> Iterator[Pair]:
    """Source TAB target on each line."""
    for number, line in enumerate(read_lines(path), 1):
        source, tab, target = line.partition("\t")
        if not tab or "\t" in target:
            doing = f"reading sentence pairs from {path}"
            fault = f"{line.count(chr(9))} TABs in line {number}: {shorten(line)!r}"
            fix = "give two files instead, or take the extra columns away with `cut`"
            raise DataError(doing, fault, "source TAB target, exactly one TAB in each line", fix)
        yield source, target


def read_two(source: Path | str, target: Path | str) -> Iterator[Pair]:
    """Line n of one file with line n of the other; the counts are compared at the end."""
    common, counts, odd = 0, [0, 0], ""
    for left, right in zip_longest(read_lines(source), read_lines(target)):
        counts[0] += left is not None
        counts[1] += right is not None
        if left is None or right is None:
            odd = odd or (right if left is None else left)
            continue
        common += 1
        yield left, right
    if counts[0] != counts[1]:
        longer = source if counts[0] > counts[1] else target
        fault = f"{counts[0]:,} lines in {source}, {counts[1]:,} in {target}; the first odd one is "
        fault += f"line {common + 1} of {longer}: {shorten(odd)!r}"
        expected = "as many lines in one file as in the other"
        fix = "look for a line break inside a sentence before that line"
        raise DataError("reading sentence pairs", fault, expected, fix)


def shorten(text: str, limit: int = 60) -> str:
    """The beginning of a text."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def all_pairs(files: Sequence[str | Path]) -> Iterator[Pair]:
    """The pairs of files, which may be a source and a target file."""
    return (pair for _, pair in named_pairs(files))


def named_pairs(files: Sequence[str | Path]) -> Iterator[tuple[str, Pair]]:
    """The pairs of files with the place of each, such as `train:12`: file and line."""
    for source, target in couples(files):
        name = source.name.partition(".")[0]
        for number, pair in enumerate(read_pairs(source, target), 1):
            yield f"{name}:{number}", pair


def couples(files: Sequence[str | Path]) -> list[tuple[Path, Path | None]]:
    """TSV files, also those under folders, each alone; two other files are source and target."""
    paths = [Path(file) for file in files]
    if len(paths) == 2 and not any(".tsv" in path.suffixes or path.is_dir() for path in paths):
        return [(paths[0], paths[1])]
    return [(path, None) for path in find_files(paths)]
