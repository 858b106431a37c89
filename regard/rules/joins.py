"""And, or and xor of two or three atoms: all pairs of a few thousand rows, by matrix products."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.rules.description_length import Bits, Code, combine, tally
from regard.rules.encoded_lines import Bools
from regard.rules.rule import Rule, join, negate

OPERATORS = ("and", "and not", "not and", "neither", "xor")
XOR = 4
BLOCK = 250  # rows at once


class Joined(NamedTuple):
    """Two rows under an operator, perhaps the opposite of it."""

    total: float
    one: int
    two: int
    operator: int
    opposite: bool


def best_pairs(
    left: tuple[Bools, Bits], right: tuple[Bools, Bits], labels: Bools, code: Code, keep: int
) -> list[Joined]:
    """The pairs of a left and a right row that explain the labels in the fewest bits."""
    (rows, bits), (others, prices) = left, right
    good, bad = (
        [side.astype(np.float32) for side in (rows[:, labels == sign], others[:, labels == sign])]
        for sign in (True, False)
    )
    flat, wide = code.table.ravel(), code.table.shape[1]
    either = np.minimum(flat, code.table[::-1, ::-1].ravel())
    found: list[Joined] = []
    limit = np.inf
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        kept, wrong = (
            combine(one[part] @ two.T, one[part].sum(1)[:, None], two.sum(1)[None], one.shape[1])
            for one, two in (good, bad)
        )
        price = bits[part, None] + prices[None]
        for operator in range(len(OPERATORS)):
            place = (kept[operator] * wide + wrong[operator]).astype(np.int32)
            total = either[place] + price
            for at in smallest(total, keep, limit):
                i, j = divmod(int(at), total.shape[1])
                opposite = bool(flat[place[i, j]] > either[place[i, j]])
                found.append(Joined(float(total[i, j]), start + i, j, operator, opposite))
        found = sorted(found)[:keep]
        limit = found[-1].total if len(found) == keep else np.inf
    return found


def smallest(total: Any, keep: int, limit: float) -> Any:
    """Places of the least values, below a limit."""
    flat = total.ravel()
    near = np.flatnonzero(flat < limit)
    return near if len(near) <= keep else near[np.argpartition(flat[near], keep)[:keep]]


def choose(rows: Bools, bits: Bits, labels: Bools, code: Code, sizes: tuple[int, int]) -> Any:
    """Rows worth combining: the cheapest, and those that explain most."""
    good, bad = tally(rows, labels)
    alone = np.minimum(code.bits(good, bad), code.bits(code.positives - good, code.negatives - bad))
    cheap = np.argsort(bits, kind="stable")[: sizes[0]]
    telling = np.argsort(alone + bits, kind="stable")[: sizes[1]]
    return np.union1d(cheap, telling)


def best_xor(rows: Bools, bits: Bits, labels: Bools, code: Code, keep: int) -> list[Joined]:
    """Xor of two rows, neither of which need tell anything alone: a product of signs."""
    signs = (2 * rows.astype(np.float32) - 1).astype(np.float32)
    aims = signs * (2 * labels.astype(np.float32) - 1)
    found: list[Joined] = []
    for start in range(0, len(rows), BLOCK):
        score = np.abs(aims[start : start + BLOCK] @ signs[start:].T)
        near = smallest(-score, keep, np.inf)
        for at in near:
            i, j = divmod(int(at), score.shape[1])
            one, two = start + i, start + j
            row = rows[one] ^ rows[two]
            good, bad = int((row & labels).sum()), int((row & ~labels).sum())
            plain = float(code.bits(good, bad))
            turned = float(code.bits(code.positives - good, code.negatives - bad))
            total = min(plain, turned) + float(bits[one] + bits[two])
            found.append(Joined(total, one, two, XOR, turned < plain))
        found = sorted(found)[:keep]
    return found


def row_of(pair: Joined, rows: Bools, others: Bools) -> Bools:
    """Lines that a pair accepts."""
    one, two = rows[pair.one], others[pair.two]
    made: Bools = (one & two, one & ~two, ~one & two, ~one & ~two, one ^ two)[pair.operator]
    return ~made if pair.opposite else made


def rule_of(pair: Joined, one: Rule, two: Rule) -> Rule:
    """A pair in words."""
    if pair.operator == XOR:
        made = join("xor", one, two)
    else:
        first = negate(one) if pair.operator in (2, 3) else one
        second = negate(two) if pair.operator in (1, 3) else two
        made = join("and", first, second)
    return negate(made) if pair.opposite else made
