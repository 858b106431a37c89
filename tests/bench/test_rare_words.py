"""The measure of rare words: which cases there are, and the recall in closed form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench import rare_words
from bench.rare_words import Case, find_cases, recall
from regard.data.word_frequencies import words


def test_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words seen often enough, no name, not copied; small words of the reference do not count."""

    def same_place(kit: Any, pairs: Any) -> Any:
        for source, target in pairs:
            yield torch.eye(len(words(target)), len(words(source)))

    monkeypatch.setattr(rare_words, "align_pairs", same_place)
    monkeypatch.setattr(rare_words, "SMALL", 1)
    pairs = [
        ("le balbuzard dort", "the osprey sleeps"),
        ("le Balbuzard dort", "the osprey sleeps"),
        ("le balbuzard dort", "the balbuzard the"),
        ("balbuzard", "the"),
    ]
    counts = {"balbuzard": 2, "dort": 9}
    judge: Any = None
    assert list(find_cases(judge, pairs, counts, 1, 3)) == [Case(0, "balbuzard", ["osprey"])]
    assert list(find_cases(judge, pairs, counts, 3, 3)) == []


def test_recall() -> None:
    cases = [Case(0, "x", ["fish", "hawk"]), Case(1, "y", ["pie"]), Case(1, "z", ["face"])]
    texts = {0: "A hawk!", 1: "In the Face, not a pier."}
    assert recall(cases, texts) == (2 / 4, 1 / 3)
