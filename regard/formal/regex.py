"""Regular expressions over characters, or over words between blanks, and their automata.

    a(b|c)*d?       characters: . any, [a-z] and [^ab] sets, & and, ~ not, \\ escapes
    leeuw .* [aap olifant]+ leeuw       over words

`()` is the empty word and `[]` nothing at all. `.`, `[^…]` and `~` speak of the alphabet: the
symbols of the expression itself unless more are given. Each part is an automaton; where words pass
from part to part, sets of their states are the states of the whole (Rabin and Scott 1959).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from functools import cache, reduce
from operator import and_
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput  # grammar.py, read before, says if it lacks

from regard.errors import DataError, ResourceError
from regard.formal.dfa import DFA, explore

MARKS = frozenset("()[]{}|&~*+?.\\")

SYNTAX = r"""
?either: both ("|" both)*
?both: after ("&" after)*
after: factor*
?factor: "~" factor -> negate
    | times
?times: single
    | times "*" -> star
    | times "+" -> plus
    | times "?" -> optional
?single: SYMBOL -> symbol
    | SET -> members
    | "." -> any
    | "(" either ")"
SET: /\[(\\.|[^\]\\])*\]?/s
"""
TIMES = {"star": ({0, 1}, 0), "plus": ({0}, 0), "optional": ({0, 1}, -1)}
"""Of a part and of the empty word behind it, which may stand alone, and which comes again."""
CHARACTER = r"\\.|[^()\[\]{}|&~*+?.\\]"
WORD = r"(?:\\.|[^()\[\]{}|&~*+?.\\\s])+"


@cache
def parser(words: bool) -> Lark:
    """The parser of expressions over words, or over characters, where blanks are symbols."""
    symbol = f"SYMBOL: /{WORD if words else CHARACTER}/s\n"
    rest = r"%ignore /\s+/" if words else ""
    return Lark(SYNTAX + symbol + rest, start="either", parser="lalr")


def regex_dfa(text: str, alphabet: Iterable[str] | None = None, words: bool = False) -> DFA:
    """The smallest automaton of an expression."""
    symbols = tuple(alphabet) if alphabet is not None else symbols_of(text, words)
    reader = RegexReader(text, words, symbols)
    try:
        return reader.build(reader.parse()).minimise()
    except RecursionError:
        problem, fix = "brackets or repetitions too deep", "an expression with fewer of them"
        raise ResourceError("reading an expression", problem, fix=fix) from None


def symbols_of(text: str, words: bool = False) -> tuple[str, ...]:
    """The symbols that an expression names, sorted."""
    reader, names = RegexReader(text, words, None), set[str]()
    for tree in reader.parse().iter_subtrees():
        if tree.data in ("symbol", "members"):
            names |= reader.read_members(tree)
    return tuple(sorted(names))


class RegexReader:
    """Turns what lark parsed into an automaton over an alphabet, or over any (None)."""

    def __init__(self, text: str, words: bool, alphabet: tuple[str, ...] | None) -> None:
        self.text, self.words, self.alphabet = text, words, alphabet

    def parse(self) -> Tree[Token]:
        """The whole expression; errors say line and column."""
        try:
            return parser(self.words).parse(self.text)
        except UnexpectedInput as error:
            raise self.syntax_error(error) from None

    def syntax_error(self, error: UnexpectedInput) -> DataError:
        """What stands where it cannot, or is still open at the end."""
        token = getattr(error, "token", None)
        if token is not None and token.type == "$END":
            stack = error.interactive_parser.parser_state.value_stack
            last = [part for part in stack if isinstance(part, Token) and part in "(~"][-1]
            if last == "~":
                return self.error("~ at the end", "what it negates", last.start_pos)
            return self.error("( that is never closed", "a ) for each (", last.start_pos)
        mark = self.text[error.pos_in_stream or 0]
        expected = f"a symbol before it, or \\{mark} for the symbol {mark}"
        if mark == ")":
            expected = "a bracket that was opened before"
        return self.error(repr(mark), expected, error.pos_in_stream)

    def error(self, problem: str, expected: str, at: int | None) -> DataError:
        """A problem at a place of the text."""
        at = at or 0
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        place = f"line {line}, column {column}" if "\n" in self.text else f"column {column}"
        return DataError("reading an expression", f"{problem} at {place}", expected)

    def build(self, tree: Tree[Token]) -> DFA:
        """The automaton of a parsed part."""
        parts = [self.build(part) for part in tree.children if isinstance(part, Tree)]
        if tree.data == "either":
            return self.connect(parts, set(range(len(parts))), range(len(parts)))
        if tree.data == "both":
            return reduce(and_, parts).minimise()
        if tree.data == "negate":
            return ~parts[0]
        if tree.data == "after":
            return self.connect([*parts, self.one_of((), 0)], {0}, [len(parts)])
        if tree.data in TIMES:
            alone, again = TIMES[tree.data]
            return self.connect([*parts, self.one_of((), 0)], alone, alone, again)
        return self.one_of(self.alphabet or () if tree.data == "any" else self.read_members(tree))

    def one_of(self, members: Iterable[str], accepting: int = 1) -> DFA:
        """State 0 before one of these symbols, 1 after it, 2 after anything else."""
        first = tuple(1 if symbol in members else 2 for symbol in self.alphabet or ())
        dead = (2,) * len(first)
        return DFA(self.alphabet or (), (first, dead, dead), frozenset({accepting}))

    def connect(
        self, parts: Sequence[DFA], begin: set[int], last: Container[int], loop: int = -1
    ) -> DFA:
        """The smallest automaton of the words that pass from part to part.

        They begin in a part of `begin` and end with one of `last`; after a part comes the next one,
        unless that one begins, and after `loop` this one again.
        """

        def enter(places: set[tuple[int, int]]) -> frozenset[tuple[int, int]]:
            waiting = list(places)
            while waiting:
                n, state = waiting.pop()
                if state in parts[n].accepting:
                    onward = {n + 1} - begin - {len(parts)} | {n} & {loop}
                    fresh = {(m, parts[m].start) for m in onward} - places
                    places |= fresh
                    waiting += fresh
            return frozenset(places)

        def step(places: frozenset[tuple[int, int]], symbol: str) -> frozenset[tuple[int, int]]:
            moved = ((n, parts[n].step(state, symbol)) for n, state in places)
            return enter({(n, state) for n, state in moved if state in parts[n].live})

        def accepts(places: frozenset[tuple[int, int]]) -> bool:
            return any(n in last and state in parts[n].accepting for n, state in places)

        start = enter({(n, parts[n].start) for n in begin})
        return explore(self.alphabet or (), start, step, accepts).minimise()

    def symbol(self, text: str, at: int) -> str:
        """A symbol without its escapes, which must be one of the alphabet."""
        name = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
        if self.alphabet is not None and name not in self.alphabet:
            expected = f"one of {' '.join(sorted(self.alphabet))}"
            raise self.error(f"the symbol {name!r}", expected, at)
        return name

    def read_members(self, tree: Tree[Token]) -> set[str]:
        """A symbol, or a set; a ^ that comes first turns it round, x-z is a range of characters."""
        token: Any = tree.children[0]
        start = token.start_pos
        if tree.data == "symbol":
            return {self.symbol(token, start)}
        if not re.fullmatch(r"\[(\\.|[^\\])*\]", token, re.DOTALL):
            raise self.error("[ that is never closed", "a ] for each [", start)
        pattern = rf"{WORD}|\S" if self.words else r"\\.|."
        negated, inside = token[1:2] == "^", token[1:-1]
        shift = start + 1 + negated
        signs = [(m[0], shift + m.start()) for m in re.finditer(pattern, inside[negated:], re.S)]
        members: set[str] = set()
        while signs:
            (sign, at), *signs = signs
            is_range = len(signs) > 1 and signs[0][0] == "-" and signs[1][0] not in MARKS
            if self.words or not is_range:
                members.add(self.symbol(sign, at))
                continue
            last, signs = signs[1][0], signs[2:]
            if sign[-1] > last[-1]:
                raise self.error(f"{sign[-1]}-{last[-1]}", "a range that goes up", at)
            span = {chr(code) for code in range(ord(sign[-1]), ord(last[-1]) + 1)}
            members |= span if self.alphabet is None else span & set(self.alphabet)
        return set(self.alphabet) - members if negated and self.alphabet is not None else members
