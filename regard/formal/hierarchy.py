"""Named languages of the Chomsky hierarchy, from regular to context-sensitive (Chomsky 1956).

A user's language is one of these by its name, the file of a grammar, or a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from regard.errors import DataError, UsageError, bad_byte, check_known
from regard.formal.cyk import Chart
from regard.formal.dfa import Word
from regard.formal.grammar import read_grammar
from regard.formal.language import EMPTY, Blocks, Halves, Language, WordSource
from regard.formal.regex import MARKS, regex_dfa, symbols_of

REGULAR, FREE, SENSITIVE = "regular", "context-free", "context-sensitive"
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))
SWISS = (
    ("em-Hans", "em-Peter", "em-Chind"),  # to Hans, …
    ("de-Hans", "es-Huus", "d-Chind"),  # Hans, the house, the children
    ("hälfed", "hälfe"),  # help, which wants a dative
    ("aastriiche", "laa", "lönd"),  # paint, let, which want an accusative
)
Source = str | WordSource
"""An expression of a regular language, or what else knows the words of one."""


def build(name: str, kind: str, summary: str, alphabet: Word | str, source: Source) -> Language:
    """A language by what it is made of."""
    words = tuple(alphabet)
    known = regex_dfa(source, words) if isinstance(source, str) else source
    return Language(name, kind, summary, words, known)


def dyck(kinds: int) -> Language:
    """Balanced brackets of several kinds."""
    if not 1 <= kinds <= len(BRACKETS):
        raise UsageError("making a Dyck language", f"{kinds} kinds", f"1 to {len(BRACKETS)} kinds")
    summary = f"balanced brackets {' '.join(map(' '.join, BRACKETS[:kinds]))}"
    rules = " | ".join(f"'{a}' S '{b}' S" for a, b in BRACKETS[:kinds])
    grammar, name = read_grammar(f"S -> {rules} |", "the grammar of brackets"), f"dyck-{kinds}"
    return Language(name, FREE, summary, grammar.terminals, Chart(grammar, unambiguous=True))


EVEN = "first and last symbol agree: 01 and 10 evenly often"
CROSSWISE = "NP_dat^m NP_acc^n V_dat^m V_acc^n, as in Swiss German"
"""Verbs take their objects crosswise (Shieber 1985)."""
MAKERS: dict[str, tuple[str, str, Word | str, Source] | None] = {
    "an": (REGULAR, "a^n, of words over a and b", "ab", "a*"),
    "aa": (REGULAR, "(aa)*, an even number of a", "a", "(aa)*"),
    "ab": (REGULAR, "(ab)*", "ab", "(ab)*"),
    "parity": (REGULAR, "an even number of 1", "01", "0*(10*10*)*"),
    "even-pairs": (REGULAR, EVEN, "ab", "()|a|b|a.*a|b.*b"),
    "first": (REGULAR, "the first symbol is 1", "01", "1.*"),
    "anbn": (FREE, "a^n b^n", "ab", Blocks("ab", (0, 0))),
    "dyck-1": None,
    "dyck-2": None,
    "palindromes": (FREE, "the same backwards", "ab", Halves(("a", "b"), True)),
    "anbncn": (SENSITIVE, "a^n b^n c^n", "abc", Blocks("abc", (0, 0, 0))),
    "anbncndn": (SENSITIVE, "a^n b^n c^n d^n", "abcd", Blocks("abcd", (0, 0, 0, 0))),
    "copy": (SENSITIVE, "w w", "ab", Halves(("a", "b"), False)),
    "swiss": (SENSITIVE, CROSSWISE, sum(SWISS, ()), Blocks(SWISS, (0, 1, 0, 1), least=1)),
}
"""The languages by name; `dyck-K` is made for any K."""


@cache
def find_language(name: str) -> Language:
    """The language of a name."""
    if kinds := re.fullmatch(r"dyck-(\d{1,2})", name):
        return dyck(int(kinds[1]))
    check_known(name, MAKERS, "finding a language", f"unknown name {name!r}")
    return build(name, *(MAKERS[name] or ()))


# What a user writes -----------------------------------------------------------------------------

FILE = re.compile(r"[\w./~-]+\.(txt|cfg|grammar|g)|[\w.~-]*/[\w./~-]*")  # what means a file


def open_language(text: str, lines: Iterable[str] = ()) -> Language:
    """The language of a name, a grammar's file, or an expression over its symbols and the lines'.

    An expression is over words when it has blanks.
    """
    if text in MAKERS or text.startswith("dyck-"):
        return find_language(text)
    if Path(text).is_file():
        try:
            rules = Path(text).read_text(encoding="utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise DataError(f"reading {text}", bad_byte(error), "the text of a grammar") from None
        grammar = read_grammar(rules, text)
        return Language(text, "context-free", "a grammar", grammar.terminals, Chart(grammar))
    if FILE.fullmatch(text):
        raise DataError(f"opening {text}", "no such file", "a grammar, a name, or an expression")
    if not set(text) & MARKS:
        return find_language(text)  # which says what is near
    words = bool(set(text) & set(" \t\n"))
    split = (line.split() if words else line for line in lines if line.strip() != EMPTY)
    known = {symbol for line in split for symbol in line if words or not symbol.isspace()}
    alphabet = tuple(sorted(known | set(symbols_of(text, words))))
    if not alphabet:
        raise UsageError("reading an expression", f"{text!r}, without symbols", "some, as in (ab)*")
    return Language(text, "regular", "an expression", alphabet, regex_dfa(text, alphabet, words))
