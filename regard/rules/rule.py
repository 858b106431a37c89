"""Rules about sequences: atoms, automata, and what and, or, xor and not make of them.

A rule has a reading in words, a description length in bits, and a Python expression that decides;
the last is what the search, the probes and the printed checker all run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, chain, product
from random import Random
from typing import Any

from regard.formal.dfa import DFA, Word
from regard.formal.lstar import learn_dfa
from regard.rules.atoms import KINDS, Atom, atom_bits, fill

Accepts = Callable[[Sequence[str]], bool]
PAIR_BITS = 4
JOIN_BITS = {1: 2, 2: PAIR_BITS, 3: 7}  # of the operators and signs of so many atoms
MAX_STATES, MAX_SYMBOLS = 60, 7  # of the automaton of a rule
MAX_ENDINGS = 300  # of one length that tell its states apart
CHECKS = 600  # random words on which both must agree
UNBOUNDED = {"more", "equal", "most", "mirror", "copy", "prefix"}  # no automaton can count these
EQUAL = {"same", "repeat", "mirror", "copy"}


@dataclass(frozen=True)
class Rule:
    """A test of a sequence: an atom of symbols by name, or and, or, xor, not of rules."""

    kind: str
    args: tuple[Any, ...] = ()
    parts: tuple[Rule, ...] = ()

    @property
    def reading(self) -> str:
        """In words."""
        if self.kind == "not":
            return f"not ({self.parts[0].reading})"
        if self.parts:
            return f" {self.kind.upper()} ".join(f"({part.reading})" for part in self.parts)
        return fill(KINDS[self.kind].words, self.args)

    @property
    def source(self) -> str:
        """A Python expression over `x`, the list of tokens."""
        if self.kind == "not":
            return f"not ({self.parts[0].source})"
        if self.kind == "xor":
            return " ^ ".join(f"bool({part.source})" for part in self.parts)
        if self.parts:
            return f" {self.kind} ".join(f"({part.source})" for part in self.parts)
        return fill(KINDS[self.kind].source, self.args)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols that the rule names, in its order."""
        names: list[str] = [symbol for part in self.parts for symbol in part.symbols]
        takes = "" if self.parts else KINDS[self.kind].takes
        for letter, value in zip(takes, self.args, strict=True):
            names += value if letter == "w" else [value] if letter == "s" else []
        return tuple(dict.fromkeys(names))

    def atoms(self) -> Iterator[Rule]:
        """The atoms that it is made of."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.atoms()

    def bits(self, vocabulary: int) -> int:
        """Description length with so many symbols, in whole bits."""
        each = [atom_bits(atom.kind, atom.args, vocabulary) for atom in self.atoms()]
        return math.ceil(sum(each) + JOIN_BITS[len(each)])

    def compile(self) -> Accepts:
        """The expression as a function."""
        names = {"reduce": reduce, "accumulate": accumulate}
        test: Accepts = eval(f"lambda x: bool({self.source})", names)
        return lambda tokens: test(list(tokens))  # a tuple is never equal to a list


def name_symbols(atom: Atom, symbols: Sequence[str]) -> Rule:
    """An atom of symbols by number as a rule of symbols by name."""
    args: list[Any] = []
    for letter, value in zip(KINDS[atom.kind].takes, atom.args, strict=True):
        if letter == "w":
            value = tuple(symbols[n] for n in value)
        args.append(symbols[value] if letter == "s" else value)
    return Rule(atom.kind, tuple(args))


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


def rule_automaton(rule: Rule, vocabulary: Sequence[str]) -> DFA | None:
    """The smallest automaton of a rule over a vocabulary, learnt by asking it; None where none so
    small is found."""
    atoms = list(rule.atoms())
    kinds = {atom.kind for atom in atoms}
    if kinds & UNBOUNDED or any(atom.kind == "dyck" and not atom.args[2] for atom in atoms):
        return None
    named = rule.symbols if not kinds & EQUAL else tuple(vocabulary)
    others = [symbol for symbol in vocabulary if symbol not in named]
    alphabet = (*named, *others[:1])
    if not 1 <= len(alphabet) <= MAX_SYMBOLS:
        return None
    rng, accepts = Random(0), rule.compile()
    pieces = [(symbol,) * times for symbol in alphabet for times in (1, 1, 4)]
    pieces += [arg for atom in atoms for arg in atom.args[:1] if isinstance(arg, tuple)]

    def draw(count: int) -> list[Word]:
        lengths = [rng.randrange(16) for _ in range(count)]
        return [tuple(chain.from_iterable(rng.choices(pieces, k=length))) for length in lengths]

    longest = next(n for n in range(9) if n == 8 or len(alphabet) ** (n + 1) > MAX_ENDINGS)
    endings = [word for n in range(longest + 1) for word in product(alphabet, repeat=n)]

    def answer(words: Sequence[Word]) -> list[bool]:
        return [*map(accepts, words)]

    learnt = learn_dfa(answer, alphabet, draw, MAX_STATES, CHECKS, endings=endings)
    if not learnt.exact:
        return None
    more = others[1:]  # which have the moves of the one that stood for them
    moves = tuple((*row, *[row[-1]] * len(more)) for row in learnt.dfa.moves)
    return DFA((*alphabet, *more), moves, learnt.dfa.accepting)
