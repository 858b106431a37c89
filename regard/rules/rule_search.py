"""The search for rules: atoms, then two and three of them together, then small automata."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from regard.rules.description_length import Code, tally
from regard.rules.encoded_lines import Bools, Coded
from regard.rules.joins import Joined, best_pairs, best_xor, choose, row_of, rule_of
from regard.rules.pool import Pool, fill
from regard.rules.rule import Rule, moves_bits, negate
from regard.rules.simulated_annealing import anneal, finish, make_task
from regard.rules.transition_tables import project, run_tables

FEW = 12  # symbols up to which all of them are tried together
SINGLES, PAIRS, TRIPLES = 250, 300, 100  # of each, kept
CHEAP, TELLING, XOR = 1800, 900, 6000  # rows that are combined
HEADS = 60  # rows that are combined with every other
STATES = 6
EFFORTS = (0.4, 3.0)  # of a first and of a second look at automata of one size
HOPE = 30.0  # bits by which the first look may be behind the best rule to earn the second
GOOD = 0.12  # share of lines against a rule that is still taken for the rule with noise
SLACK = 12.0  # bits by which a rival may be dearer than the best and is still looked for

Told = Callable[[str], None]


class Candidate(NamedTuple):
    """A rule, its bits, those of rule and labels together, and the lines it accepts."""

    rule: Rule
    bits: int
    total: float
    row: Bools


@dataclass
class Search:
    """What is searched, until when, and what was found."""

    coded: Coded
    labels: Bools
    code: Code
    deadline: float
    rng: np.random.Generator
    told: Told

    def __post_init__(self) -> None:
        self.found: dict[Rule, Candidate] = {}
        self.pool = fill(self.coded, self.deadline, self.told)

    def late(self) -> bool:
        """Whether time is up."""
        return time.monotonic() > self.deadline

    @property
    def best(self) -> float:
        """The least total so far."""
        return min((one.total for one in self.found.values()), default=float("inf"))

    def add(self, rule: Rule, row: Bools) -> None:
        """Weigh one rule."""
        bits = rule.bits(len(self.coded.symbols))
        good, bad = tally(row[None], self.labels)
        total = bits + float(self.code.bits(good[0], bad[0]))
        self.found[rule] = Candidate(rule, bits, total, row)

    def run(self) -> None:
        """All of it, as far as time allows."""
        self.take_singles(self.pool)
        for pool in self.pools():
            if not self.late():
                self.told(f"pairs of {len(pool.rows):,} rules")
                self.take_joins(pool)
        for chosen in self.alphabets():
            if not self.late():
                self.take_automata(chosen)

    def pools(self) -> Iterable[Pool]:
        """The pool, and with many symbols one about those that tell most."""
        yield self.pool
        if len(self.coded.symbols) <= FEW or self.late():
            return
        names = [name for one in self.leaders(60) for name in one.rule.symbols]
        chosen = [self.coded.symbols.index(name) for name in dict.fromkeys(names)][:FEW]
        pool = fill(self.coded.reorder(chosen), self.deadline, self.told)
        self.take_singles(pool)
        yield pool

    def leaders(self, count: int) -> list[Candidate]:
        """The best so far."""
        return sorted(self.found.values(), key=lambda one: (one.total, one.bits))[:count]

    def take_singles(self, pool: Pool) -> None:
        """Atoms alone."""
        if not len(pool.rows):
            return
        good, bad = tally(pool.rows, self.labels)
        plain = self.code.bits(good, bad)
        turned = self.code.bits(self.code.positives - good, self.code.negatives - bad)
        order = np.argsort(np.minimum(plain, turned) + pool.bits, kind="stable")
        for n in order[:SINGLES]:
            for rule in pool.rules(n):
                opposite = turned[n] < plain[n]
                row = ~pool.rows[n] if opposite else pool.rows[n]
                self.add(negate(rule) if opposite else rule, row)

    def take_joins(self, pool: Pool) -> None:
        """Two and three atoms together."""
        if len(pool.rows) < 2:
            return
        chosen = choose(pool.rows, pool.bits, self.labels, self.code, (CHEAP, TELLING))
        rows, bits = pool.rows[chosen], pool.bits[chosen]
        pairs = best_pairs((rows, bits), (rows, bits), self.labels, self.code, 2 * PAIRS)
        pairs = [pair for pair in pairs if pair.one < pair.two]
        for pair in pairs:
            one, two = pool.rules(chosen[pair.one]), pool.rules(chosen[pair.two])
            self.add(rule_of(pair, one[0], two[0]), row_of(pair, rows, rows))
        for pair in pairs[:20]:  # atoms that agree on all lines make rivals
            self.take_rivals(pair, pool, chosen)
        if self.late():
            return
        self.take_partners(pool)
        first, price = pool.rows[:XOR], pool.bits[:XOR]
        for pair in best_xor(first, price, self.labels, self.code, PAIRS // 3):
            rule = rule_of(pair, pool.rules(pair.one)[0], pool.rules(pair.two)[0])
            self.add(rule, row_of(pair, first, first))
        if not self.late():
            self.take_triples(pool, chosen, pairs)

    def take_partners(self, pool: Pool) -> None:
        """The best atoms with any other, which alone may be dear and tell nothing."""
        heads = choose(pool.rows, pool.bits, self.labels, self.code, (0, HEADS))
        left, right = (pool.rows[heads], pool.bits[heads]), (pool.rows, pool.bits)
        for pair in best_pairs(left, right, self.labels, self.code, PAIRS // 3):
            if heads[pair.one] != pair.two:
                one, two = pool.rules(heads[pair.one])[0], pool.rules(pair.two)[0]
                self.add(rule_of(pair, one, two), row_of(pair, left[0], pool.rows))

    def take_rivals(self, pair: Joined, pool: Pool, chosen: Bools) -> None:
        """The same pair of rows with other atoms behind them."""
        row = row_of(pair, pool.rows[chosen], pool.rows[chosen])
        for one in pool.rules(chosen[pair.one])[:4]:
            for two in pool.rules(chosen[pair.two])[:4]:
                self.add(rule_of(pair, one, two), row)

    def take_triples(self, pool: Pool, chosen: Bools, pairs: list[Joined]) -> None:
        """The best pairs with one atom more."""
        rows, bits = pool.rows[chosen], pool.bits[chosen]
        begun = {row_of(pair, rows, rows).tobytes(): pair for pair in reversed(pairs)}
        heads = sorted(begun.values())[:80]
        if not heads:
            return
        made = np.stack([row_of(pair, rows, rows) for pair in heads])
        spent = np.array([bits[pair.one] + bits[pair.two] for pair in heads], np.float32)
        for three in best_pairs((made, spent), (rows, bits), self.labels, self.code, TRIPLES):
            pair = heads[three.one]
            head = rule_of(pair, pool.rules(chosen[pair.one])[0], pool.rules(chosen[pair.two])[0])
            last = pool.rules(chosen[three.two])[0]
            self.add(rule_of(three, head, last), row_of(three, made, rows))

    def alphabets(self) -> Iterable[tuple[int, ...]]:
        """Sets of symbols that an automaton may look at, those of good rules first."""
        everything = tuple(range(len(self.coded.symbols)))
        tried: dict[tuple[int, ...], None] = {}
        if len(everything) <= 4:
            tried[everything] = None
        for one in self.leaders(120):
            named = sorted(self.coded.symbols.index(name) for name in one.rule.symbols)
            if 1 <= len(named) <= 4:
                tried[tuple(named)] = None
        good = self.code.none - self.best > 40 and self.wrong() < GOOD * len(self.labels)
        chosen = list(tried)[: 2 if good else 3]
        if 4 < len(everything) <= 10 and not good:
            chosen.append(everything)
        return chosen

    def wrong(self) -> int:
        """Lines that the best rule so far gets wrong."""
        return min(int((one.row != self.labels).sum()) for one in self.leaders(1))

    def take_automata(self, chosen: tuple[int, ...]) -> None:
        """Automata of two states and more over some symbols, while they can still pay."""
        digits, inverse = project(self.coded, chosen)
        task = make_task(digits, inverse, self.labels, len(chosen))
        floor, idle, least = float(self.code.table.min()), 0, float("inf")
        for states in range(2, STATES + 1):
            spent = 3 + moves_bits(states, len(chosen), len(self.coded.symbols))
            if (
                self.late()
                or idle == (2 if len(chosen) < 4 else 1)
                or spent + floor > self.best + SLACK
            ):
                return
            self.told(f"automata of {states} states over {len(chosen)} symbols")
            totals = []
            for effort in EFFORTS:  # a quick look first; most sets of symbols tell nothing
                for table in anneal(task, states, effort, self.deadline, self.rng):
                    dfa = finish(table, task)
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
        named = tuple(self.coded.symbols[chosen[n]] for n in used)
        rows = tuple("".join(str(row[n]) for n in used) for row in moves)
        rule = Rule("moves", (named, rows, tuple(str(n) for n in sorted(final))))
        ends = run_tables(np.array([moves], np.int8), self.coded, chosen)[0]
        self.add(rule, np.isin(ends, list(final)))
        return self.found[rule].total
