"""One split for all rungs of `regard ladder`: training, validation and test files, tokenizer."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from regard.data.duplicates import WORDS, count_words, normalise
from regard.data.pairs import all_pairs, read_pairs
from regard.data.text_files import read_lines, read_parts
from regard.errors import DataError, check_known
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trainers import KINDS, train_tokenizer
from regard.train.data import ROLES

DOING = "climbing the ladder"
LEAST = 20  # lines that can be split
MOST = 1000  # pairs that are held out for each of validation and test
PIECES = 4000  # tokens of pairs


class Split(NamedTuple):
    """Files of a ladder, and how many lines each has."""

    train: Path
    valid: Path
    test: Path
    tokenizer: Path
    lines: dict[str, int]
    taken_out: int
    """Lines of the training part that stood in the others too."""


def is_pairs(file: str) -> bool:
    """Whether a file holds sentence pairs, by its name."""
    return ".tsv" in Path(file).suffixes


def make_split(args: argparse.Namespace, folder: Path) -> Split:
    """Write the three parts and the tokenizer of the training part."""
    pairs = is_pairs(args.file)
    kind = args.tokens or ("pieces" if pairs else "spaced")
    check_known(kind, KINDS, DOING, f"--tokens {kind}")
    parts, taken_out = cut(args, pairs)
    folder.mkdir(parents=True)
    files = {name: folder / f"{name}.{'tsv' if pairs else 'txt'}" for name in parts}
    for name, path in files.items():
        path.write_text("".join(f"{row}\n" for row in parts[name]), encoding="utf-8")
    place = folder / "tokenizer"
    learn(args, kind, files["train"], pairs).save(place)
    lines = {name: len(rows) for name, rows in parts.items()}
    return Split(files["train"], files["valid"], files["test"], place, lines, taken_out)


def cut(args: argparse.Namespace, pairs: bool) -> tuple[dict[str, list[str]], int]:
    """The rows of each part, and how many training rows were left out as others have them."""
    rows = read_rows(args.file, pairs)
    if len(rows) < LEAST:
        what = "pairs" if pairs else "lines"
        raise DataError(DOING, f"{len(rows)} {what} in {args.file}", f"{LEAST} or more")
    held = max(1, min(len(rows) // LEAST, MOST if pairs else len(rows)))
    parts: dict[str, list[str]] = {}
    for name, file in (("test", args.test), ("valid", args.valid)):
        if file is not None:
            parts[name] = read_rows(file, pairs)
        else:
            rows, parts[name] = rows[:-held], rows[-held:]
        if not any(row.strip() for row in parts[name]):
            raise DataError(DOING, f"nothing in the {name} data", "one line or more")
    keys = pair_keys if pairs else text_keys
    seen = {key for part in parts.values() for row in part for key in keys(row)}
    train = [row for row in rows if seen.isdisjoint(keys(row))]
    if len(train) < LEAST // 2:
        found = f"{len(train)} lines to train on without those of the test and validation data"
        raise DataError(DOING, found, f"{LEAST // 2} or more", "give data that they do not share")
    return {"train": train, "valid": parts["valid"], "test": parts["test"]}, len(rows) - len(train)


def read_rows(file: str, pairs: bool) -> list[str]:
    """The lines of a file; of pairs, checked."""
    return ["\t".join(pair) for pair in read_pairs(file)] if pairs else list(read_lines(file))


def pair_keys(row: str) -> Iterable[object]:
    """What must not stand in two parts: a source, a target."""
    return [(n, normalise(side)) for n, side in enumerate(row.split("\t")) if side.strip()]


def text_keys(row: str) -> Iterable[object]:
    """The same of a text: a line, unless it is so short that it recurs by chance."""
    return [normalise(row)] if count_words(row) >= WORDS else []


def learn(args: argparse.Namespace, kind: str, train: Path, pairs: bool) -> Tokenizer:
    """A tokenizer of the training part."""
    roles, wrap = ROLES["seq2seq" if pairs else "lm"]
    size = args.vocab or (PIECES if pairs else None)
    least = args.min_count if kind in ("spaced", "words") else 1
    sides = (f"{side}\n" for pair in all_pairs([str(train)]) for side in pair)
    texts = sides if pairs else read_parts([train])
    return train_tokenizer(texts, kind, size, specials=roles, min_count=least, wrap=wrap)
