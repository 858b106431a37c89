"""Regular expressions as people write them, over characters or over words between blanks.

    a(b|c)*d?       characters: . any, [a-z] and [^ab] sets, {2,4} times, & and, ~ not, \\ escapes
    leeuw .* [aap olifant]+ leeuw       over words

`()` is the empty word and `[]` nothing at all. `.`, `[^…]` and `~` speak of the alphabet: the
symbols of the expression itself unless more are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from regard.errors import DataError, ResourceError, UsageError
from regard.formal import regex
from regard.formal.dfa import DFA
from regard.formal.lark_parser import Lark, Token, Tree, UnexpectedInput, make_parser
from regard.formal.regex import Complement, Concatenation, Intersection, Node, Star, Symbols, Union

MARKS = frozenset("()[]{}|&~*+?.\\")
MAX_TIMES = 250  # of {m,n}
MAX_PARTS = 20_000  # of an expression whose repetitions are written out

SYNTAX = r"""
either: both ("|" both)*
both: after ("&" after)*
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
BUILDERS: dict[str, Callable[..., Node]] = {
    "either": regex.unite,
    "both": regex.intersect,
    "after": regex.concatenate,
    "negate": regex.complement,
    "star": regex.star,
    "plus": lambda inner: regex.repeat(inner, 1, None),
    "optional": lambda inner: regex.unite(inner, regex.EMPTY),
}
CHARACTER = r"\\.|[^()\[\]{}|&~*+?.\\]"
WORD = r"(?:\\.|[^()\[\]{}|&~*+?.\\\s])+"


@cache
def parser(words: bool) -> Lark:
    """The parser of expressions over words, or over characters, where blanks are symbols."""
    symbol = f"SYMBOL: /{WORD if words else CHARACTER}/s\n"
    return make_parser(SYNTAX + symbol + (r"%ignore /\s+/" if words else ""), start="either")


def regex_dfa(text: str, alphabet: Iterable[str] | None = None, words: bool = False) -> DFA:
    """The smallest automaton of an expression."""
    try:
        symbols = tuple(alphabet) if alphabet is not None else symbols_of(text, words)
        return regex.to_dfa(RegexReader(text, words, frozenset(symbols)).read(), symbols)
    except RecursionError:
        fix = "an expression with fewer of them"
        raise ResourceError(
            "reading an expression", "brackets or repetitions too deep", fix=fix
        ) from None


def symbols_of(text: str, words: bool = False) -> tuple[str, ...]:
    """The symbols that an expression names, sorted."""
    reader = RegexReader(text, words, None)
    reader.read()
    return tuple(sorted(reader.seen))


class RegexReader:
    """Turns what lark parsed into an expression over an alphabet, or over any (None)."""

    def __init__(self, text: str, words: bool, alphabet: frozenset[str] | None) -> None:
        self.text, self.words, self.alphabet = text, words, alphabet
        self.seen: set[str] = set()

    def read(self) -> Node:
        """The whole expression; errors say line and column."""
        try:
            return self.build(parser(self.words).parse(self.text))
        except UnexpectedInput as error:
            raise self.syntax_error(error) from None

    def syntax_error(self, error: UnexpectedInput) -> DataError:
        """Which bracket was never closed or opened, or which mark has nothing to stand behind."""
        token = getattr(error, "token", None)
        if token is not None and token.type == "$END":
            held = error.interactive_parser.parser_state.value_stack
            last = [part for part in held if isinstance(part, Token) and part in "(~"][-1]
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

    def build(self, tree: Tree[Token]) -> Node:
        """The expression of a parsed part."""
        parts = [self.build(part) for part in tree.children if isinstance(part, Tree)]
        if tree.data in BUILDERS:
            return BUILDERS[tree.data](*parts)
        if tree.data == "any":
            return Symbols(self.alphabet or frozenset())
        token = tree.children[-1]
        assert isinstance(token, Token)
        if tree.data == "bounds":
            return self.repeat(parts[0], token)
        if tree.data == "members":
            return self.members(token)
        return Symbols(frozenset({self.symbol(token, token.start_pos or 0)}))

    def repeat(self, node: Node, token: Token) -> Node:
        """An expression with `{m}`, `{m,}`, `{,n}` or `{m,n}` behind it."""
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
        if regex.size(node) * max(least, most or 0) > MAX_PARTS:
            raise self.error(f"repetitions of over {MAX_PARTS:,} parts", "fewer", token.end_pos)
        return regex.repeat(node, least, most)

    def symbol(self, text: str, at: int) -> str:
        """A symbol without its escapes, which must be one of the alphabet."""
        name = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
        if self.alphabet is not None and name not in self.alphabet:
            expected = f"one of {' '.join(sorted(self.alphabet))}"
            raise self.error(f"the symbol {name!r}", expected, at)
        self.seen.add(name)
        return name

    def members(self, token: Token) -> Node:
        """A set; a ^ that comes first turns it round, x-z is a range of characters."""
        start = token.start_pos or 0
        if not re.fullmatch(r"\[(\\.|[^\\])*\]", token, re.DOTALL):
            raise self.error("[ that is never closed", "a ] for each [", start)
        pattern = rf"{WORD}|\S" if self.words else r"\\.|."
        signs = [(m[0], start + 1 + m.start()) for m in re.finditer(pattern, token[1:-1], re.S)]
        negated = bool(signs) and signs[0][0].startswith("^")
        if negated:
            signs[:1] = [(signs[0][0][1:], signs[0][1] + 1)] if len(signs[0][0]) > 1 else []
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
            members |= span if self.alphabet is None else span & self.alphabet
        self.seen |= members
        everything = self.alphabet or frozenset()
        return Symbols(everything - members if negated else frozenset(members))


# Printing ---------------------------------------------------------------------------------------


def dfa_regex(dfa: DFA) -> str:
    """An expression of an automaton's language; over words when a symbol is longer than one."""
    words = any(len(symbol) != 1 for symbol in dfa.alphabet)
    if words and any(not s or set(s) & {" ", "\t", "\n"} for s in dfa.alphabet):
        raise UsageError("writing an expression", "a symbol with blanks in it", "words without")
    return RegexWriter(dfa.alphabet, words).write(regex.from_dfa(dfa), 0)


class RegexWriter:
    """Writes expressions that read back, with as few brackets as their marks need."""

    def __init__(self, alphabet: tuple[str, ...], words: bool) -> None:
        self.alphabet, self.gap = alphabet, " " if words else ""

    def write(self, node: Node, level: int) -> str:
        """Level 0: anything; 1: no `|`; 2: no `&`; 3: one part; in brackets where it is not so."""
        match node:
            case Symbols(members):
                return self.members(members)
            case Star(inner):
                return f"{self.write(inner, 4)}*"
            case Complement(inner):
                text, own = f"~{self.write(inner, 3)}", 3
            case Union(parts) if regex.EMPTY in parts:
                return f"{self.write(regex.unite(*(parts - {regex.EMPTY})), 4)}?"
            case Union(parts):
                text, own = self.gap.join(("", "|", "")).join(self.sorted(parts, 1)), 0
            case Intersection(parts):
                text, own = self.gap.join(("", "&", "")).join(self.sorted(parts, 2)), 1
            case Concatenation(parts):
                text, own = self.gap.join(self.steps(parts)) or "()", 2 if parts else 4
        return f"({text})" if level > own else text

    def sorted(self, parts: frozenset[Node], level: int) -> list[str]:
        """The texts of parts whose order does not matter, short ones first."""
        return sorted((self.write(part, level) for part in parts), key=lambda t: (len(t), t))

    def steps(self, parts: tuple[Node, ...]) -> list[str]:
        """The texts of parts in a row, x x* as x+."""
        texts: list[str] = []
        fresh = 0  # parts before this one that are still written out
        for n, part in enumerate(parts):
            inner = regex.concatenate(part.inner) if isinstance(part, Star) else None
            steps = inner.parts if isinstance(inner, Concatenation) else (inner,)
            if inner is not None and fresh >= len(steps) and parts[n - len(steps) : n] == steps:
                texts[-len(steps) :] = [f"{self.write(inner, 4)}+"]
                fresh = 0
            else:
                texts.append(self.write(part, 3))
                fresh += 1
        return texts

    def members(self, members: frozenset[str]) -> str:
        """A symbol, a set or its opposite, whichever is shortest."""
        inside = [s for s in self.alphabet if s in members]
        outside = [s for s in self.alphabet if s not in members]
        if len(inside) == 1:
            return self.escape(inside[0])
        if not outside and inside:
            return "."
        sign, shown = ("^", outside) if len(outside) < len(inside) else ("", inside)
        return f"[{sign}{self.gap.join(map(self.escape, shown))}]"

    def escape(self, symbol: str) -> str:
        """A symbol whose marks are symbols."""
        return "".join(f"\\{sign}" if sign in MARKS | set("^-") else sign for sign in symbol)
