"""Significance: would labels that have nothing to do with the lines be explained as well?

A permutation test over a fixed set of rules: all atoms, and the pairs of the cheapest. And a bound
by description length that holds for any rule, however it was found. Either may be the smaller;
twice the smaller of the two is a p-value.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from regard.rules.description_length import Bits, LabelCode, combine
from regard.rules.encoded_lines import Bools
from regard.rules.rule import PAIR_BITS
from regard.rules.rule_search import RuleSearch

PAIRED = 200  # cheapest rows whose pairs take part
CLEAR = 30  # bits saved that make many shuffles needless


class PermutationTest(NamedTuple):
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


def shuffle_test(search: RuleSearch, rng: np.random.Generator) -> PermutationTest:
    """Shuffle the labels, often when little is saved, and look for the best rule each time."""
    atoms, labels, code = search.atoms, search.labels, search.code
    if not len(atoms.rows):
        return PermutationTest(np.zeros(0, np.float32), math.inf, code.none)
    times = 999 if len(labels) <= 120 else 399
    times = 199 if code.none - search.best > CLEAR else times
    orders = np.argsort(rng.random((len(labels), times)), 0)
    columns = np.concatenate([labels[:, None], labels[orders]], 1).astype(np.float32)
    best = best_of_rows(atoms.rows, atoms.bits + 2, columns, code)
    cheap, price = atoms.rows[:PAIRED], atoms.bits[:PAIRED] + PAIR_BITS / 2
    if len(cheap) > 1 and time.monotonic() < search.deadline:
        best = np.minimum(best, best_of_pairs(cheap, price, columns, code))
    return PermutationTest(best[1:], float(best[0]), code.none)


def best_of_rows(rows: Bools, bits: Bits, labels: Bits, code: LabelCode) -> Bits:
    """The least total over rules and their opposites, for each column of labels."""
    best = np.full(labels.shape[1], np.inf, np.float32)
    sizes, step = rows.sum(1, dtype=np.int32), max(1, 4_000_000 // max(labels.shape[1], 1))
    either = code.either
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        good = (rows[part].astype(np.float32) @ labels).round().astype(np.int32)
        bad = sizes[part, None] - good
        total = either.ravel()[good * either.shape[1] + bad] + bits[part, None]
        best = np.minimum(best, total.min(0))
    return best


def best_of_pairs(rows: Bools, bits: Bits, labels: Bits, code: LabelCode) -> Bits:
    """The least total over and, or, xor of two rows with any signs, for each column of labels."""
    one, two = np.triu_indices(len(rows), 1)
    both = (rows[one] & rows[two]).astype(np.float32)  # (pairs, N)
    alone, price = rows.astype(np.float32), (bits[one] + bits[two])[:, None]
    sizes = alone.sum(1)[:, None]
    everything = combine(both.sum(1)[:, None], sizes[one], sizes[two], len(labels))
    either = code.either
    best = np.full(labels.shape[1], np.inf, np.float32)
    step = max(1, 2_000_000 // max(len(one), 1))
    for start in range(0, labels.shape[1], step):
        part = slice(start, start + step)
        single = alone @ labels[:, part]
        good = combine(both @ labels[:, part], single[one], single[two], code.positives)
        for kept, held in zip(good, everything, strict=True):
            place = (kept * either.shape[1] + (held - kept)).astype(np.int32)
            best[part] = np.minimum(best[part], (either.ravel()[place] + price).min(0))
    return best
