"""What languages are made of besides automata and grammars: an oracle, counts, uniform draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, prod
from random import Random
from typing import Protocol

from regard.errors import DataError
from regard.lang import counter
from regard.lang.counter import CounterMachine
from regard.lang.cyk import Chart

Word = tuple[str, ...]


class Source(Protocol):
    """What a language is made of."""

    def failure(self, word: Sequence[str]) -> int | None:
        """Where a word goes wrong; its length when it ends too soon; None for a member."""

    def count(self, length: int) -> int:
        """How many members have this length."""

    def sample(self, length: int, rng: Random) -> Word:
        """A member of this length, each as likely as any other."""


@dataclass(frozen=True)
class Blocks:
    """Runs of words of one kind each; runs of one group are equally long: a^m b^n c^m d^n."""

    machine: CounterMachine
    blocks: tuple[tuple[str, ...], ...]
    groups: tuple[int, ...]
    least: int = 0

    def failure(self, word: Sequence[str]) -> int | None:
        """Where the counter machine stops."""
        return self.machine.failure(word)

    def sizes(self, length: int) -> list[tuple[int, ...]]:
        """The lengths of the runs of each group that add up to a length."""
        times = [self.groups.count(group) for group in range(max(self.groups) + 1)]
        return _sizes(length, times, self.least)

    def ways(self, sizes: tuple[int, ...]) -> int:
        """How many words have runs of these lengths."""
        runs = zip(self.blocks, self.groups, strict=True)
        return prod(len(words) ** sizes[group] for words, group in runs)

    def count(self, length: int) -> int:
        """How many words there are of this length."""
        return sum(map(self.ways, self.sizes(length)))

    def sample(self, length: int, rng: Random) -> Word:
        """One of them."""
        sizes = self.sizes(length)
        if not sizes:
            raise DataError("drawing a word", f"none of length {length}", "a length that occurs")
        rank = rng.randrange(self.count(length))
        for chosen in sizes:
            if rank < self.ways(chosen):
                break
            rank -= self.ways(chosen)
        runs = zip(self.blocks, self.groups, strict=True)
        return tuple(w for words, group in runs for w in rng.choices(words, k=chosen[group]))


def _sizes(length: int, times: list[int], least: int) -> list[tuple[int, ...]]:
    """Whole numbers from `least` up whose sum, each so many times, is the length."""
    first, *rest = times
    if not rest:
        whole = length % first == 0 and length // first >= least
        return [(length // first,)] if whole else []
    return [
        (n, *more)
        for n in range(least, length // first + 1)
        for more in _sizes(length - n * first, rest, least)
    ]


@dataclass(frozen=True)
class Halves:
    """Words whose second half is the first, or the first backwards."""

    alphabet: Word
    backwards: bool

    def partner(self, at: int, length: int) -> int:
        """The place in the first half that a place in the second must agree with."""
        return length - 1 - at if self.backwards else at - length // 2

    def failure(self, word: Sequence[str]) -> int | None:
        """The first place of the second half that does not agree."""
        size = len(word)
        unknown = next((n for n, symbol in enumerate(word) if symbol not in self.alphabet), None)
        if unknown is not None:
            return unknown
        if size % 2 and not self.backwards:
            return size
        late = range((size + 1) // 2, size)
        return next((n for n in late if word[n] != word[self.partner(n, size)]), None)

    def count(self, length: int) -> int:
        """How many words there are of this length."""
        if length % 2 and not self.backwards:
            return 0
        return int(len(self.alphabet) ** ((length + 1) // 2))

    def sample(self, length: int, rng: Random) -> Word:
        """One of them."""
        if not self.count(length):
            raise DataError("drawing a word", f"none of length {length}", "an even length")
        half = rng.choices(self.alphabet, k=(length + 1) // 2)
        return tuple(half + (half[: length // 2][::-1] if self.backwards else half[: length // 2]))


@dataclass(frozen=True)
class Unambiguous:
    """A grammar that is known to derive each word once, so that draws need no second look."""

    chart: Chart

    def failure(self, word: Sequence[str]) -> int | None:
        """Where the grammar has no way on."""
        return self.chart.failure(word)

    def count(self, length: int) -> int:
        """How many words there are of this length."""
        return self.chart.derivations(length)

    def sample(self, length: int, rng: Random) -> Word:
        """One of them."""
        return self.chart.sample(length, rng, unambiguous=True)


@dataclass(frozen=True)
class Majority:
    """More ones than zeros."""

    def failure(self, word: Sequence[str]) -> int | None:
        """The end, or a symbol that is no digit."""
        return counter.MAJORITY.failure(word)

    def count(self, length: int) -> int:
        """How many words there are of this length."""
        return sum(comb(length, ones) for ones in range(length // 2 + 1, length + 1))

    def sample(self, length: int, rng: Random) -> Word:
        """A random word, or its opposite when that has more ones."""
        if not length:
            raise DataError("drawing a word", "none of length 0", "a length that occurs")
        while True:
            word = tuple(rng.choices("01", k=length))
            if 2 * word.count("1") != length:
                break
        if 2 * word.count("1") > length:
            return word
        return tuple("10"[int(digit)] for digit in word)
