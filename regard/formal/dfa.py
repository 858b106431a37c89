"""Deterministic finite automata over any symbols: the regular languages (Rabin and Scott 1959).

An automaton is complete: each state has a move for each symbol, so a dead state is a state like
any other. States are numbered from the start in the order in which breadth-first search meets
them; two minimal automata over one alphabet are therefore equal when their languages are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from random import Random
from typing import TypeVar

from regard.errors import ResourceError

MAX_STATES = 200_000  # that `explore` makes before it gives up

Word = tuple[str, ...]
State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True)
class DFA:
    """A complete automaton: `moves[state][n]` is where the n-th symbol of the alphabet leads."""

    alphabet: tuple[str, ...]
    moves: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]
    start: int = 0

    # Words -------------------------------------------------------------------------------------

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each symbol."""
        return {symbol: n for n, symbol in enumerate(self.alphabet)}

    def step(self, state: int | None, symbol: str) -> int | None:
        """The state after a symbol; None after an unknown one, and ever after."""
        n = self.index.get(symbol)
        return None if state is None or n is None else self.moves[state][n]

    def path(self, word: Sequence[str]) -> list[int]:
        """The states passed, the start included; shorter than that before an unknown symbol."""
        states = [self.start]
        for symbol in word:
            if symbol not in self.index:
                break
            states.append(self.moves[states[-1]][self.index[symbol]])
        return states

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether the word is in the language; one with an unknown symbol never is."""
        states = self.path(word)
        return len(states) > len(word) and states[-1] in self.accepting

    @cached_property
    def live(self) -> frozenset[int]:
        """States from which some word is accepted."""
        before: list[list[int]] = [[] for _ in self.moves]
        for state, row in enumerate(self.moves):
            for target in row:
                before[target].append(state)
        reached, queue = set(self.accepting), list(self.accepting)
        while queue:
            fresh = set(before[queue.pop()]) - reached
            reached |= fresh
            queue += fresh
        return frozenset(reached)

    def shortest(self) -> Word | None:
        """The first of the shortest words, in the order of the alphabet; None: there is none."""
        if self.start not in self.live:
            return None
        return self.word(next(length for length in count() if self.count(length)), 0)

    # Counting ----------------------------------------------------------------------------------

    @cached_property
    def _ways(self) -> list[list[int]]:
        """Words of length n accepted from each state, for each n asked for so far."""
        return [[int(state in self.accepting) for state in range(len(self.moves))]]

    def ways(self, length: int) -> list[int]:
        """From each state, how many words of this length are accepted; exact."""
        while len(self._ways) <= length:
            last = self._ways[-1]
            self._ways.append([sum(last[target] for target in row) for row in self.moves])
        return self._ways[length]

    def count(self, length: int) -> int:
        """How many words of this length there are; exact."""
        return self.ways(length)[self.start]

    def word(self, length: int, rank: int) -> Word:
        """The word of this rank, from 0, among those of a length in the alphabet's order."""
        state, word = self.start, []
        for left in range(length - 1, -1, -1):
            ways = self.ways(left)
            for n, target in enumerate(self.moves[state]):
                if rank < ways[target]:
                    word.append(self.alphabet[n])
                    state = target
                    break
                rank -= ways[target]
        return tuple(word)

    def sample(self, length: int, rng: Random) -> Word:
        """One word of this length, each as likely as any other."""
        return self.word(length, rng.randrange(self.count(length)))

    # New automata ------------------------------------------------------------------------------

    def __invert__(self) -> DFA:
        """The words over the same alphabet that are not in the language."""
        others = frozenset(range(len(self.moves))) - self.accepting
        return DFA(self.alphabet, self.moves, others, self.start)

    def __and__(self, other: DFA) -> DFA:
        return self.product(other, lambda one, two: one and two)

    def __or__(self, other: DFA) -> DFA:
        return self.product(other, lambda one, two: one or two)

    def __xor__(self, other: DFA) -> DFA:
        return self.product(other, lambda one, two: one != two)

    def product(self, other: DFA, accept: Callable[[bool, bool], bool]) -> DFA:
        """Both at once, over the symbols of either; accepting by what each of them says."""

        def step(pair: tuple[int | None, int | None], symbol: str) -> tuple[int | None, int | None]:
            return self.step(pair[0], symbol), other.step(pair[1], symbol)

        def accepts(pair: tuple[int | None, int | None]) -> bool:
            return accept(pair[0] in self.accepting, pair[1] in other.accepting)

        symbols = dict.fromkeys(self.alphabet + other.alphabet)
        starts: tuple[int | None, int | None] = self.start, other.start
        return explore(symbols, starts, step, accepts)

    def minimise(self) -> DFA:
        """The smallest automaton of the language, numbered from its start (Moore 1956)."""
        block = _partition(self)
        member = {number: state for state, number in sorted(block.items())}

        def step(number: int, symbol: str) -> int:
            return block[self.moves[member[number]][self.index[symbol]]]

        def accepts(number: int) -> bool:
            return member[number] in self.accepting

        return explore(self.alphabet, block[self.start], step, accepts)

    def difference(self, other: DFA) -> Word | None:
        """The shortest word that only one of the two accepts; None: they are equivalent."""
        return (self ^ other).shortest()


def explore(
    alphabet: Iterable[str],
    start: State,
    step: Callable[[State, str], State],
    accepts: Callable[[State], bool],
    most: int = MAX_STATES,
) -> DFA:
    """The automaton whose states are what `step` reaches from `start`, in breadth-first order."""
    symbols = tuple(alphabet)
    numbers: dict[State, int] = {start: 0}
    moves: list[tuple[int, ...]] = []
    queue = deque([start])
    while queue:
        state = queue.popleft()
        row = []
        for symbol in symbols:
            target = step(state, symbol)
            if target not in numbers:
                numbers[target] = len(numbers)
                queue.append(target)
            row.append(numbers[target])
        moves.append(tuple(row))
        if len(numbers) > most:
            fix = "a smaller expression, or smaller bounds"
            raise ResourceError(
                "building an automaton", f"over {most:,} states", "a smaller automaton", fix
            )
    accepting = frozenset(n for state, n in numbers.items() if accepts(state))
    return DFA(symbols, tuple(moves), accepting)


def _partition(dfa: DFA) -> dict[int, int]:
    """The number of each state's group, which no word tells apart: split until nothing splits."""
    group = {state: int(state in dfa.accepting) for state in range(len(dfa.moves))}
    while True:
        rows = [(group[n], *(group[m] for m in row)) for n, row in enumerate(dfa.moves)]
        numbers = {row: n for n, row in enumerate(dict.fromkeys(rows))}
        if len(numbers) == len(set(group.values())):
            return group
        group = {n: numbers[row] for n, row in enumerate(rows)}
