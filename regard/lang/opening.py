"""A language by what a user writes: a name, the file of a grammar, or a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.errors import DataError, UsageError, bad_byte
from regard.lang.cyk import Chart
from regard.lang.grammar import read_grammar
from regard.lang.languages import MAKERS, Language, language
from regard.lang.regex_text import MARKS, regex_dfa, symbols_of

EMPTY = "ε"
FILE = re.compile(r"[\w./~-]+\.(txt|cfg|grammar|g)|[\w.~-]*/[\w./~-]*")  # what means a file


def open_language(text: str, words: bool | None = None, lines: Iterable[str] = ()) -> Language:
    """The language of a name, a grammar's file, or an expression over its symbols and the lines'.

    An expression is over words when it has blanks, or when `words` says so.
    """
    if text in MAKERS or text.startswith("dyck-"):
        return language(text)
    if Path(text).is_file():
        return grammar_language(Path(text))
    if FILE.fullmatch(text):
        raise DataError(f"opening {text}", "no such file", "a grammar, a name, or an expression")
    if not set(text) & MARKS and not words:
        return language(text)  # which says what is near
    words = bool(set(text) & set(" \t\n")) if words is None else words
    split = (line.split() if words else line for line in lines if line.strip() != EMPTY)
    known = {symbol for line in split for symbol in line if words or not symbol.isspace()}
    alphabet = tuple(sorted(known | set(symbols_of(text, words))))
    if not alphabet:
        raise UsageError("reading an expression", f"{text!r}, without symbols", "some, as in (ab)*")
    return Language(text, "regular", "an expression", alphabet, regex_dfa(text, alphabet, words))


def grammar_language(path: Path) -> Language:
    """The language of a grammar's file."""
    try:
        text = path.read_text(encoding="utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"reading {path}", bad_byte(error), "the text of a grammar") from None
    grammar = read_grammar(text, str(path))
    return Language(str(path), "context-free", "a grammar", grammar.terminals, Chart(grammar))


def is_spelt(alphabet: Sequence[str]) -> bool:
    """Whether words are written without blanks, for all symbols are single characters."""
    return all(len(symbol) == 1 for symbol in alphabet)


def join_word(word: Sequence[str], alphabet: Sequence[str]) -> str:
    """A word as text; ε for the empty one."""
    return ("" if is_spelt(alphabet) else " ").join(word) or EMPTY


def split_word(text: str, alphabet: Sequence[str]) -> tuple[str, ...]:
    """The symbols of a line."""
    if text.strip() == EMPTY and EMPTY not in alphabet:
        return ()
    if not is_spelt(alphabet):
        return tuple(text.split())
    return tuple(sign for sign in text if not sign.isspace() or sign in alphabet)
