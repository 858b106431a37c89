"""Counter machines: finite control and a few counters that know zero (Minsky 1961; Fischer 1968).

They read one symbol at a step. One counter recognises a^n b^n and balanced brackets, two a^n b^n
c^n d^n, which no grammar without context has; LSTMs of finite precision count like this too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class CounterMove(NamedTuple):
    """In a state, at a symbol, when the counters pass the tests: where to, and what to add.

    A test has one sign for each counter: 0 for zero, + for above zero, . for either.
    """

    state: int
    symbol: str
    test: str
    target: int
    change: tuple[int, ...]


Configuration = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class CounterMachine:
    """A table of moves, the start, and which states accept with which counters."""

    moves: tuple[CounterMove, ...]
    start: int
    accepting: tuple[tuple[int, str], ...]

    def path(self, word: Sequence[str]) -> list[Configuration]:
        """States and counters passed, the start included; it ends where no move fits."""
        state, counters = self.start, (0,) * len(self.moves[0].change)
        passed: list[Configuration] = [(state, counters)]
        for symbol in word:
            here = (move for move in self.moves if (move.state, move.symbol) == (state, symbol))
            move = next((move for move in here if passes(counters, move.test)), None)
            if move is None:
                break
            counters = tuple(n + more for n, more in zip(counters, move.change, strict=True))
            state = move.target
            passed.append((state, counters))
        return passed

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether the machine reads all of the word and ends as it should."""
        path = self.path(word)
        state, counters = path[-1]
        ends = (test for one, test in self.accepting if one == state)
        return len(path) > len(word) and any(passes(counters, test) for test in ends)


def passes(counters: tuple[int, ...], test: str) -> bool:
    """Whether each counter is as its sign says."""
    signs = zip(counters, test, strict=True)
    return all(sign == "." or (n == 0) == (sign == "0") for n, sign in signs)


def block_machine(
    blocks: Sequence[Sequence[str]], groups: Sequence[int], least: int = 0
) -> CounterMachine:
    """A machine of runs of words, in this order, those of one group equally long.

    Each run counts up for the next one of its group, which counts down: a^n b^n c^n is of one
    group, a^m b^n c^m d^n of two. `least` 0 lets the empty word in.
    """
    size, moves = len(blocks), list[CounterMove]()
    before = [max((n for n in range(r) if groups[n] == groups[r]), default=-1) for r in range(size)]
    for run, words in enumerate(blocks):
        change = [(n == run and run in before) - (n == before[run]) for n in range(size)]
        for state in (run - 1, run):
            tests = ["+" if n == before[run] else "." for n in range(size)]
            if 0 <= state < run and before[state] >= 0:
                tests[before[state]] = "0"
            test = "".join(tests)
            moves += [CounterMove(state, word, test, run, tuple(change)) for word in words]
    ends = (size - 1,) if least else (size - 1, -1)
    return CounterMachine(tuple(moves), -1, tuple((state, "0" * size) for state in ends))
