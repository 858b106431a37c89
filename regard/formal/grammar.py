"""Context-free grammars and the files they are written in (Chomsky 1956).

    # a comment; the left side of the first rule is the start
    S -> NP VP
    E -> E '+' T | T     # quoted: a terminal, whatever it looks like
    A -> a A b |         # nothing, or ε: the empty word

What stands on no left side is a terminal. A line that begins with | goes on with the rule above.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from regard.errors import DataError, ResourceError, nearest

try:  # an extra
    from lark import Lark, Token, UnexpectedInput
except ModuleNotFoundError:
    fix = "pip install 'regard[formal]'"
    raise ResourceError("reading a language", "lark is not installed", fix=fix) from None

SYNTAX = r"""
file: _LINES? (rule _LINES)*
rule: NAME _ARROW right (_BAR right)*
right: (NAME | QUOTED)*
_ARROW: "->" | "→" | "::="
_BAR.2: /(\s|#[^\n]*\n)*\|/
_LINES.1: /(\s*(#[^\n]*)?\n)+\s*/
NAME: /((?!->|::=)[^\s|'"\[\]#→])+/
QUOTED: /'[^'\n]*'|"[^"\n]*"/
%ignore /[^\S\n]+/
%ignore /#[^\n]*/
"""
NEEDED = {"'": "a closing '", '"': 'a closing "', "[": "a bracket in quotes: '['"}


class Symbol(NamedTuple):
    """A terminal, or the left side of some rule."""

    text: str
    terminal: bool


@dataclass(frozen=True)
class Production:
    """One alternative of a left side."""

    left: str
    right: tuple[Symbol, ...]

    def __str__(self) -> str:
        return f"{self.left} -> {' '.join(symbol.text for symbol in self.right) or 'ε'}"


@dataclass(frozen=True)
class Grammar:
    """A start and rules."""

    start: str
    rules: tuple[Production, ...]

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


def made_of(rule: Production, names: Iterable[str]) -> bool:
    """Whether a right side has terminals and these names only."""
    return all(symbol.terminal or symbol.text in names for symbol in rule.right)


# Files -----------------------------------------------------------------------------------------


@cache
def parser() -> Lark:
    """The parser of grammar files."""
    return Lark(SYNTAX, start="file", parser="lalr")


def read_grammar(text: str, name: str = "the grammar") -> Grammar:
    """The grammar of a text; errors say line and column."""
    try:
        tree: Any = parser().parse(text + "\n")
    except UnexpectedInput as error:
        raise syntax_error(error, name) from None
    if not tree.children:
        raise DataError(f"reading {name}", "no rules", "lines such as S -> a S b | a b")
    lefts = [str(rule.children[0]) for rule in tree.children]
    rules = [
        read_right(left, right.children, lefts, name)
        for left, rule in zip(lefts, tree.children, strict=True)
        for right in rule.children[1:]
    ]
    return Grammar(lefts[0], tuple(rules))


def error_at(token: Token, name: str, problem: str, expected: str, fix: str = "") -> DataError:
    """A problem where a token stands."""
    place = f"line {token.line}, column {token.column}"
    return DataError(f"reading {name}", f"{problem} at {place}", expected, fix)


def syntax_error(error: Any, name: str) -> DataError:
    """What stands where it cannot."""
    token = getattr(error, "token", None)
    if token is None:  # a sign that begins nothing
        sign = Token("SIGN", error.char, line=error.line, column=error.column)
        return error_at(sign, name, sign, NEEDED.get(sign, "symbols, | and ->"))
    before = error.interactive_parser.parser_state.value_stack[-1:]
    if token.type == "_ARROW":
        return error_at(token, name, token, "one -> on a line, behind one name")
    if before and isinstance(before[0], Token) and before[0].type == "NAME":
        at = before[0] if token.type == "_LINES" else token
        return error_at(at, name, f"no -> behind {before[0]}", "a rule such as S -> a S b | a b")
    return error_at(token, name, token, "a name, then ->", "terminals stand on the right only")


def read_right(left: str, tokens: list[Token], lefts: list[str], name: str) -> Production:
    """One alternative: its symbols, without ε."""
    symbols = list[Symbol]()
    for token in tokens:
        if token.type == "QUOTED":
            symbols.append(Symbol(token[1:-1], True))
        elif token not in lefts and token[0].isupper():  # taken for a slip
            close = nearest(token, lefts, 1)
            fix = (f"did you mean {close}? " if close else "") + f"A terminal in quotes: '{token}'"
            raise error_at(token, name, f"no rule for {token}", "a left side of some rule", fix)
        elif token != "ε":
            symbols.append(Symbol(str(token), token not in lefts))
    return Production(left, tuple(symbols))
