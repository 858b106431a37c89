"""Rules about sequences: atoms, automata, and what and, or, xor and not make of them.

A rule has a reading in words, a price in bits, and a Python expression that decides; the last is
what the search, the probes and the printed checker all run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any, NamedTuple

from regard.rules.atoms import KINDS, Word, find_moves, price, read_moves

Accepts = Callable[[Sequence[str]], bool]
PAIR = 4
JOINING = {1: 2, 2: PAIR, 3: 7}  # bits of the operators and signs of so many atoms
SURPLUS = 1  # bits of every atom, so that the code of all kinds together is a prefix code


class Atom(NamedTuple):
    """One kind of test with its arguments; symbols stand as numbers of the vocabulary."""

    kind: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Rule:
    """A test of a sequence in words: an atom, or and, or, xor, not of rules."""

    kind: str
    args: tuple[Any, ...] = ()
    parts: tuple[Rule, ...] = ()

    @property
    def reading(self) -> str:
        """In words."""
        if self.kind == "not":
            return f"not ({self.parts[0].reading})"
        if self.parts:
            joined = {"and": " AND ", "or": " OR ", "xor": " XOR "}[self.kind]
            return joined.join(f"({part.reading})" for part in self.parts)
        if self.kind == "moves":
            return read_moves(*self.args)
        return KINDS[self.kind].words(*self.args)

    @property
    def source(self) -> str:
        """A Python expression over `x`, the list of tokens."""
        if self.kind == "not":
            return f"not ({self.parts[0].source})"
        if self.kind == "xor":
            return " ^ ".join(f"bool({part.source})" for part in self.parts)
        if self.parts:
            return f" {self.kind} ".join(f"({part.source})" for part in self.parts)
        if self.kind == "moves":
            return find_moves(*self.args)
        return KINDS[self.kind].source(*self.args)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols that the rule names, in its order."""
        if self.parts:
            return tuple(dict.fromkeys(s for part in self.parts for s in part.symbols))
        if self.kind == "moves":
            return tuple(self.args[0])
        found: list[str] = []
        for letter, value in zip(KINDS[self.kind].takes, self.args, strict=True):
            found += value if letter == "w" else [value] if letter == "s" else []
        return tuple(dict.fromkeys(found))

    def bits(self, vocabulary: int) -> int:
        """Description length with so many symbols, in whole bits."""
        cores = [leaf.cost(vocabulary) for leaf in self.leaves()]
        return math.ceil(sum(cores) + JOINING[len(cores)])

    def cost(self, vocabulary: int) -> float:
        """Bits of an atom alone, without its sign."""
        return atom_bits(Atom(self.kind, self.args), vocabulary)

    def leaves(self) -> Iterable[Rule]:
        """The atoms."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def compile(self) -> Accepts:
        """The expression as a function."""
        return compile_source(self.source)


def compile_source(source: str) -> Accepts:
    """A function of a sequence from an expression over `x`."""
    names = {"reduce": reduce, "accumulate": accumulate}
    test: Accepts = eval(f"lambda x: bool({source})", names)
    return lambda tokens: test(list(tokens))  # a tuple is never equal to a list


def atom_bits(atom: Atom, vocabulary: int) -> float:
    """Bits of an atom alone, without its sign."""
    if atom.kind == "moves":
        symbols, moves, _ = atom.args
        return 1 + moves_bits(len(moves), len(symbols), vocabulary)
    return SURPLUS + price(atom.kind, atom.args, vocabulary)


def moves_bits(states: int, symbols: int, vocabulary: int) -> float:
    """Bits of an automaton: its size, its symbols, its moves; numbering the states is free."""
    choice = math.log2(max(vocabulary, symbols) * math.comb(max(vocabulary, symbols), symbols))
    moves = states * symbols * math.log2(states) + states
    return states + choice + moves - math.log2(math.factorial(states - 1))


def spell(atom: Atom, symbols: Sequence[str]) -> Rule:
    """An atom of symbols by number as a rule of symbols by name."""
    if atom.kind == "moves":
        chosen, moves, accepting = atom.args
        return Rule("moves", (spelt(chosen, symbols), moves, accepting))
    args: list[Any] = []
    for letter, value in zip(KINDS[atom.kind].takes, atom.args, strict=True):
        named = {"w": lambda v: spelt(v, symbols), "s": lambda v: symbols[v]}
        args.append(named.get(letter, lambda v: v)(value))
    return Rule(atom.kind, tuple(args))


def spelt(word: Iterable[int], symbols: Sequence[str]) -> Word:
    """Names of symbols."""
    return tuple(symbols[n] for n in word)


def negate(rule: Rule) -> Rule:
    """The opposite, without two signs in a row."""
    if rule.kind == "not":
        return rule.parts[0]
    if rule.kind in ("and", "or"):
        other = "or" if rule.kind == "and" else "and"
        return Rule(other, parts=tuple(negate(part) for part in rule.parts))
    if rule.kind == "xor":
        return Rule("xor", parts=(negate(rule.parts[0]), *rule.parts[1:]))
    return Rule("not", parts=(rule,))


def join(kind: str, *parts: Rule) -> Rule:
    """And, or, xor of rules; those of the same kind become one."""
    flat = (inner for p in parts for inner in (p.parts if p.kind == kind else (p,)))
    return Rule(kind, parts=tuple(flat))
