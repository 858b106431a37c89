"""Description length of labels given a rule, and what follows: posteriors, leave-one-out.

A rule costs its own bits and those of the labels given the rule, with a noise rate between 0 and
1 that is integrated out (a Beta prior of mean 5 %). Two-part codes give the posterior, and an
honest bound: labels that have nothing to do with the lines are shortened by s bits with
probability at most 2**-s, however the rule was found (Kraft's and Markov's inequalities).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.rules.encoded_lines import Bools

NOISE = (0.5, 9.5)  # of the Beta prior of the noise rate
RATES = (0.001, 0.01, 0.03, 0.1)  # of positives that break a rule, when there are no negatives
TIE = math.log2(3)  # bits that are not worth more than a bare mention (Kass and Raftery 1995)
Bits = NDArray[np.float32]


@dataclass(frozen=True)
class LabelCode:
    """Bits of the labels by how many positives and how many negatives a rule accepts."""

    table: Bits  # (P + 1, B + 1)
    none: float
    """Bits of the labels without a rule."""

    @property
    def positives(self) -> int:
        """Lines that should be accepted."""
        return len(self.table) - 1

    @property
    def negatives(self) -> int:
        """Lines that should not."""
        return len(self.table[0]) - 1

    def best_bits(self, accepted: Any, wrongly: Any) -> tuple[Any, Any]:
        """Bits of the labels by a rule or by its opposite, and whether the opposite is better."""
        least = self.either[accepted, wrongly]
        return least, least < self.table[accepted, wrongly]

    @cached_property
    def either(self) -> Bits:
        """The table of a rule or its opposite, whichever explains the labels in fewer bits."""
        return np.minimum(self.table, self.table[::-1, ::-1])


def beta(one: float, two: float) -> float:
    """Logarithm of the beta function."""
    return math.lgamma(one) + math.lgamma(two) - math.lgamma(one + two)


def label_code(positives: int, negatives: int) -> LabelCode:
    """Two labelled sides: any line may be labelled wrongly."""
    (one, two), lines = NOISE, positives + negatives
    saved = [beta(k + one, lines - k + two) for k in range(lines + 1)]
    by_errors = ((beta(one, two) - np.array(saved)) / math.log(2)).astype(np.float32)
    table = np.lib.stride_tricks.sliding_window_view(by_errors, negatives + 1)[::-1]  # no copy
    none = -(beta(positives + 1, negatives + 1) + math.log(lines + 1)) / math.log(2)
    return LabelCode(table, none)


def contrast_code(positives: int, drawn: int) -> LabelCode:
    """Positives against lines drawn at random: a rule explains the more, the rarer it is by chance.

    A positive is a random line that keeps the rule, but for a few (Tenenbaum 1999, size principle).
    """
    chance = (np.arange(drawn + 1) + 1) / (drawn + 2)
    kept = np.arange(positives + 1)[:, None]
    total = np.zeros((positives + 1, drawn + 1))
    for rate in RATES:
        gain = kept * np.log2((1 - rate) / chance + rate)[None]
        total += np.exp2(np.minimum(gain + (positives - kept) * math.log2(rate), 900)) / len(RATES)
    return LabelCode(-np.log2(np.maximum(total, 1e-300)).astype(np.float32), 0.0)


def tally(rows: Bools, labels: Bools) -> tuple[Any, Any]:
    """Positives and negatives that each row accepts."""
    good = (rows.astype(np.float32) @ labels.astype(np.float32)).round().astype(np.int32)
    return good, rows.sum(1, dtype=np.int32) - good


def posterior(totals: Bits, none: float) -> Any:
    """Probabilities of rules by their total bits; no rule at all has half of the prior.

    Prices of rules are conventions: those that hardly differ from the best share theirs evenly.
    """
    worth = np.append(np.asarray(totals, np.float64) + 1, none + 1)
    weight = np.exp2(worth.min() - worth)
    weight /= weight.sum()
    tied = np.flatnonzero(worth[:-1] <= worth[:-1].min(initial=np.inf) + TIE)
    weight[tied] = weight[tied].sum() / max(len(tied), 1)
    return weight[:-1]


def leave_one_out(rows: Bools, bits: Bits, labels: Bools, code: LabelCode) -> float:
    """Accuracy on each line by the rule that is best without it; rules that tie are averaged."""
    good, bad = tally(rows, labels)
    right = np.zeros(len(labels))
    for positive in (True, False):
        lines = np.flatnonzero(labels == positive)
        if not len(lines) or (code.positives if positive else code.negatives) < 2:
            continue
        fewer = label_code(code.positives - positive, code.negatives - (not positive))
        taken = rows[:, lines].astype(np.int32)  # (rules, lines)
        left = good[:, None] - taken * positive, bad[:, None] - taken * (not positive)
        total = bits[:, None] + fewer.table[left]
        best = total <= total.min(0) + 1e-3
        right[lines] = ((taken == positive) & best).sum(0) / best.sum(0)
    return float(right.mean())


def combine(both: Any, first: Any, second: Any, lines: int) -> tuple[Any, ...]:
    """Lines in a and b, in a alone, in b alone, in neither, in just one."""
    one, two = first - both, second - both
    return both, one, two, lines - both - one - two, one + two
