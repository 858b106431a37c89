"""Chomsky normal form that keeps weights: the derivations of a word stay as many, or as likely.

Every rule becomes A → B C or A → a. Empty and single right sides are summed into the others, so
the numbers that the inside algorithm finds are those of the grammar as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from regard.errors import DataError
from regard.formal.grammar import Grammar

ROUNDS, TINY = 10_000, 1e-15  # of a sum without end whose terms shrink

Row = dict[str, float]
Short = tuple[str, tuple[str, ...], float]
"""A rule with at most two symbols on its right: left, right, weight."""


@dataclass(frozen=True)
class CNF:
    """Rules in normal form with their weights, and the weight of the empty word."""

    start: str
    pairs: dict[str, dict[tuple[str, str], float]]
    words: dict[str, Row]
    empty: float


def to_cnf(grammar: Grammar, counting: bool = False) -> CNF:
    """The normal form, with probabilities, or with whole numbers that count derivations."""
    grammar = grammar.trim()
    short = list(shorten(grammar, counting))
    empty = empty_weights(short, counting)
    units: dict[str, Row] = {}
    for left, right, weight in short:
        for n, part in enumerate(right):
            rest = 1 if len(right) == 1 else empty.get(right[1 - n], 0)
            if rest and not is_terminal(part):
                row = units.setdefault(left, {})
                row[part] = row.get(part, 0) + weight * rest
    if counting:
        forbid_cycles(units, "rules of one symbol")
    cnf = CNF(grammar.start, {}, {}, empty.get(grammar.start, 0))
    by_left: dict[str, list[Short]] = {}
    for rule in short:
        by_left.setdefault(rule[0], []).append(rule)
    for left in {grammar.start, *by_left}:
        pairs = cnf.pairs[left] = {}
        words = cnf.words[left] = {}
        for end, chain in unit_chains(left, units).items():
            for _, right, weight in by_left.get(end, ()):  # chains of one name are in `chain`
                if len(right) == 2:
                    pair = right[0], right[1]
                    pairs[pair] = pairs.get(pair, 0) + chain * weight
                elif len(right) == 1 and is_terminal(right[0]):
                    word = right[0][1:]
                    words[word] = words.get(word, 0) + chain * weight
    return cnf


def is_terminal(name: str) -> bool:
    """Terminals are written with a quote before them here; names have none."""
    return name.startswith("'")


def shorten(grammar: Grammar, counting: bool) -> Iterator[Short]:
    """Right sides in steps of two; terminals in them get names of their own."""
    fresh, named = 0, set[str]()
    for rule in grammar.rules:
        total = sum(other.weight for other in grammar.by_left[rule.left])
        weight = 1 if counting else rule.weight / total
        parts = [f"'{s.text}" if s.terminal else s.text for s in rule.right]
        if len(parts) > 1:
            named |= {part for part in parts if is_terminal(part)}
            parts = [f"<{part[1:]}>" if is_terminal(part) else part for part in parts]
        left = rule.left
        while len(parts) > 2:
            fresh += 1
            yield left, (parts.pop(0), f"<{fresh}>{rule.left}"), weight
            left, weight = f"<{fresh}>{rule.left}", 1
        yield left, tuple(parts), weight
    for part in sorted(named):
        yield f"<{part[1:]}>", (part,), 1


def empty_weights(short: list[Short], counting: bool) -> Row:
    """How likely each name is to become nothing, or in how many ways it can."""
    nullable: set[str] = set()
    while fresh := {left for left, right, _ in short if nullable.issuperset(right)} - nullable:
        nullable |= fresh
    rules = [rule for rule in short if nullable.issuperset(rule[1])]
    if counting:
        graph: dict[str, Row] = {}
        for left, right, _ in rules:
            graph.setdefault(left, {}).update(dict.fromkeys(right, 1))
        forbid_cycles(graph, "rules that may be empty")
    weights: Row = dict.fromkeys(nullable, 0)
    for _ in range(ROUNDS):  # the least fixed point, from below
        new: Row = dict.fromkeys(nullable, 0)
        for left, right, weight in rules:
            for part in right:
                weight *= weights[part]
            new[left] += weight
        done = all(abs(new[name] - weights[name]) <= (0 if counting else TINY) for name in new)
        weights = new
        if done:
            break
    return weights


def unit_chains(left: str, units: Mapping[str, Row]) -> Row:
    """The summed weight of all ways from a name to each name by rules of one symbol."""
    total: Row = {left: 1}
    row: Row = {left: 1}
    for _ in range(ROUNDS):
        following: Row = {}
        for name, weight in row.items():
            for part, one in units.get(name, {}).items():
                following[part] = following.get(part, 0) + weight * one
        row = {name: weight for name, weight in following.items() if weight > TINY}
        if not row:
            break
        for name, weight in row.items():
            total[name] = total.get(name, 0) + weight
    return total


def forbid_cycles(graph: Mapping[str, Row], what: str) -> None:
    """A name that leads back to itself at no cost derives words in infinitely many ways."""
    try:
        TopologicalSorter({name: list(row) for name, row in graph.items()}).prepare()
    except CycleError as error:
        ring = " → ".join(str(name) for name in reversed(error.args[1]))
        problem = f"{ring} by {what}: infinitely many derivations of one word"
        raise DataError("counting derivations", problem, "a grammar without such a ring") from None
