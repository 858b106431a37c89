"""Automata by the thousand: tables of moves run over many lines at once."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.formal.dfa import DFA
from regard.rules.encoded_lines import EncodedLines

States = NDArray[np.int8]


def project(lines: EncodedLines, chosen: tuple[int, ...]) -> tuple[States, Any]:
    """Different lines of the chosen symbols alone, as digits; which of them each line is."""
    digit = np.full(len(lines.symbols) + 1, len(chosen), np.int8)
    digit[list(chosen)] = np.arange(len(chosen))
    digits = digit[lines.ids]
    skipped = digits == len(chosen)
    digits = np.take_along_axis(digits, np.argsort(skipped, 1, kind="stable"), 1)
    width = max(int((~skipped).sum(1).max(initial=0)), 1)
    unique, inverse = np.unique(digits[:, :width], axis=0, return_inverse=True)
    return unique.astype(np.int8), inverse.ravel()


def run_digits(tables: Any, digits: Any) -> States:
    """The state after each line; a digit that is no symbol leaves the state as it is."""  # (P, M)
    count, states, symbols = tables.shape
    wide = np.empty((count, states, symbols + 1), np.int32)
    wide[:, :, :symbols], wide[:, :, symbols] = tables, np.arange(states)
    begin = np.arange(count, dtype=np.int32)[:, None] * (states * (symbols + 1))
    flat = (wide * (symbols + 1) + begin[:, :, None]).ravel()  # a state is where its row begins
    at = np.repeat(begin, len(digits), 1)
    for column in digits.T.astype(np.int32):
        np.take(flat, at + column, out=at, mode="clip")
    ends: States = ((at - begin) // (symbols + 1)).astype(np.int8)
    return ends


def run_tables(tables: Any, lines: EncodedLines, chosen: tuple[int, ...]) -> States:
    """The state of each automaton after each line, looking at the chosen symbols alone."""
    digits, inverse = project(lines, chosen)
    return run_digits(tables, digits)[:, inverse]


class SmallAutomaton(NamedTuple):
    """A small automaton: the number of its table, its rows as digits, its accepting states."""

    table: int
    moves: tuple[str, ...]
    accepting: tuple[str, ...]


@cache
def small_tables() -> tuple[Any, list[SmallAutomaton]]:
    """Tables of two and three states over two symbols, and accepting states that keep them so.

    Each language comes once, and its complement does not: 526 of the 1,052 minimal automata.
    """
    tables: list[Any] = []
    finals: list[SmallAutomaton] = []
    for states in (2, 3):
        for cells in product(range(states), repeat=2 * states):
            rows = tuple(cells[n : n + 2] for n in range(0, 2 * states, 2))
            kept = []
            for size in range(1, states):  # without the first: others are complements of these
                for final in combinations(range(1, states), size):
                    dfa = DFA(("a", "b"), rows, frozenset(final))
                    kept += [final] if dfa.minimise().moves == rows else []
            moves = tuple("".join(map(str, row)) for row in rows)
            finals += [SmallAutomaton(len(tables), moves, tuple(map(str, final))) for final in kept]
            if kept:
                tables.append(np.array([*rows, *([(2, 2)] if states == 2 else [])], np.int8))
    return np.stack(tables), finals
