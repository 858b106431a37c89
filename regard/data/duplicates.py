"""Which lines were seen before: repeats in a corpus, and test lines in the training data (N14).

Lines are compared by 64-bit hashes of their text, after Unicode (NFC), case and blanks are made
alike; a false find has a chance of lines × test lines / 2⁶⁴. Training data is streamed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from regard.data.pairs import Pair
from regard.data.results import Overlap

SHOWN = 5  # lines named in a report
WORDS = 8  # shorter lines of running text, such as headings, recur by chance


def normalise(text: str) -> str:
    """One form for texts that differ in case, blanks or Unicode composition only."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def hash_text(text: str) -> int:
    """64 bits; Python's own hash, which holds for one process."""
    return hash(normalise(text))


def hash_pair(pair: Pair) -> tuple[int, int, int]:
    """Hashes of source, target and both."""
    source, target = hash_text(pair[0]), hash_text(pair[1])
    return source, target, hash((source, target))


def repeated(hashes: Sequence[int]) -> list[int]:
    """Places of what was there before, in order."""
    values = np.asarray(hashes, np.int64)
    order = np.argsort(values, kind="stable")
    again = values[order][1:] == values[order][:-1]
    return sorted(order[1:][again].tolist())


def overlap(train: Iterable[str], test: Iterable[str], words: int = 1) -> Overlap:
    """Test lines that stand in the training lines; those of fewer words do not count."""
    lines = ((n, text) for n, text in enumerate(test, 1) if count_words(text) >= words)
    wanted = ((n, (hash_text(text),)) for n, text in lines)
    return search(((hash_text(text),) for text in train), wanted, ["line"])["line"]


def pair_overlap(train: Iterable[Pair], test: Iterable[Pair]) -> dict[str, Overlap]:
    """Test pairs that stand in the training pairs: by source, by target, and by both."""
    pairs = ((n, pair) for n, pair in enumerate(test, 1) if "".join(pair).strip())
    wanted = ((n, hash_pair(pair)) for n, pair in pairs)
    return search(map(hash_pair, train), wanted, ["source", "target", "pair"])


def search(
    train: Iterable[tuple[int, ...]],
    test: Iterable[tuple[int, tuple[int, ...]]],
    sides: Sequence[str],
) -> dict[str, Overlap]:
    """By each side: numbered lines of test data whose hash is one of the training data."""
    rows = list(test)
    wanted = [{hashes[side] for _, hashes in rows} for side in range(len(sides))]
    seen: list[set[int]] = [set() for _ in sides]
    for hashes in train:
        for known, found, value in zip(wanted, seen, hashes, strict=True):
            if value in known:
                found.add(value)
    overlaps = {}
    for side, name in enumerate(sides):
        lines = [n for n, hashes in rows if hashes[side] in seen[side]]
        overlaps[name] = Overlap(len(lines), len(rows), tuple(lines[:SHOWN]))
    return overlaps


def count_words(text: str) -> int:
    """Words with a letter or digit, so that a title between marks is no sentence; 1 if none has."""
    words = text.split()
    return sum(any(map(str.isalnum, word)) for word in words) or min(1, len(words))
