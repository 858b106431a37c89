"""The fifteen tasks of length generalisation, with exact answers (Delétang 2023).

A task maps a sequence of small numbers to one. The Transformer and its rivals learn it on lengths
1 to 40 and are asked for 41 to 500. Answers that may end early stop at the mark END and are
filled up with zeros, which do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from random import Random
from typing import NamedTuple

from regard.errors import UsageError, check_known

END = 2  # ends an answer of bits
POP, PUSH_0, PUSH_1 = 2, 3, 4  # actions on a stack of bits
MISSING, FILLER = 2, 3  # of a word written twice
OPERATOR = 2  # between two numbers
BASE = 5
SIGNS = "01234+-*()x="  # of arithmetic modulo five; a symbol is a place in it
PLUS, MINUS, TIMES, OPEN, CLOSE, X, EQUALS = range(BASE, len(SIGNS))


class Published(NamedTuple):
    """Published accuracy in per cent, lengths 41 to 500, the best of ten seeds.

    Six rows were compared with a second source, the others are as remembered.
    """

    rnn: float
    stack_rnn: float
    tape_rnn: float
    transformer: float
    lstm: float


@dataclass(frozen=True)
class LengthTask:
    """A task: how many symbols come in and go out, questions of a length, and the answer."""

    name: str
    level: str
    inputs: int
    outputs: int
    chance: float
    published: Published
    ask: Callable[[int, Random], list[int]]
    answer: Callable[[Sequence[int]], list[int]]
    least: int = 1

    def sample(self, length: int, rng: Random) -> tuple[list[int], list[int]]:
        """A question of this length (some tasks: one shorter where it must be odd), the answer."""
        if length < self.least:
            raise UsageError(f"asking for {self.name}", f"length {length}", f"{self.least} or more")
        question = self.ask(length, rng)
        return question, self.answer(question)

    def counts(self, answer: Sequence[int]) -> list[bool]:
        """Which symbols of an answer are scored: those up to its END, if it has one."""
        if self.outputs != 3:
            return [True] * len(answer)
        last = answer.index(END)
        return [n <= last for n in range(len(answer))]


# Questions -------------------------------------------------------------------------------------


def digits(base: int) -> Callable[[int, Random], list[int]]:
    """Any sequence of numbers below the base."""
    return lambda length, rng: rng.choices(range(base), k=length)


def ask_stack(length: int, rng: Random) -> list[int]:
    """Bits of a stack, bottom first, then actions."""
    bits = rng.randrange(1, length) if length > 1 else 1
    return rng.choices((0, 1), k=bits) + rng.choices((POP, PUSH_0, PUSH_1), k=length - bits)


def ask_missing(length: int, rng: Random) -> list[int]:
    """A word twice, one symbol of it missing; a filler behind it when the length is odd."""
    half = rng.choices((0, 1), k=length // 2)
    word = half + half
    word[rng.randrange(len(word))] = MISSING
    return word + [FILLER] * (length % 2)


def ask_numbers(length: int, rng: Random) -> list[int]:
    """Two binary numbers, smallest bit first, with an operator between; short: one number."""
    bits = rng.choices((0, 1), k=length)
    if length > 2:
        bits[rng.randrange(1, length - 1)] = OPERATOR
    return bits


def ask_flat_expression(length: int, rng: Random) -> list[int]:
    """Digits with + - * between them; one shorter than asked for when the length is even."""
    word = [rng.randrange(BASE)]
    while len(word) + 2 <= length:
        word += [rng.choice((PLUS, MINUS, TIMES)), rng.randrange(BASE)]
    return word


def ask_expression(length: int, rng: Random, times: bool = True) -> list[int]:
    """Digits with + - *, brackets and minus signs, of exactly this length."""
    if length <= 4:  # d, -d, (d) or (-d)
        inner = [MINUS] * (length % 2 == 0) + [rng.randrange(BASE)]
        return [OPEN, *inner, CLOSE] if length > 2 else inner
    left = rng.randrange(1, length - 3)
    operator = rng.choice((PLUS, MINUS, TIMES) if times else (PLUS, MINUS))
    one, two = ask_expression(left, rng, times), ask_expression(length - left - 3, rng, times)
    return [OPEN, *one, operator, *two, CLOSE]


def ask_equation(length: int, rng: Random) -> list[int]:
    """An expression without products, one digit of it x, and what it is equal to."""
    word = ask_expression(length - 2, rng, times=False)
    right = value(word)
    word[rng.choice([n for n, sign in enumerate(word) if sign < BASE])] = X
    return [*word, EQUALS, *right]


# Answers ---------------------------------------------------------------------------------------


def stack(word: Sequence[int]) -> list[int]:
    """The stack at the end, top first; taking from an empty stack does nothing."""
    bits: list[int] = []
    for symbol in word:
        if symbol == POP:
            del bits[-1:]
        else:
            bits.append(symbol - PUSH_0 if symbol > POP else symbol)
    return ended(bits[::-1], len(word) + 1)


def ended(answer: list[int], length: int) -> list[int]:
    """With its END, and zeros to the length."""
    return answer + [END] + [0] * (length - len(answer) - 1)


def missing(word: Sequence[int]) -> list[int]:
    """The symbol of the other copy."""
    half, at = len(word) // 2, list(word).index(MISSING)
    return [word[at - half if at >= half else at + half]]


def add(word: Sequence[int]) -> list[int]:
    """The sum, smallest bit first."""
    return ended(to_bits(sum(numbers(word))), len(word) + 1)


def multiply(word: Sequence[int]) -> list[int]:
    """The product, smallest bit first."""
    one, two = numbers(word)
    return ended(to_bits(one * two if OPERATOR in word else one), len(word) + 1)


def numbers(word: Sequence[int]) -> tuple[int, int]:
    """The numbers before and behind the operator; without one: a number and 0."""
    at = list(word).index(OPERATOR) if OPERATOR in word else len(word)
    one, two = (sum(bit << n for n, bit in enumerate(part)) for part in (word[:at], word[at + 1 :]))
    return one, two


def to_bits(number: int) -> list[int]:
    """A number in binary, smallest bit first; zero has one bit."""
    return [number >> n & 1 for n in range(max(number.bit_length(), 1))]


def root(word: Sequence[int]) -> list[int]:
    """The whole square root of a binary number, largest bit first, in half as many bits."""
    size = (len(word) + 1) // 2
    number = isqrt(sum(bit << n for n, bit in enumerate(reversed(word))))
    return [number >> n & 1 for n in range(size - 1, -1, -1)]


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


# The table -------------------------------------------------------------------------------------


REGULAR, STACK, TAPE = "regular", "deterministic context-free", "context-sensitive"
BIT, FIFTH = 0.5, 0.2

_ROWS: tuple[LengthTask, ...] = (
    LengthTask("even-pairs", REGULAR, 2, 2, BIT, Published(100, 100, 100, 96.4, 100),
               digits(2), lambda word: [int(word[0] == word[-1])]),  # 01 and 10 evenly often
    LengthTask("modular-arithmetic-simple", REGULAR, 8, 5, FIFTH,
               Published(100, 100, 100, 24.2, 100), ask_flat_expression, value),
    LengthTask("parity", REGULAR, 2, 2, BIT, Published(100, 100, 100, 52.0, 100),
               digits(2), lambda word: [sum(word) % 2]),
    LengthTask("cycle-navigation", REGULAR, 3, 5, FIFTH, Published(100, 100, 100, 61.9, 100),
               digits(3), lambda word: [sum(step - 1 for step in word) % 5]),  # a ring of five
    LengthTask("stack-manipulation", STACK, 5, 3, BIT, Published(56.0, 100, 100, 57.5, 59.1),
               ask_stack, stack),
    LengthTask("reverse", STACK, 2, 2, BIT, Published(62.0, 100, 100, 62.3, 60.9),
               digits(2), lambda word: list(word[::-1])),
    LengthTask("modular-arithmetic", STACK, 10, 5, FIFTH, Published(41.3, 96.1, 95.4, 32.5, 59.2),
               ask_expression, value),
    LengthTask("solve-equation", STACK, 12, 5, FIFTH, Published(51.0, 56.2, 64.4, 25.7, 67.8),
               ask_equation, solve, least=3),
    LengthTask("duplicate", TAPE, 2, 2, BIT, Published(50.3, 52.8, 100, 52.8, 57.6),
               digits(2), lambda word: [*word, *word]),
    LengthTask("missing-duplicate", TAPE, 4, 2, BIT, Published(52.3, 55.2, 100, 56.4, 54.3),
               ask_missing, missing, least=2),
    LengthTask("odds-first", TAPE, 2, 2, BIT, Published(51.0, 51.9, 100, 52.8, 55.6),
               digits(2), lambda word: [*word[1::2], *word[::2]]),  # as the study's code
    LengthTask("binary-addition", TAPE, 3, 3, BIT, Published(50.3, 52.7, 100, 54.3, 55.5),
               ask_numbers, add),
    LengthTask("binary-multiplication", TAPE, 3, 3, BIT, Published(50.0, 52.7, 58.5, 52.2, 53.1),
               ask_numbers, multiply),
    LengthTask("square-root", TAPE, 2, 2, BIT, Published(54.3, 56.5, 57.8, 52.4, 57.5),
               digits(2), root),
    LengthTask("bucket-sort", TAPE, 5, 5, FIFTH, Published(27.9, 78.1, 70.7, 91.9, 99.3),
               digits(5), sorted),
)  # fmt: skip
TASKS: dict[str, LengthTask] = {task.name: task for task in _ROWS}
"""The tasks by name, in the order of the study's table."""


def find_task(name: str) -> LengthTask:
    """The task of a name."""
    check_known(name, TASKS, "finding a task", f"unknown name {name!r}")
    return TASKS[name]
