"""The search for rules: atoms, then two and three of them together, then small automata.

All pairs of a few thousand rows of truth values are weighed at once, by matrix products.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard.ambient import track
from regard.rules.atoms import moves_bits
from regard.rules.description_length import Bits, LabelCode, combine, leave_one_out, tally
from regard.rules.encoded_lines import Bools, EncodedLines
from regard.rules.hypothesis_class import HypothesisClass, enumerate_atoms
from regard.rules.rule import Rule, join, negate
from regard.rules.simulated_annealing import anneal, count_labels, to_dfa
from regard.rules.transition_tables import project, run_tables

FEW = 12  # symbols up to which all of them are tried together
SINGLES, PAIRS, TRIPLES = 250, 300, 100  # of each, kept
CHEAP, TELLING, CROSSED = 1800, 900, 6000  # rows that are combined
HEADS = 60  # rows that are combined with every other
STATES = 6
EFFORTS = (0.4, 3.0)  # of a first and of a second look at automata of one size
HOPE = 30.0  # bits by which the first look may be behind the best rule to earn the second
GOOD = 0.12  # share of lines against a rule that is still taken for the rule with noise
SLACK = 12.0  # bits by which a rival may be dearer than the best and is still looked for
OPERATORS = ("and", "and not", "not and", "neither", "xor")
XOR = 4  # of OPERATORS
BLOCK = 250  # rows at once


class RuleCandidate(NamedTuple):
    """A rule, its bits, those of rule and labels together, and the lines it accepts."""

    rule: Rule
    bits: int
    total: float
    row: Bools


@dataclass
class RuleSearch:
    """What is searched, until when, and the rules that were weighed."""

    lines: EncodedLines
    labels: Bools
    code: LabelCode
    deadline: float
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.candidates: dict[Rule, RuleCandidate] = {}
        self.atoms = enumerate_atoms(self.lines, self.deadline)

    def late(self) -> bool:
        """Whether time is up."""
        return time.monotonic() > self.deadline

    @property
    def best(self) -> float:
        """The least total so far."""
        return min((one.total for one in self.candidates.values()), default=float("inf"))

    def add(self, rule: Rule, row: Bools) -> None:
        """Weigh one rule."""
        bits = rule.bits(len(self.lines.symbols))
        good, bad = tally(row[None], self.labels)
        total = bits + float(self.code.table[good[0], bad[0]])
        self.candidates[rule] = RuleCandidate(rule, bits, total, row)

    def run(self) -> None:
        """All of it, as far as time allows."""
        self.take_singles(self.atoms)
        for atoms in track(self.classes(), "joining rules, hypothesis class"):
            if not self.late():
                self.take_joins(atoms)
        for chosen in track(self.alphabets(), "annealing automata, set of symbols"):
            if not self.late():
                self.take_automata(chosen)

    def classes(self) -> Iterable[HypothesisClass]:
        """All atoms, and with many symbols once more those about the symbols that tell most."""
        yield self.atoms
        if len(self.lines.symbols) <= FEW or self.late():
            return
        names = [name for one in self.leaders(60) for name in one.rule.symbols]
        chosen = [self.lines.symbols.index(name) for name in dict.fromkeys(names)][:FEW]
        atoms = enumerate_atoms(self.lines.reorder(chosen), self.deadline)
        self.take_singles(atoms)
        yield atoms

    def leaders(self, count: int) -> list[RuleCandidate]:
        """The best so far."""
        return sorted(self.candidates.values(), key=lambda one: (one.total, one.bits))[:count]

    def leave_one_out(self) -> float | None:
        """Accuracy on each line by the rule, of those found, that is best without it."""
        leaders = self.leaders(2000)
        if not leaders:
            return None
        rows, bits = np.stack([one.row for one in leaders]), [one.bits for one in leaders]
        return leave_one_out(rows, np.array(bits, np.float32), self.labels, self.code)

    def take_singles(self, atoms: HypothesisClass) -> None:
        """Atoms alone."""
        if not len(atoms.rows):
            return
        bits, opposite = self.code.best_bits(*tally(atoms.rows, self.labels))
        for n in np.argsort(bits + atoms.bits, kind="stable")[:SINGLES]:
            for rule in atoms.rules(n):
                row = ~atoms.rows[n] if opposite[n] else atoms.rows[n]
                self.add(negate(rule) if opposite[n] else rule, row)

    def take_joins(self, atoms: HypothesisClass) -> None:
        """Two and three atoms together."""
        if len(atoms.rows) < 2:
            return
        chosen = self.choose_rows(atoms, CHEAP, TELLING)
        rows, bits = atoms.rows[chosen], atoms.bits[chosen]
        pairs = best_pairs((rows, bits), (rows, bits), self.labels, self.code, 2 * PAIRS)
        pairs = [pair for pair in pairs if pair.one < pair.two]
        for pair in pairs:
            first, second = atoms.rules(chosen[pair.one])[0], atoms.rules(chosen[pair.two])[0]
            self.add(rule_of(pair, first, second), row_of(pair, rows, rows))
        for pair in pairs[:20]:  # other atoms with the same rows make rivals
            for one in atoms.rules(chosen[pair.one])[:4]:
                for two in atoms.rules(chosen[pair.two])[:4]:
                    self.add(rule_of(pair, one, two), row_of(pair, rows, rows))
        if self.late():
            return
        heads = self.choose_rows(atoms, 0, HEADS)  # with any other, which alone may tell nothing
        left, right = (atoms.rows[heads], atoms.bits[heads]), (atoms.rows, atoms.bits)
        for pair in best_pairs(left, right, self.labels, self.code, PAIRS // 3):
            if heads[pair.one] != pair.two:
                one, two = atoms.rules(heads[pair.one])[0], atoms.rules(pair.two)[0]
                self.add(rule_of(pair, one, two), row_of(pair, left[0], atoms.rows))
        cheap, price = atoms.rows[:CROSSED], atoms.bits[:CROSSED]
        for pair in best_xor(cheap, price, self.labels, self.code, PAIRS // 3):
            rule = rule_of(pair, atoms.rules(pair.one)[0], atoms.rules(pair.two)[0])
            self.add(rule, row_of(pair, cheap, cheap))
        if not self.late():
            self.take_triples(atoms, chosen, pairs)

    def choose_rows(self, atoms: HypothesisClass, cheap: int, telling: int) -> Any:
        """Rows worth combining: the cheapest, which come first, and those that explain most."""
        alone, _ = self.code.best_bits(*tally(atoms.rows, self.labels))
        order = np.argsort(alone + atoms.bits, kind="stable")
        return np.union1d(np.arange(len(order))[:cheap], order[:telling])

    def take_triples(self, atoms: HypothesisClass, chosen: Bools, pairs: list[RulePair]) -> None:
        """The best pairs with one atom more."""
        rows, bits = atoms.rows[chosen], atoms.bits[chosen]
        begun = {row_of(pair, rows, rows).tobytes(): pair for pair in reversed(pairs)}
        heads = sorted(begun.values())[:80]
        if not heads:
            return
        joined = np.stack([row_of(pair, rows, rows) for pair in heads])
        spent = np.array([bits[pair.one] + bits[pair.two] for pair in heads], np.float32)
        for three in best_pairs((joined, spent), (rows, bits), self.labels, self.code, TRIPLES):
            pair = heads[three.one]
            head = rule_of(pair, atoms.rules(chosen[pair.one])[0], atoms.rules(chosen[pair.two])[0])
            last = atoms.rules(chosen[three.two])[0]
            self.add(rule_of(three, head, last), row_of(three, joined, rows))

    def alphabets(self) -> Iterable[tuple[int, ...]]:
        """Sets of symbols that an automaton may look at, those of good rules first."""
        everything = tuple(range(len(self.lines.symbols)))
        tried: dict[tuple[int, ...], None] = {}
        if len(everything) <= 4:
            tried[everything] = None
        for one in self.leaders(120):
            named = sorted(self.lines.symbols.index(name) for name in one.rule.symbols)
            if 1 <= len(named) <= 4:
                tried[tuple(named)] = None
        wrong = [(one.row != self.labels).mean() for one in self.leaders(1)]
        good = self.code.none - self.best > 40 and wrong[0] < GOOD
        chosen = list(tried)[: 2 if good else 3]
        if 4 < len(everything) <= 10 and not good:
            chosen.append(everything)
        return chosen

    def take_automata(self, chosen: tuple[int, ...]) -> None:
        """Automata of two states and more over some symbols, while they can still pay."""
        digits, inverse = project(self.lines, chosen)
        counts = count_labels(digits, inverse, self.labels, len(chosen))
        floor, idle, least = float(self.code.table.min()), 0, float("inf")
        for states in range(2, STATES + 1):
            spent = 3 + moves_bits(states, len(chosen), len(self.lines.symbols))
            if (
                self.late()
                or idle == (2 if len(chosen) < 4 else 1)
                or spent + floor > self.best + SLACK
            ):
                return
            totals = []
            for effort in EFFORTS:  # a quick look first; most sets of symbols tell nothing
                for table in anneal(counts, states, effort, self.deadline, self.rng):
                    dfa = to_dfa(table, counts)
                    if len(dfa.moves) > 1:
                        totals.append(self.take_automaton(dfa.moves, dfa.accepting, chosen))
                if min(totals, default=HOPE) > self.best + HOPE:
                    break
            gained = min(totals, default=float("inf")) < least
            least, idle = min([least, *totals]), 0 if gained else idle + 1

    def take_automaton(
        self, moves: tuple[tuple[int, ...], ...], final: frozenset[int], chosen: tuple[int, ...]
    ) -> float:
        """Weigh one automaton; its total."""
        used = [n for n in range(len(chosen)) if any(row[n] != s for s, row in enumerate(moves))]
        named = tuple(self.lines.symbols[chosen[n]] for n in used)
        rows = tuple("".join(str(row[n]) for n in used) for row in moves)
        rule = Rule("moves", (named, rows, tuple(str(n) for n in sorted(final))))
        ends = run_tables(np.array([moves], np.int8), self.lines, chosen)[0]
        self.add(rule, np.isin(ends, list(final)))
        return self.candidates[rule].total


# And, or and xor of two rules ---------------------------------------------------------------


class RulePair(NamedTuple):
    """Two rows under an operator, perhaps the opposite of it."""

    total: float
    one: int
    two: int
    operator: int
    opposite: bool


def best_pairs(
    left: tuple[Bools, Bits], right: tuple[Bools, Bits], labels: Bools, code: LabelCode, keep: int
) -> list[RulePair]:
    """The pairs of a left and a right row that explain the labels in the fewest bits."""
    (rows, bits), (others, prices) = left, right
    good, bad = (
        [side.astype(np.float32) for side in (rows[:, labels == sign], others[:, labels == sign])]
        for sign in (True, False)
    )
    flat, either, wide = code.table.ravel(), code.either.ravel(), code.table.shape[1]
    pairs: list[RulePair] = []
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
                pairs.append(RulePair(float(total[i, j]), start + i, j, operator, opposite))
        pairs = sorted(pairs)[:keep]
        limit = pairs[-1].total if len(pairs) == keep else np.inf
    return pairs


def smallest(total: Any, keep: int, limit: float) -> Any:
    """Places of the least values, below a limit."""
    flat = total.ravel()
    near = np.flatnonzero(flat < limit)
    return near if len(near) <= keep else near[np.argpartition(flat[near], keep)[:keep]]


def best_xor(rows: Bools, bits: Bits, labels: Bools, code: LabelCode, keep: int) -> list[RulePair]:
    """Xor of two rows, neither of which need tell anything alone: a product of signs."""
    signs = (2 * rows.astype(np.float32) - 1).astype(np.float32)
    aims = signs * (2 * labels.astype(np.float32) - 1)
    pairs: list[RulePair] = []
    for start in range(0, len(rows), BLOCK):
        score = np.abs(aims[start : start + BLOCK] @ signs[start:].T)
        for at in smallest(-score, keep, np.inf):
            i, j = divmod(int(at), score.shape[1])
            one, two = start + i, start + j
            row = rows[one] ^ rows[two]
            good, bad = int((row & labels).sum()), int((row & ~labels).sum())
            least, opposite = code.best_bits(good, bad)
            total = float(least) + float(bits[one] + bits[two])
            pairs.append(RulePair(total, one, two, XOR, bool(opposite)))
        pairs = sorted(pairs)[:keep]
    return pairs


def row_of(pair: RulePair, rows: Bools, others: Bools) -> Bools:
    """Lines that a pair accepts."""
    one, two = rows[pair.one], others[pair.two]
    row: Bools = (one & two, one & ~two, ~one & two, ~one & ~two, one ^ two)[pair.operator]
    return ~row if pair.opposite else row


def rule_of(pair: RulePair, one: Rule, two: Rule) -> Rule:
    """A pair in words."""
    if pair.operator == XOR:
        rule = join("xor", one, two)
    else:
        first = negate(one) if pair.operator in (2, 3) else one
        rule = join("and", first, negate(two) if pair.operator in (1, 3) else two)
    return negate(rule) if pair.opposite else rule
