"""Arithmetic modulo five as sequences of small numbers: made to a length, and worked out.

0 to 4 are digits; then come + - * ( ) x =, in the order of SIGNS.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

BASE = 5
SIGNS = "01234+-*()x="
PLUS, MINUS, TIMES, OPEN, CLOSE, X, EQUALS = range(BASE, len(SIGNS))


def flat_expression(length: int, rng: Random) -> list[int]:
    """Digits with + - * between them; one shorter than asked for when the length is even."""
    word = [rng.randrange(BASE)]
    while len(word) + 2 <= length:
        word += [rng.choice((PLUS, MINUS, TIMES)), rng.randrange(BASE)]
    return word


def expression(length: int, rng: Random, times: bool = True) -> list[int]:
    """Digits with + - *, brackets and minus signs, of exactly this length."""
    if length <= 4:  # d, -d, (d) or (-d)
        inner = [MINUS] * (length % 2 == 0) + [rng.randrange(BASE)]
        return [OPEN, *inner, CLOSE] if length > 2 else inner
    left = rng.randrange(1, length - 3)
    operator = rng.choice((PLUS, MINUS, TIMES) if times else (PLUS, MINUS))
    one, two = expression(left, rng, times), expression(length - left - 3, rng, times)
    return [OPEN, *one, operator, *two, CLOSE]


def equation(length: int, rng: Random) -> list[int]:
    """An expression without products, one digit of it x, and what it is equal to."""
    word = expression(length - 2, rng, times=False)
    right = value(word)
    word[rng.choice([n for n, sign in enumerate(word) if sign < BASE])] = X
    return [*word, EQUALS, *right]


def value(word: Sequence[int]) -> list[int]:
    """What an expression comes to, modulo five; products before sums."""
    frames = [(0, 1)]  # of each open bracket: the sum before the term, the product of the term
    begun = False  # whether an operator would be one between two
    for sign in word:
        total, factor = frames[-1]
        if sign < BASE:
            frames[-1] = total, factor * sign
        elif sign == OPEN:
            frames.append((0, 1))
        elif sign == CLOSE:
            frames.pop()
            before, outer = frames[-1]
            frames[-1] = before, outer * (total + factor) % BASE
        elif sign != TIMES and begun:
            frames[-1] = (total + factor) % BASE, 1 if sign == PLUS else -1
        elif sign == MINUS:
            frames[-1] = total, -factor
        begun = sign < BASE or sign == CLOSE
    total, factor = frames[-1]
    return [(total + factor) % BASE]


def solve(word: Sequence[int]) -> list[int]:
    """The x that makes an equation true; there is one, for x is neither multiplied nor repeated."""
    left, right = list(word[:-2]), word[-1]
    for x in range(BASE):
        if value([x if sign == X else sign for sign in left]) == [right]:
            break
    return [x]


def show(word: Sequence[int]) -> str:
    """An expression as people write it."""
    return "".join(SIGNS[sign] for sign in word)
