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

    state: str
    symbol: str
    test: str
    target: str
    change: tuple[int, ...]


Configuration = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class CounterMachine:
    """A table of moves, the start, and which states accept with which counters."""

    moves: tuple[CounterMove, ...]
    start: str
    accepting: tuple[tuple[str, str], ...]

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
            if min(counters) < 0:
                break
            state = move.target
            passed.append((state, counters))
        return passed

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether the machine reads all of the word and ends as it should."""
        return self.failure(word) is None

    def failure(self, word: Sequence[str]) -> int | None:
        """The first symbol that has no move; the length when the end is wrong; None: accepted."""
        path = self.path(word)
        if len(path) <= len(word):
            return len(path) - 1
        state, counters = path[-1]
        ends = (test for one, test in self.accepting if one == state)
        return None if any(passes(counters, test) for test in ends) else len(word)


def passes(counters: tuple[int, ...], test: str) -> bool:
    """Whether each counter is as its sign says."""
    signs = zip(counters, test, strict=True)
    return all(sign == "." or (n == 0) == (sign == "0") for n, sign in signs)


def machine(rows: str, accepting: str) -> CounterMachine:
    """A machine from a table, one move a line: `state symbols test target change…`.

    Symbols in a row have the same move; the first row's state is the start; `accepting` has pairs
    such as `q:0 r:.`.
    """
    moves = []
    for row in rows.strip().splitlines():
        state, symbols, test, target, *change = row.split()
        added = tuple(map(int, change))
        moves += [CounterMove(state, symbol, test, target, added) for symbol in symbols.split(",")]
    ends = [pair.partition(":") for pair in accepting.split()]
    final = tuple((state, test) for state, _, test in ends)
    return CounterMachine(tuple(moves), moves[0].state, final)


AN_BN = machine(
    """
    a  a  .  a  +1
    a  b  +  b  -1
    b  b  +  b  -1
    """,
    "a:0 b:0",
)
AN_BN_CN = machine(
    """
    a  a  ..  a  +1  0
    a  b  +.  b  -1 +1
    b  b  +.  b  -1 +1
    b  c  0+  c   0 -1
    c  c  0+  c   0 -1
    """,
    "a:00 c:00",
)
AN_BN_CN_DN = machine(
    """
    a  a  ..  a  +1  0
    a  b  +.  b  -1 +1
    b  b  +.  b  -1 +1
    b  c  0+  c  +1 -1
    c  c  .+  c  +1 -1
    c  d  +0  d  -1  0
    d  d  +0  d  -1  0
    """,
    "a:00 d:00",
)
MAJORITY = machine(  # the counter says by how many the digit of the state is ahead
    """
    0  0  .  0  +1
    0  1  +  0  -1
    0  1  0  1  +1
    1  1  .  1  +1
    1  0  +  1  -1
    1  0  0  0  +1
    """,
    "1:+",
)


def cross_serial(
    blocks: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]],
) -> CounterMachine:
    """a^m b^n c^m d^n with m, n ≥ 1 and several words for each letter (Shieber 1985)."""
    one, two, three, four = (",".join(words) for words in blocks)
    rows = f"""
    s  {one}    ..  a  +1  0
    a  {one}    ..  a  +1  0
    a  {two}    ..  b   0 +1
    b  {two}    ..  b   0 +1
    b  {three}  +.  c  -1  0
    c  {three}  +.  c  -1  0
    c  {four}   0+  d   0 -1
    d  {four}   0+  d   0 -1
    """
    return machine(rows, "d:00")
