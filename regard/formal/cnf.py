"""Chomsky normal form that keeps count: the derivations of a word stay as many as they were.

Every rule becomes A → B C or A → a. Empty and single right sides are summed into the others, so
the numbers that the inside algorithm finds are those of the grammar as it was written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import prod

from regard.errors import DataError
from regard.formal.grammar import Grammar

Row = Counter[str]
Short = tuple[str, tuple[str, ...]]
"""A rule with at most two symbols on its right: left, right."""


@dataclass(frozen=True)
class CNF:
    """Rules in normal form, how many rules each stands for, and the ways to the empty word."""

    start: str
    pairs: dict[str, Counter[tuple[str, str]]]
    words: dict[str, Row]
    empty: int


def to_cnf(grammar: Grammar, counting: bool = False) -> CNF:
    """The normal form; counting, its numbers are those of derivations, else they only tell apart
    what can be derived, in a grammar with rings too."""
    grammar = grammar.trim()
    short = list(shorten(grammar))
    empty = empty_ways(short, counting)
    units: dict[str, Row] = defaultdict(Counter)
    by_left: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for left, right in short:
        by_left[left].append(right)
        for n, part in enumerate(right):
            rest = 1 if len(right) == 1 else empty.get(right[1 - n], 0)
            if rest and not is_terminal(part):
                units[left][part] += rest
    if counting:
        forbid_cycles(units, "rules of one symbol")
    cnf = CNF(grammar.start, {}, {}, empty.get(grammar.start, 0))
    for left in {grammar.start, *by_left}:
        cnf.pairs[left], cnf.words[left] = Counter(), Counter()
        for end, chains in unit_chains(left, units, counting).items():
            for right in by_left.get(end, ()):  # chains of one name are in `chains`
                if len(right) == 2:
                    cnf.pairs[left][right[0], right[1]] += chains
                elif len(right) == 1 and is_terminal(right[0]):
                    cnf.words[left][right[0][1:]] += chains
    return cnf


def is_terminal(name: str) -> bool:
    """Terminals are written with a quote before them here; names have none."""
    return name.startswith("'")


def shorten(grammar: Grammar) -> Iterator[Short]:
    """Right sides in steps of two; terminals in them get names of their own."""
    fresh, named = 0, set[str]()
    for rule in grammar.rules:
        parts = [f"'{s.text}" if s.terminal else s.text for s in rule.right]
        if len(parts) > 1:
            named |= {part for part in parts if is_terminal(part)}
            parts = [f"<{part[1:]}>" if is_terminal(part) else part for part in parts]
        left = rule.left
        while len(parts) > 2:
            fresh += 1
            yield left, (parts.pop(0), f"<{fresh}>{rule.left}")
            left = f"<{fresh}>{rule.left}"
        yield left, tuple(parts)
    for part in sorted(named):
        yield f"<{part[1:]}>", (part,)


def empty_ways(short: list[Short], counting: bool) -> Row:
    """The names that can become nothing, and, counting, in how many ways."""
    ways = Row()
    while fresh := {left for left, right in short if ways.keys() >= set(right)} - ways.keys():
        ways.update(fresh)
    if not counting:
        return ways
    rules = [rule for rule in short if ways.keys() >= set(rule[1])]
    graph: dict[str, set[str]] = defaultdict(set)
    for left, right in rules:
        graph[left] |= set(right)
    for name in forbid_cycles(graph, "rules that may be empty"):  # those on the right come first
        products = ([ways[part] for part in right] for left, right in rules if left == name)
        ways[name] = sum(prod(numbers) for numbers in products)
    return ways


def unit_chains(left: str, units: Mapping[str, Row], counting: bool) -> Row:
    """How many ways lead from a name to each name by rules of one symbol."""
    total, row = Row([left]), Row([left])
    while row:
        following = Row()
        for name, ways in row.items():
            for part, one in units.get(name, Row()).items():
                if counting or part not in total:
                    following[part] += ways * one
        total.update(following)
        row = following
    return total


def forbid_cycles(graph: Mapping[str, Iterable[str]], what: str) -> list[str]:
    """The names, each after those it leads to; one that leads back to itself at no cost derives
    words in infinitely many ways."""
    try:
        return [*TopologicalSorter(graph).static_order()]
    except CycleError as error:
        ring = " → ".join(str(name) for name in reversed(error.args[1]))
        problem = f"{ring} by {what}: infinitely many derivations of one word"
        raise DataError("counting derivations", problem, "a grammar without such a ring") from None
