"""A language: an oracle, exact counts, members drawn uniformly, and near misses.

Members of a length are drawn uniformly. Non-members are random words, or near misses: members
with one symbol changed, exchanged, dropped or doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from operator import mul
from random import Random
from typing import Protocol

from regard.errors import DataError
from regard.formal.counter_machine import CounterMachine, block_machine
from regard.formal.dfa import Word

EMPTY = "ε"  # the empty word as text
ATTEMPTS = 200  # draws of a non-member before another way is tried


class WordSource(Protocol):
    """What a language is made of: an automaton, the chart of a grammar, or one of those below."""

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether a word is a member."""

    def count(self, length: int) -> int:
        """How many members have this length."""

    def sample(self, length: int, rng: Random) -> Word:
        """A member of a length that some have, each as likely as any other."""


@dataclass(frozen=True)
class Language:
    """A named language over an alphabet; `kind` is its place in the Chomsky hierarchy."""

    name: str
    kind: str
    summary: str
    alphabet: Word
    source: WordSource

    # Members and others ------------------------------------------------------------------------

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether a word is a member."""
        return self.source.accepts(word)

    def has(self, length: int) -> bool:
        """Whether some member has this length."""
        return self.source.count(length) > 0

    def member(self, length: int, rng: Random) -> Word:
        """A member of a length that some have, each as likely as any other."""
        return self.source.sample(length, rng)

    def stranger(self, length: int, rng: Random, near: bool = False) -> Word:
        """A word that is not a member: random, of this length; or a near miss.

        A near miss is a member whose length is as near as can be, with one edit towards the length.
        """
        close = (length, length - 1, length + 1, length - 2, length + 2)
        size = next((n for n in close if n >= 0 and self.has(n)), None)
        for attempt in range(2 * ATTEMPTS):
            if size is not None and (near or attempt >= ATTEMPTS):
                word = edit(self.member(size, rng), self.alphabet, length - size, rng)
            else:
                word = tuple(rng.choices(self.alphabet, k=length))
            if not self.accepts(word):
                return word
        problem = f"{2 * ATTEMPTS} words of about length {length}, all of them members"
        raise DataError(f"drawing what is not in {self.name}", problem, "another length")

    # Words as text -----------------------------------------------------------------------------

    @property
    def spelt(self) -> bool:
        """Whether words are written without blanks, for all symbols are single characters."""
        return all(len(symbol) == 1 for symbol in self.alphabet)

    def join(self, word: Sequence[str]) -> str:
        """A word as text; ε for the empty one."""
        return ("" if self.spelt else " ").join(word) or EMPTY

    def split(self, text: str) -> Word:
        """The symbols of a line."""
        if text.strip() == EMPTY and EMPTY not in self.alphabet:
            return ()
        if not self.spelt:
            return tuple(text.split())
        return tuple(sign for sign in text if not sign.isspace() or sign in self.alphabet)


def edit(word: Word, alphabet: Word, more: int, rng: Random) -> Word:
    """One symbol dropped (more < 0), added (more > 0), or changed or exchanged with another."""
    edited = list(word)
    kinds = ["add"] if more > 0 or not edited else ["drop"] if more < 0 else ["change", "exchange"]
    if len(alphabet) == 1 and kinds[0] == "change":
        kinds = ["drop", "add"]
    kind = rng.choice(kinds)
    if kind == "add":
        edited.insert(rng.randint(0, len(edited)), rng.choice(alphabet))
    elif kind == "drop":
        del edited[rng.randrange(len(edited))]
    elif kind == "change":
        at = rng.randrange(len(edited))
        edited[at] = rng.choice([symbol for symbol in alphabet if symbol != edited[at]])
    else:
        one, two = rng.randrange(len(edited)), rng.randrange(len(edited))
        edited[one], edited[two] = edited[two], edited[one]
    return tuple(edited)


# What languages are made of besides automata and grammars ---------------------------------------


@dataclass(frozen=True)
class Blocks:
    """Runs of words of one kind each; runs of one group are equally long: a^m b^n c^m d^n."""

    blocks: Sequence[Sequence[str]]
    groups: tuple[int, ...]
    least: int = 0

    @cached_property
    def machine(self) -> CounterMachine:
        """What recognises them."""
        return block_machine(self.blocks, self.groups, self.least)

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether the counter machine does."""
        return self.machine.accepts(word)

    def sizes(self, length: int) -> list[tuple[int, ...]]:
        """The lengths of the runs of each group that add up to a length: the last has the rest."""
        *times, last = (self.groups.count(group) for group in range(max(self.groups) + 1))
        sizes = list[tuple[int, ...]]()
        for chosen in product(range(self.least, length + 1), repeat=len(times)):
            size, over = divmod(length - sum(map(mul, chosen, times)), last)
            if size >= self.least and not over:
                sizes.append((*chosen, size))
        return sizes

    def ways(self, sizes: tuple[int, ...]) -> int:
        """How many words have runs of these lengths."""
        runs = zip(self.blocks, self.groups, strict=True)
        return prod(len(words) ** sizes[group] for words, group in runs)

    def count(self, length: int) -> int:
        """How many words there are of this length."""
        return sum(map(self.ways, self.sizes(length)))

    def sample(self, length: int, rng: Random) -> Word:
        """One of them: the sizes of the runs by their ways, then each word of a run."""
        rank = rng.randrange(self.count(length))
        for chosen in self.sizes(length):
            if rank < self.ways(chosen):
                break
            rank -= self.ways(chosen)
        runs = zip(self.blocks, self.groups, strict=True)
        return tuple(w for words, group in runs for w in rng.choices(words, k=chosen[group]))


@dataclass(frozen=True)
class Halves:
    """Words whose second half is the first, or the first backwards."""

    alphabet: Sequence[str]
    backwards: bool

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether the halves agree."""
        symbols, half = tuple(word), len(word) // 2
        same = symbols == (symbols[::-1] if self.backwards else symbols[:half] * 2)
        return same and set(symbols) <= set(self.alphabet)

    def count(self, length: int) -> int:
        """How many words there are of this length."""
        if length % 2 and not self.backwards:
            return 0
        return int(len(self.alphabet) ** ((length + 1) // 2))

    def sample(self, length: int, rng: Random) -> Word:
        """A random half and what follows from it."""
        half = rng.choices(self.alphabet, k=(length + 1) // 2)
        return tuple(half + (half[: length // 2][::-1] if self.backwards else half[: length // 2]))
