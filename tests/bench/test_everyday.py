"""The measure of everyday words: what counts as right, and that its table can be judged by."""

from __future__ import annotations

import re
from collections import Counter

from bench.everyday import Case, is_right, read_cases
from regard.data.word_frequencies import words


def test_whole_words() -> None:
    """In any case and with any apostrophe, but no part of a longer word."""
    case = Case("auberge", "", ["inns?", "can't stay"])
    assert is_right(case, "The Inn was full.")
    assert is_right(case, "two inns.")
    assert is_right(case, "You can’t stay.")
    assert not is_right(case, "the inner harbor")
    assert not is_right(case, "twinn")


def test_alternatives_stay_inside() -> None:
    """What stands on either side of a bar is held to whole words too."""
    assert not is_right(Case("x", "", ["pie|tart"]), "a piece of a start")


def test_table() -> None:
    """Three sentences a word, each with the word in some form, and expressions that compile."""
    cases = read_cases()
    assert len({case.source for case in cases}) == len(cases) == 222
    assert {*Counter(case.word for case in cases).values()} == {3}
    for case in cases:
        last = words(case.word)[-1]
        assert any(word.startswith(last[:3]) for word in words(case.source.lower())), case
        assert all(one == one.strip() != "" and re.compile(one) for one in case.accepted), case
        assert not is_right(case, ""), case
        assert not is_right(case, case.source) or case.word in ("bouillon", "baguettes"), case
