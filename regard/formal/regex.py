"""Regular expressions over characters, or over words between blanks, and their automata.

    a(b|c)*d?       characters: . any, [a-z] and [^ab] sets, {2,4} times, & and, ~ not, \\ escapes
    leeuw .* [aap olifant]+ leeuw       over words

`()` is the empty word and `[]` nothing at all. `.`, `[^…]` and `~` speak of the alphabet: the
symbols of the expression itself unless more are given. Each part becomes states with free moves
between them (Thompson 1968); sets of these are the states of the automaton (Rabin and Scott 1959).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, reduce
from operator import and_

from regard.errors import DataError, ResourceError
from regard.formal.dfa import DFA, explore
from regard.formal.lark_parser import Lark, Token, Tree, UnexpectedInput, make_parser

MARKS = frozenset("()[]{}|&~*+?.\\")
MAX_TIMES = 250  # of {m,n}
MAX_PARTS = 20_000  # states before they are put together

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
    | times BOUNDS -> bounds
?single: SYMBOL -> symbol
    | SET -> members
    | "." -> any
    | "(" either ")"
SET: /\[(\\.|[^\]\\])*\]?/s
BOUNDS: /\{[^()\[\]{}|&~*+?.\\]*\}?/
"""
TIMES: dict[str, tuple[int, int | None]] = {
    "star": (0, None),
    "plus": (1, None),
    "optional": (0, 1),
}
CHARACTER = r"\\.|[^()\[\]{}|&~*+?.\\]"
WORD = r"(?:\\.|[^()\[\]{}|&~*+?.\\\s])+"

Ends = tuple[int, int]
"""The states where words of a part begin and end."""


@cache
def parser(words: bool) -> Lark:
    """The parser of expressions over words, or over characters, where blanks are symbols."""
    symbol = f"SYMBOL: /{WORD if words else CHARACTER}/s\n"
    return make_parser(SYNTAX + symbol + (r"%ignore /\s+/" if words else ""), start="either")


def regex_dfa(text: str, alphabet: Iterable[str] | None = None, words: bool = False) -> DFA:
    """The smallest automaton of an expression."""
    symbols = tuple(alphabet) if alphabet is not None else symbols_of(text, words)
    reader = RegexReader(text, words, symbols)
    return reader.determinise(reader.read())


def symbols_of(text: str, words: bool = False) -> tuple[str, ...]:
    """The symbols that an expression names, sorted."""
    reader = RegexReader(text, words, None)
    reader.read()
    return tuple(sorted(reader.seen))


class RegexReader:
    """Turns what lark parsed into states over an alphabet, or over any (None)."""

    def __init__(self, text: str, words: bool, alphabet: tuple[str, ...] | None) -> None:
        self.text, self.words, self.alphabet = text, words, alphabet
        self.seen: set[str] = set()
        self.moves: list[dict[str, int]] = []
        """From each state, where a symbol leads."""
        self.free: list[set[int]] = []
        """From each state, where one may go without a symbol."""

    def read(self) -> Ends:
        """The whole expression; errors say line and column."""
        try:
            return self.build(parser(self.words).parse(self.text))
        except UnexpectedInput as error:
            raise self.syntax_error(error) from None
        except RecursionError:
            problem, fix = "brackets or repetitions too deep", "an expression with fewer of them"
            raise ResourceError("reading an expression", problem, fix=fix) from None

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

    def build(self, tree: Tree[Token]) -> Ends:
        """The states of a parsed part."""
        parts = [part for part in tree.children if isinstance(part, Tree)]
        if tree.data in TIMES:
            return self.repeat(parts[0], *TIMES[tree.data])
        if tree.data in ("both", "negate"):
            automata = [self.determinise(self.build(part)) for part in parts]
            return self.embed(~automata[0] if tree.data == "negate" else reduce(and_, automata))
        if tree.data == "after":
            start = end = self.add_state()
            for part in parts:
                begin, after = self.build(part)
                self.free[end].add(begin)
                end = after
            return start, end
        if tree.data == "either":
            start, end = self.add_state(), self.add_state()
            for part in parts:
                begin, after = self.build(part)
                self.free[start].add(begin)
                self.free[after].add(end)
            return start, end
        members: Iterable[str] = self.alphabet or ()
        if tree.data != "any":
            token = tree.children[-1]
            assert isinstance(token, Token)
            if tree.data == "bounds":
                return self.repeat(parts[0], *self.read_bounds(token), token.end_pos)
            named = tree.data == "members"
            members = self.read_set(token) if named else [self.symbol(token, token.start_pos or 0)]
        start, end = self.add_state(), self.add_state()
        self.moves[start] = dict.fromkeys(members, end)
        return start, end

    def add_state(self) -> int:
        """A new state without moves."""
        self.moves.append({})
        self.free.append(set())
        return len(self.moves) - 1

    def repeat(self, tree: Tree[Token], least: int, most: int | None, at: int | None = 0) -> Ends:
        """A part from `least` to `most` times; None: without end."""
        start = last = self.add_state()
        final = self.add_state()
        count = max(least, 1) if most is None else most
        for n in range(count):
            if n >= least:
                self.free[last].add(final)
            begin, end = self.build(tree)
            if len(self.moves) > MAX_PARTS:
                raise self.error(f"repetitions of over {MAX_PARTS:,} parts", "fewer", at)
            self.free[last].add(begin)
            if most is None and n + 1 == count:
                self.free[end].add(begin)
            last = end
        self.free[last].add(final)
        return start, final

    def embed(self, dfa: DFA) -> Ends:
        """The states of an automaton among the others."""
        states, final = [self.add_state() for _ in dfa.moves], self.add_state()
        for state, row in zip(states, dfa.moves, strict=True):
            self.moves[state] = {s: states[n] for s, n in zip(dfa.alphabet, row, strict=True)}
        for n in dfa.accepting:
            self.free[states[n]].add(final)
        return states[dfa.start], final

    def determinise(self, ends: Ends) -> DFA:
        """The smallest automaton of the words between two states."""

        def reach(states: set[int]) -> frozenset[int]:
            waiting = list(states)
            while waiting:
                fresh = self.free[waiting.pop()] - states
                states |= fresh
                waiting += fresh
            return frozenset(states)

        def step(states: frozenset[int], symbol: str) -> frozenset[int]:
            return reach({self.moves[n][symbol] for n in states if symbol in self.moves[n]})

        def accepts(states: frozenset[int]) -> bool:
            return ends[1] in states

        return explore(self.alphabet or (), reach({ends[0]}), step, accepts).minimise()

    def read_bounds(self, token: Token) -> tuple[int, int | None]:
        """How often: `{m}`, `{m,}`, `{,n}` or `{m,n}`."""
        start = token.start_pos or 0
        text = "".join(token.strip("{}").split()) if self.words else token.strip("{}")
        low, comma, high = text.partition(",")
        numbers = [part for part in (low, high) if part]
        right = numbers and all(p.isdecimal() and int(p) <= MAX_TIMES for p in numbers)
        least = int(low or 0) if right else 0
        most = None if comma and not high else int(high or low or 0) if right else 0
        if not right or (most is not None and most < least):
            expected = f"{{m}}, {{m,}} or {{m,n}} with m ≤ n ≤ {MAX_TIMES}"
            raise self.error(f"{{{text}", expected, start + 1)
        if not token.endswith("}"):
            raise self.error("no } to close {", "{m,n}", start)
        return least, most

    def symbol(self, text: str, at: int) -> str:
        """A symbol without its escapes, which must be one of the alphabet."""
        name = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
        if self.alphabet is not None and name not in self.alphabet:
            expected = f"one of {' '.join(sorted(self.alphabet))}"
            raise self.error(f"the symbol {name!r}", expected, at)
        self.seen.add(name)
        return name

    def read_set(self, token: Token) -> set[str]:
        """A set; a ^ that comes first turns it round, x-z is a range of characters."""
        start = token.start_pos or 0
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
        self.seen |= members
        return set(self.alphabet or ()) - members if negated else members
