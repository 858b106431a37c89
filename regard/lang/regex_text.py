"""Regular expressions as people write them, over characters or over words between blanks.

    a(b|c)*d?       characters: . any, [a-z] and [^ab] sets, {2,4} times, & and, ~ not, \\ escapes
    leeuw .* [aap olifant]+ leeuw       the same over words

`()` is the empty word and `[]` nothing at all. `.`, `[^…]` and `~` speak of the alphabet: the
symbols of the expression itself unless more are given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from regard.errors import DataError, ResourceError, UsageError
from regard.lang import regex
from regard.lang.dfa import DFA
from regard.lang.regex import Both, Cat, Either, Node, Not, Star, Symbols

MARKS = frozenset("()[]{}|&~*+?.\\")
MOST_TIMES = 250  # of {m,n}
MOST_PARTS = 20_000  # of an expression whose repetitions are written out


class Token(NamedTuple):
    """A mark (of MARKS) or a symbol, and where it begins."""

    text: str
    start: int
    is_mark: bool


def regex_dfa(text: str, alphabet: Iterable[str] | None = None, words: bool = False) -> DFA:
    """The smallest automaton of an expression."""
    try:
        symbols = tuple(alphabet) if alphabet is not None else symbols_of(text, words)
        return regex.to_dfa(parse_regex(text, symbols, words), symbols)
    except RecursionError:
        found, fix = "brackets or repetitions too deep", "an expression with fewer of them"
        raise ResourceError("reading an expression", found, fix=fix) from None


def symbols_of(text: str, words: bool = False) -> tuple[str, ...]:
    """The symbols that an expression names, sorted."""
    reader = Reader(text, frozenset(), words, strict=False)
    reader.whole()
    return tuple(sorted(reader.seen))


def parse_regex(text: str, alphabet: Iterable[str], words: bool = False) -> Node:
    """The tree of an expression; errors say line and column."""
    return Reader(text, frozenset(alphabet), words).whole()


def tokens(text: str, words: bool) -> list[Token]:
    """Marks and symbols: single characters, or what stands between blanks and marks."""
    found: list[Token] = []
    at, joined = 0, False  # whether a word goes on
    while at < len(text):
        start, sign = at, text[at]
        escaped = sign == "\\" and at + 1 < len(text)
        at += 2 if escaped else 1
        if words and sign.isspace():
            joined = False
        elif not escaped and sign in MARKS:
            found.append(Token(sign, start, True))
            joined = False
        elif words and joined:
            found[-1] = found[-1]._replace(text=found[-1].text + text[at - 1])
        else:
            found.append(Token(text[at - 1], start, False))
            joined = words
    return found


class Reader:
    """Reads one expression by recursive descent: either, both, after each other, times."""

    def __init__(
        self, text: str, alphabet: frozenset[str], words: bool, strict: bool = True
    ) -> None:
        self.text, self.alphabet, self.words, self.strict = text, alphabet, words, strict
        self.tokens, self.at = tokens(text, words), 0
        self.seen: set[str] = set()

    def fail(self, found: str, expected: str, start: int | None = None) -> NoReturn:
        """Say where and stop."""
        if start is None:
            start = self.tokens[self.at].start if self.at < len(self.tokens) else len(self.text)
        line, column = self.text.count("\n", 0, start) + 1, start - self.text.rfind("\n", 0, start)
        place = f"line {line}, column {column}" if "\n" in self.text else f"column {column}"
        raise DataError("reading an expression", f"{found} at {place}", expected)

    def peek(self) -> str | None:
        """The mark that comes next; None before a symbol and at the end."""
        if self.at < len(self.tokens) and self.tokens[self.at].is_mark:
            return self.tokens[self.at].text
        return None

    def take(self, mark: str) -> bool:
        """Step over a mark, if it is there."""
        if self.peek() != mark:
            return False
        self.at += 1
        return True

    def whole(self) -> Node:
        """The expression up to the end of the text."""
        node = self.either()
        if self.at < len(self.tokens):
            self.fail(f"{self.tokens[self.at].text!r}", "a bracket that was opened before")
        return node

    def either(self) -> Node:
        """Alternatives with `|` between them."""
        parts = [self.both()]
        while self.take("|"):
            parts.append(self.both())
        return regex.either(*parts)

    def both(self) -> Node:
        """Conditions with `&` between them."""
        parts = [self.after()]
        while self.take("&"):
            parts.append(self.after())
        return regex.both(*parts)

    def after(self) -> Node:
        """Parts one after the other; none: the empty word."""
        parts = []
        while self.at < len(self.tokens) and self.peek() not in ("|", "&", ")"):
            parts.append(self.times())
        return regex.cat(*parts)

    def times(self) -> Node:
        """A part, with `~` before it or `*`, `+`, `?`, `{m,n}` behind it."""
        if self.take("~"):
            return regex.negate(self.times())
        node = self.single()
        while True:
            if self.take("*"):
                node = regex.star(node)
            elif self.take("+"):
                node = regex.repeat(node, 1, None)
            elif self.take("?"):
                node = regex.either(node, regex.EMPTY)
            elif self.take("{"):
                least, most = self.bounds()
                if regex.size(node) * max(least, most or 0) > MOST_PARTS:
                    self.fail(f"repetitions of over {MOST_PARTS:,} parts", "fewer")
                node = regex.repeat(node, least, most)
            else:
                return node

    def bounds(self) -> tuple[int, int | None]:
        """`m}`, `m,}`, `,n}` or `m,n}`."""
        start = self.at
        while self.at < len(self.tokens) and self.peek() is None:
            self.at += 1
        text = "".join(token.text for token in self.tokens[start : self.at])
        low, comma, high = text.partition(",")
        numbers = [part for part in (low, high) if part]
        right = numbers and all(p.isdecimal() and int(p) <= MOST_TIMES for p in numbers)
        least = int(low or 0) if right else 0
        most = None if comma and not high else int(high or low or 0) if right else 0
        if not right or (most is not None and most < least):
            self.at = start
            self.fail(f"{{{text}", f"{{m}}, {{m,}} or {{m,n}} with m ≤ n ≤ {MOST_TIMES}")
        if not self.take("}"):
            self.fail("no } to close {", "{m,n}", self.tokens[start - 1].start)
        return least, most

    def single(self) -> Node:
        """A symbol, `.`, a set or a bracket."""
        if self.take("."):
            return Symbols(self.alphabet)
        start = self.tokens[self.at].start
        if self.take("("):
            node = self.either()
            if not self.take(")"):
                self.fail("( that is never closed", "a ) for each (", start)
            return node
        if self.take("["):
            return self.members(start)
        if self.peek() is not None:
            mark = self.tokens[self.at].text
            self.fail(f"{mark!r}", f"a symbol before it, or \\{mark} for the symbol {mark}")
        return Symbols(frozenset({self.symbol()}))

    def symbol(self) -> str:
        """The next symbol, which must be one of the alphabet."""
        token = self.tokens[self.at]
        if self.strict and token.text not in self.alphabet:
            self.fail(f"the symbol {token.text!r}", f"one of {' '.join(sorted(self.alphabet))}")
        self.seen.add(token.text)
        self.at += 1
        return token.text

    def members(self, start: int) -> Node:
        """The rest of a set; a ^ that comes first turns it round, x-z is a range."""
        found: set[str] = set()
        turned = self.strip_caret()
        while not self.take("]"):
            if self.at == len(self.tokens):
                self.fail("[ that is never closed", "a ] for each [", start)
            if self.tokens[self.at].is_mark:  # marks are plain inside
                self.tokens[self.at] = self.tokens[self.at]._replace(is_mark=False)
            found |= self.between() if not self.words else {self.symbol()}
        return Symbols(self.alphabet - found if turned else frozenset(found))

    def strip_caret(self) -> bool:
        """Take a ^ that comes first in a set off its word."""
        ahead = self.tokens[self.at : self.at + 1]
        if not ahead or self.text[ahead[0].start] != "^":
            return False
        word = ahead[0]._replace(text=ahead[0].text[1:], start=ahead[0].start + 1)
        self.tokens[self.at : self.at + 1] = [word] if word.text else []
        return True

    def between(self) -> set[str]:
        """One character of a set, or a range of them."""
        ahead = self.tokens[self.at : self.at + 3]
        if len(ahead) < 3 or self.text[ahead[1].start] != "-" or ahead[2].is_mark:
            return {self.symbol()}
        low, high = ord(ahead[0].text), ord(ahead[2].text)
        if low > high:
            self.fail(f"{ahead[0].text}-{ahead[2].text}", "a range that goes up")
        self.at += 3
        span = {chr(code) for code in range(low, high + 1)}
        if self.strict:
            span &= self.alphabet
        self.seen |= span
        return span


# Printing ---------------------------------------------------------------------------------------


def dfa_regex(dfa: DFA, words: bool | None = None) -> str:
    """An expression of an automaton's language; over words when a symbol is longer than one."""
    if words is None:
        words = any(len(symbol) != 1 for symbol in dfa.alphabet)
    if words and any(not s or set(s) & {" ", "\t", "\n"} for s in dfa.alphabet):
        raise UsageError("writing an expression", "a symbol with blanks in it", "words without")
    return write_regex(regex.from_dfa(dfa), dfa.alphabet, words)


def write_regex(node: Node, alphabet: Iterable[str], words: bool = False) -> str:
    """The text of an expression, which reads back as the same language."""
    return Writer(tuple(alphabet), words).write(node, 0)


class Writer:
    """Writes expressions with as few brackets as their marks need."""

    def __init__(self, alphabet: tuple[str, ...], words: bool) -> None:
        self.alphabet, self.gap = alphabet, " " if words else ""

    def write(self, node: Node, level: int) -> str:
        """Level 0: anything; 1: no `|`; 2: no `&`; 3: one part; in brackets where it is not so."""
        match node:
            case Symbols(members):
                return self.members(members)
            case Star(inner):
                return f"{self.write(inner, 4)}*"
            case Not(inner):
                text, own = f"~{self.write(inner, 3)}", 3
            case Either(parts) if regex.EMPTY in parts:
                return f"{self.write(regex.either(*(parts - {regex.EMPTY})), 4)}?"
            case Either(parts):
                text, own = self.gap.join(("", "|", "")).join(self.sorted(parts, 1)), 0
            case Both(parts):
                text, own = self.gap.join(("", "&", "")).join(self.sorted(parts, 2)), 1
            case Cat(parts):
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
            inner = regex.cat(part.inner) if isinstance(part, Star) else None
            steps = inner.parts if isinstance(inner, Cat) else (inner,)
            if inner is not None and fresh >= len(steps) and parts[n - len(steps) : n] == steps:
                texts[-len(steps) :] = [f"{self.write(inner, 4)}+"]
                fresh = 0
            else:
                texts.append(self.write(part, 3))
                fresh += 1
        return texts

    def members(self, members: frozenset[str]) -> str:
        """A symbol, a set or its opposite, whichever is shortest."""
        found = [s for s in self.alphabet if s in members]
        rest = [s for s in self.alphabet if s not in members]
        if len(found) == 1:
            return self.escape(found[0])
        if not rest and found:
            return "."
        sign, shown = ("^", rest) if len(rest) < len(found) else ("", found)
        return f"[{sign}{self.gap.join(map(self.escape, shown))}]"

    def escape(self, symbol: str) -> str:
        """A symbol whose marks are symbols."""
        return "".join(f"\\{sign}" if sign in MARKS | set("^-") else sign for sign in symbol)
