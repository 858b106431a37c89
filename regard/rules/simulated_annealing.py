"""Small automata from labelled lines by simulated annealing, many at once (Kirkpatrick 1983).

Accepting states need no search: each state takes the label that most of its lines have, so
wrong labels cost one line each and noise does no other harm.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from regard.formal.dfa import DFA
from regard.rules.transition_tables import run_digits

CHAINS, KEPT = 256, 6
AGREED = 0.25  # share of the chains at the same least errors that ends the search
STEPS, MAX_STEPS = 40, 5000  # for each cell, and in all
COLDEST = 0.2  # the last temperature, in errors
WORK = 300_000  # moves of one step of all chains, about


class LabelCounts(NamedTuple):
    """Different lines as digits, and how many positives and negatives each of them stands for."""

    digits: Any  # (M, L)
    symbols: int
    positives: Any  # (M,)
    negatives: Any

    @property
    def least(self) -> float:
        """Errors that no automaton can avoid: the same line with both labels."""
        return float(np.minimum(self.positives, self.negatives).sum())


def count_labels(digits: Any, inverse: Any, labels: Any, symbols: int) -> LabelCounts:
    """Count the labels of each different line."""
    size = len(digits)
    positives = np.bincount(inverse[labels], minlength=size).astype(np.float32)
    negatives = np.bincount(inverse[~labels], minlength=size).astype(np.float32)
    return LabelCounts(digits, symbols, positives, negatives)


def count_errors(tables: Any, counts: LabelCounts) -> Any:
    """Lines that each table gets wrong at best."""  # (C,)
    chains, states = tables.shape[:2]
    place = (run_digits(tables, counts.digits) + states * np.arange(chains)[:, None]).ravel()
    sides = (
        np.bincount(place, np.tile(side, chains), chains * states).reshape(chains, states)
        for side in (counts.positives, counts.negatives)
    )
    wrong: Any = np.minimum(*sides).sum(1)
    return wrong


def anneal(
    counts: LabelCounts, states: int, effort: float, deadline: float, rng: np.random.Generator
) -> list[Any]:
    """The best table of each chain, best first; stops when a table is right on every line."""
    chains = int(np.clip(WORK // max(counts.digits.size, 1), 8, CHAINS))
    tables = rng.integers(0, states, (chains, states, counts.symbols)).astype(np.int8)
    now = count_errors(tables, counts)
    best, least = tables.copy(), now.copy()
    which, steps = np.arange(chains), min(int(effort * STEPS * states * counts.symbols), MAX_STEPS)
    hottest = max(2.0, 0.03 * float(counts.positives.sum() + counts.negatives.sum()))
    for step in range(steps):
        agreed = step > steps / 3 and (least == least.min()).mean() > AGREED
        if least.min() <= counts.least or agreed or time.monotonic() > deadline:
            break
        temperature = hottest * (COLDEST / hottest) ** (step / steps)
        tried = tables.copy()
        for _ in range(1 if rng.random() < 0.7 else 2):
            cells = rng.integers(0, states, chains), rng.integers(0, counts.symbols, chains)
            tried[which, *cells] = rng.integers(0, states, chains)
        new = count_errors(tried, counts)
        taken = new <= now - temperature * np.log(rng.random(chains))
        tables[taken], now[taken] = tried[taken], new[taken]
        better = now < least
        best[better], least[better] = tables[better], now[better]
    return [best[n] for n in np.argsort(least, kind="stable")[:KEPT]]


def to_dfa(table: Any, counts: LabelCounts) -> DFA:
    """A table with its accepting states, in its smallest form; symbols are digits."""
    ends = run_digits(table[None], counts.digits)[0]
    final = [
        state
        for state in range(len(table))
        if counts.positives[ends == state].sum() > counts.negatives[ends == state].sum()
    ]
    alphabet = tuple(str(n) for n in range(counts.symbols))
    return DFA(alphabet, tuple(tuple(row) for row in table.tolist()), frozenset(final)).minimise()
