"""How good are vectors of words? Analogies that they solve, and people's judgements they share."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np

from regard.data.statistics import spearman
from regard.data.text_files import read_lines
from regard.errors import DataError
from regard.history.word_vectors import WordVectors

OWN = Path(__file__).with_name("analogies.txt")
"""Pairs of words of our own, for whoever has no set at hand."""
BATCH = 256  # questions that are answered at once
Questions = Mapping[str, Sequence[Sequence[str]]]


def read_questions(path: str | os.PathLike[str]) -> dict[str, list[list[str]]]:
    """Sections begun by `: name`, of questions `a b c d`; or of pairs, each against each other."""
    sections: dict[str, list[list[str]]] = {}
    name = "all"
    for number, line in enumerate(read_lines(path), 1):
        parts = line.split()
        if parts[:1] == [":"]:
            name = " ".join(parts[1:])
        elif parts and not line.startswith("#"):
            rows = sections.setdefault(name, [])
            if len(parts) not in (2, 4) or len(parts) != len([*rows, parts][0]):
                expected = "four words, or two in the whole section, or `: section`"
                raise DataError(f"reading {path}", f"line {number}: {line[:60]!r}", expected)
            rows.append(parts)
    questions = {
        name: rows if len(rows[0]) == 4 else [[*a, *b] for a, b in permutations(rows, 2)]
        for name, rows in sections.items()
    }
    if not any(questions.values()):
        raise DataError(f"reading {path}", "no questions", "lines of four words, or pairs of words")
    return questions


def solve(vectors: WordVectors, questions: Questions) -> dict[str, tuple[int, int, int]]:
    """Of each section's questions how many are right, asked, and skipped: without some vector.

    Right: the nearest word, the three of the question left out, is the fourth.
    """
    scores_of = {}
    for name, rows in questions.items():
        placed = [[place(vectors, word) for word in row] for row in rows]
        known = np.array([row for row in placed if min(row) >= 0], np.int64).reshape(-1, 4)
        right = 0
        for start in range(0, len(known), BATCH):
            part = known[start : start + BATCH]
            scores = vectors.analogy_scores(part[:, :3])
            scores[np.arange(len(part))[:, None], part[:, :3]] = -np.inf
            right += int((scores.argmax(1) == part[:, 3]).sum())
        scores_of[name] = right, len(known), len(rows) - len(known)
    return scores_of


def place(vectors: WordVectors, word: str) -> int:
    """The row of a word as it is written, else in lower case; −1 where it has none."""
    return vectors.index.get(word, vectors.index.get(word.lower(), -1))


# Similarity ---------------------------------------------------------------------------------------

Pairs = Sequence[tuple[str, str, float]]


def read_similarity(path: str | os.PathLike[str]) -> list[tuple[str, str, float]]:
    """Lines of two words and how alike people find them; `#` begins a remark."""
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        parts = line.replace(",", "\t").split()
        if not parts or line.startswith("#"):
            continue
        try:
            score = float(parts[2])
        except (IndexError, ValueError):
            if number == 1:
                continue  # the names of columns
            score = math.nan
        if not math.isfinite(score):
            expected = "two words and a number"
            raise DataError(f"reading {path}", f"line {number}: {line[:60]!r}", expected)
        pairs.append((parts[0], parts[1], score))
    if not pairs:
        raise DataError(f"reading {path}", "no pairs", "lines of two words and a number")
    return pairs


def agree(vectors: WordVectors, pairs: Pairs) -> tuple[float, int, int]:
    """Spearman's rank correlation (1904) of cosines with people's order of the same pairs.

    And how many pairs have vectors for both words, and how many have not.
    """
    rows = [(place(vectors, a), place(vectors, b), score) for a, b, score in pairs]
    known = [row for row in rows if min(row[:2]) >= 0]
    if len(known) < 2:
        problem = f"{len(known)} of {len(rows)} pairs with vectors for both words"
        raise DataError("comparing similarities", problem, "2 or more")
    theirs = [score for _, _, score in known]
    if len(set(theirs)) < 2:
        problem = f"{theirs[0]:g} for each of {len(known):,} pairs"
        raise DataError("comparing similarities", problem, "scores that differ")
    ours = [float(vectors.unit[a] @ vectors.unit[b]) for a, b, _ in known]
    return spearman(ours, theirs), len(known), len(rows) - len(known)
