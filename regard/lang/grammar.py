"""Context-free grammars and the files they are written in (Chomsky 1956).

    # a comment; the left side of the first rule is the start
    S -> NP VP
    NP -> the N [0.8] | 'the' N PP [0.2]     # weights, for drawing and for probabilities
    E -> E '+' T | T                         # quoted: a terminal, whatever it looks like
    A -> a A b |                             # nothing, or ε: the empty word

What stands on no left side is a terminal. A line that begins with | goes on with the rule above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from regard.errors import DataError, nearest

PIECES = re.compile(
    r"(?P<blank>\s+|\#.*)|(?P<arrow>->|→|::=)|(?P<bar>\|)|\[(?P<weight>[^\]\[]*)\]"
    r"|(?P<quote>'[^']*'|\"[^\"]*\")|(?P<name>(?:(?!->|::=)[^\s|'\"\[\]#→])+)|(?P<bad>.)"
)


class Symbol(NamedTuple):
    """A terminal, or the left side of some rule."""

    text: str
    terminal: bool


@dataclass(frozen=True)
class Rule:
    """One alternative of a left side."""

    left: str
    right: tuple[Symbol, ...]
    weight: float = 1.0

    def __str__(self) -> str:
        return f"{self.left} -> {' '.join(symbol.text for symbol in self.right) or 'ε'}"


@dataclass(frozen=True)
class Grammar:
    """A start and rules; those of a left side are as likely as their weights say."""

    start: str
    rules: tuple[Rule, ...]

    @cached_property
    def by_left(self) -> dict[str, list[Rule]]:
        """The rules of each left side."""
        found: dict[str, list[Rule]] = {}
        for rule in self.rules:
            found.setdefault(rule.left, []).append(rule)
        return found

    @cached_property
    def terminals(self) -> tuple[str, ...]:
        """All terminals, in the order in which they occur."""
        used = (s.text for rule in self.rules for s in rule.right if s.terminal)
        return tuple(dict.fromkeys(used))

    def trim(self) -> Grammar:
        """Without rules that are in no derivation; the start's own stay away when it has none."""
        productive: set[str] = set()
        while fresh := {r.left for r in self.rules if made_of(r, productive)} - productive:
            productive |= fresh
        rules = [rule for rule in self.rules if made_of(rule, productive)]
        reached = {self.start}
        while (
            fresh := {s.text for r in rules if r.left in reached for s in r.right if not s.terminal}
            - reached
        ):
            reached |= fresh
        return Grammar(self.start, tuple(rule for rule in rules if rule.left in reached))


def made_of(rule: Rule, names: Iterable[str]) -> bool:
    """Whether a right side has terminals and these names only."""
    return all(symbol.terminal or symbol.text in names for symbol in rule.right)


# Files -----------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A part of a line: blank, arrow, bar, weight, quote, name or bad."""

    kind: str
    text: str
    line: int
    column: int


def read_grammar(text: str, name: str = "the grammar") -> Grammar:
    """The grammar of a text; errors say line and column."""
    drafts: list[tuple[str, list[Piece], float]] = []
    left = ""
    for number, line in enumerate(text.splitlines(), 1):
        pieces = [piece for piece in split(line, number) if piece.kind != "blank"]
        if not pieces:
            continue
        check_pieces(pieces, name)
        if pieces[0].kind == "bar" and left:
            body = pieces[1:]
        else:
            left, body = left_side(pieces, name), pieces[2:]
        drafts += [(left, *alternative(part, name)) for part in alternatives(body)]
    if not drafts:
        raise DataError(f"reading {name}", "no rules", "lines such as S -> a S b | a b")
    lefts = dict.fromkeys(left for left, _, _ in drafts)
    rules = [
        Rule(left, tuple(symbol(piece, lefts, name) for piece in pieces), weight)
        for left, pieces, weight in drafts
    ]
    return Grammar(rules[0].left, tuple(rules))


def split(line: str, number: int) -> Iterator[Piece]:
    """The pieces of a line."""
    for found in PIECES.finditer(line):
        kind = str(found.lastgroup)
        yield Piece(kind, found[kind], number, found.start() + 1)


def fail(name: str, piece: Piece, found: str, expected: str, fix: str = "") -> DataError:
    """What is wrong, and where."""
    place = f"line {piece.line}, column {piece.column}"
    return DataError(f"reading {name}", f"{found} at {place}", expected, fix)


def check_pieces(pieces: list[Piece], name: str) -> None:
    """Stop at a sign that belongs to nothing, and at a second arrow."""
    for n, piece in enumerate(pieces):
        if piece.kind == "bad":
            closed = {"'": "a closing '", '"': 'a closing "', "[": "a weight such as [0.5]"}
            raise fail(name, piece, piece.text, closed.get(piece.text, "symbols, | and ->"))
        if piece.kind == "arrow" and n != 1:
            raise fail(name, piece, piece.text, "one -> on a line, behind one name")


def left_side(pieces: list[Piece], name: str) -> str:
    """The name before the arrow."""
    if pieces[0].kind != "name":
        found = pieces[0].text or "nothing"
        raise fail(name, pieces[0], found, "a name, then ->", "terminals stand on the right only")
    if len(pieces) < 2 or pieces[1].kind != "arrow":
        at = pieces[min(1, len(pieces) - 1)]
        raise fail(name, at, f"no -> behind {pieces[0].text}", "a rule such as S -> a S b | a b")
    return pieces[0].text


def alternatives(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """What stands between the bars."""
    found: list[Piece] = []
    for piece in pieces:
        if piece.kind == "bar":
            yield found
            found = []
        else:
            found.append(piece)
    yield found


def alternative(pieces: list[Piece], name: str) -> tuple[list[Piece], float]:
    """The symbols of an alternative and its weight, which comes last."""
    weight = 1.0
    for piece in pieces:
        if piece.kind == "weight":
            try:
                weight = float(piece.text)
            except ValueError:
                weight = -1.0
            if piece is not pieces[-1] or not 0 < weight < float("inf"):
                expected = "a number above 0, at the end of its alternative"
                raise fail(name, piece, f"[{piece.text}]", expected, "quote a bracket: '['")
    return [p for p in pieces if p.kind != "weight" and (p.kind, p.text) != ("name", "ε")], weight


def symbol(piece: Piece, lefts: Iterable[str], name: str) -> Symbol:
    """A terminal or a left side; a capital without rules is taken for a slip."""
    if piece.kind == "quote":
        return Symbol(piece.text[1:-1], True)
    if piece.text not in lefts and piece.text[0].isupper():
        close = nearest(piece.text, lefts, 1)
        fix = (f"did you mean {close}? " if close else "") + f"A terminal in quotes: '{piece.text}'"
        raise fail(name, piece, f"no rule for {piece.text}", "a left side of some rule", fix)
    return Symbol(piece.text, piece.text not in lefts)
