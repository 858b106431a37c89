"""How rare rules are among random lines: odds of draws, and lines that are none."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from regard.rules.discovery import discover_rule
from regard.rules.encoded_lines import encode
from regard.rules.results import LabelledLine
from regard.rules.size_principle import alike, rarities

WIDE, NARROW = (lambda x: "a" in x[:1]), (lambda x: list(x[:2]) == ["a", "a"])


def draws(keeps, count, symbols="ab", length=8, seed=0):
    """Random lines that keep a test."""
    rng, made = Random(seed), list[tuple[str, ...]]()
    while len(made) < count:
        line = tuple(rng.choices(symbols, k=length))
        if keeps(line):
            made.append(line)
    return made


def gain(lines):
    """Bits of the narrow rule beside the wide one."""
    rows = [np.array([test(line) for line in lines]) for test in (WIDE, NARROW)]
    return rarities(encode(lines), rows, [WIDE, NARROW], np.random.default_rng(0))[1]


def test_the_gain_is_the_odds_of_the_draw():
    """A quarter of all lines against a half, each side by its own odds."""
    lines = draws(NARROW, 200) + draws(lambda x: not NARROW(x), 200, seed=1)
    odds = 200 * math.log2(4) + 200 * math.log2(4 / 3) - 400 * math.log2(2)
    assert gain(lines) == pytest.approx(odds, rel=0.25)


def test_lines_that_are_no_draws_say_nothing():
    """In every line each token stands twice: being rare is then no merit."""
    lines = draws(NARROW, 50) + draws(lambda x: not NARROW(x), 50, seed=1)
    doubled = [tuple(token for token in line for _ in "12") for line in lines]
    assert gain(doubled) == 0.0
    once, twice = (encode(words) for words in (lines[50:], doubled[50:]))
    assert alike(once, encode(draws(lambda x: True, 100, seed=2))) and not alike(once, twice)


def test_the_longer_of_two_words_that_fit():
    """No line has e g e without h after it, which is no wonder only if h is part of the rule."""

    def keeps(x):
        rest = iter(x)
        return all(symbol in rest for symbol in "egeh")

    sides = draws(keeps, 30, "abcdefgh"), draws(lambda x: not keeps(x), 30, "abcdefgh", seed=1)
    lines = [
        LabelledLine(words, side == 0, "drawn", n, "")
        for side, drawn in enumerate(sides)
        for n, words in enumerate(drawn)
    ]
    assert discover_rule(lines, seconds=30).hypotheses[0].formula.args == (("e", "g", "e", "h"),)
