"""Would labels that have nothing to do with the lines be explained as well? Two answers.

A permutation test over a fixed set of rules: all atoms, and the pairs of the cheapest. And a bound
by description length that holds for any rule, however it was found. Either may be the smaller;
twice the smaller of the two is a p-value.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from regard.rules.description_length import Bits, best_of_pairs, best_of_rows, shuffled
from regard.rules.rule import PAIR
from regard.rules.rule_search import Search

PAIRED = 200  # cheapest rows whose pairs take part
CLEAR = 30  # bits saved that make many shuffles needless


class Test(NamedTuple):
    """What shuffled labels gave."""

    chance: Bits
    """The least total of each shuffle."""
    observed: float
    """That of the labels themselves, over the same rules."""
    none: float
    """Bits of the labels without a rule."""

    def permutation(self, total: float) -> float:
        """The share of shuffles that do as well; the labels' own order is one of the orders."""
        if not len(self.chance):
            return 1.0
        limit = max(total, self.observed) + 1e-3  # a rule outside the set counts as its best
        return (1 + int((self.chance <= limit).sum())) / (1 + len(self.chance))

    def bound(self, total: float) -> float:
        """Labels that are chance are shortened so much at most this often."""
        return math.exp2(min(0.0, total - self.none))

    def p_value(self, total: float) -> float:
        """Of a rule whose bits and labels' bits make this total."""
        return min(1.0, 2 * min(self.permutation(total), self.bound(total)))


def shuffle_test(search: Search, rng: np.random.Generator) -> Test:
    """Shuffle the labels, often when little is saved, and look for the best rule each time."""
    pool, labels, code = search.pool, search.labels, search.code
    if not len(pool.rows):
        return Test(np.zeros(0, np.float32), math.inf, code.none)
    times = 999 if len(labels) <= 120 else 399
    times = 199 if code.none - search.best > CLEAR else times
    own = labels.astype(np.float32)[:, None]
    columns = np.concatenate([own, shuffled(labels, times, rng)], 1)
    best = best_of_rows(pool.rows, pool.bits + 2, columns, code)
    cheap, price = pool.rows[:PAIRED], pool.bits[:PAIRED] + PAIR / 2
    if len(cheap) > 1 and time.monotonic() < search.deadline:
        best = np.minimum(best, best_of_pairs(cheap, price, columns, code))
    return Test(best[1:], float(best[0]), code.none)
