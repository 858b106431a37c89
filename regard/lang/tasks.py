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

from regard.errors import UsageError, did_you_mean
from regard.lang.expressions import equation, expression, flat_expression, solve, value

END = 2  # ends an answer of bits
POP, PUSH_0, PUSH_1 = 2, 3, 4  # actions on a stack of bits
MISSING, FILLER = 2, 3  # of a word written twice
OPERATOR = 2  # between two numbers


class Score(NamedTuple):
    """Published accuracy in per cent, lengths 41 to 500, the best of ten seeds.

    Six rows were compared with a second source, the others are as remembered.
    """

    rnn: float
    stack_rnn: float
    tape_rnn: float
    transformer: float
    lstm: float


@dataclass(frozen=True)
class Task:
    """A task: how many symbols come in and go out, questions of a length, and the answer."""

    name: str
    level: str
    inputs: int
    outputs: int
    chance: float
    published: Score
    ask: Callable[[int, Random], list[int]]
    answer: Callable[[Sequence[int]], list[int]]
    answer_length: Callable[[int], int]
    least: int = 1

    def sample(self, length: int, rng: Random) -> tuple[list[int], list[int]]:
        """A question of this length (some tasks: one shorter where it must be odd), the answer."""
        if length < self.least:
            expected = f"{self.least} or more"
            raise UsageError(f"asking for {self.name}", f"length {length}", expected)
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
    stack = rng.choices((0, 1), k=bits)
    return stack + rng.choices((POP, PUSH_0, PUSH_1), k=length - bits)


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


# Answers ---------------------------------------------------------------------------------------


def even_pairs(word: Sequence[int]) -> list[int]:
    """1 when 01 and 10 together occur an even number of times."""
    return [int(word[0] == word[-1])]


def parity(word: Sequence[int]) -> list[int]:
    """The number of ones modulo 2."""
    return [sum(word) % 2]


def cycle(word: Sequence[int]) -> list[int]:
    """Where steps of -1, 0 and +1 (written 0, 1, 2) lead on a ring of five."""
    return [sum(action - 1 for action in word) % 5]


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


def odds_first(word: Sequence[int]) -> list[int]:
    """Places 1, 3, … counted from 0, then 0, 2, …, as the study's code has it, not its text."""
    return [*word[1::2], *word[::2]]


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


# The table -------------------------------------------------------------------------------------


def one(length: int) -> int:
    """One symbol."""
    return 1


def same(length: int) -> int:
    """As many symbols as the question has."""
    return length


def more(length: int) -> int:
    """One more, for the END."""
    return length + 1


REGULAR, STACK, TAPE = "regular", "deterministic context-free", "context-sensitive"
BIT, FIFTH = 0.5, 0.2

_ROWS: tuple[Task, ...] = (
    Task("even-pairs", REGULAR, 2, 2, BIT, Score(100, 100, 100, 96.4, 100),
         digits(2), even_pairs, one),
    Task("modular-arithmetic-simple", REGULAR, 8, 5, FIFTH, Score(100, 100, 100, 24.2, 100),
         flat_expression, value, one),
    Task("parity", REGULAR, 2, 2, BIT, Score(100, 100, 100, 52.0, 100), digits(2), parity, one),
    Task("cycle-navigation", REGULAR, 3, 5, FIFTH, Score(100, 100, 100, 61.9, 100),
         digits(3), cycle, one),
    Task("stack-manipulation", STACK, 5, 3, BIT, Score(56.0, 100, 100, 57.5, 59.1),
         ask_stack, stack, more),
    Task("reverse", STACK, 2, 2, BIT, Score(62.0, 100, 100, 62.3, 60.9),
         digits(2), lambda word: list(word[::-1]), same),
    Task("modular-arithmetic", STACK, 10, 5, FIFTH, Score(41.3, 96.1, 95.4, 32.5, 59.2),
         expression, value, one),
    Task("solve-equation", STACK, 12, 5, FIFTH, Score(51.0, 56.2, 64.4, 25.7, 67.8),
         equation, solve, one, least=3),
    Task("duplicate", TAPE, 2, 2, BIT, Score(50.3, 52.8, 100, 52.8, 57.6),
         digits(2), lambda word: [*word, *word], lambda length: 2 * length),
    Task("missing-duplicate", TAPE, 4, 2, BIT, Score(52.3, 55.2, 100, 56.4, 54.3),
         ask_missing, missing, one, least=2),
    Task("odds-first", TAPE, 2, 2, BIT, Score(51.0, 51.9, 100, 52.8, 55.6),
         digits(2), odds_first, same),
    Task("binary-addition", TAPE, 3, 3, BIT, Score(50.3, 52.7, 100, 54.3, 55.5),
         ask_numbers, add, more),
    Task("binary-multiplication", TAPE, 3, 3, BIT, Score(50.0, 52.7, 58.5, 52.2, 53.1),
         ask_numbers, multiply, more),
    Task("square-root", TAPE, 2, 2, BIT, Score(54.3, 56.5, 57.8, 52.4, 57.5),
         digits(2), root, lambda length: (length + 1) // 2),
    Task("bucket-sort", TAPE, 5, 5, FIFTH, Score(27.9, 78.1, 70.7, 91.9, 99.3),
         digits(5), sorted, same),
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _ROWS}
"""The tasks by name, in the order of the study's table."""


def task(name: str) -> Task:
    """The task of a name."""
    if name not in TASKS:
        fix = did_you_mean(name, TASKS, 1, otherwise="see `regard lang list`")
        raise UsageError("finding a task", f"unknown name {name!r}", ", ".join(TASKS), fix)
    return TASKS[name]
