"""Named languages of the Chomsky hierarchy, from regular to context-sensitive (Chomsky 1956).

A user's language is one of these by its name, the file of a grammar, or a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from regard.errors import DataError, UsageError, bad_byte, check_known
from regard.formal.cyk import Chart
from regard.formal.dfa import explore
from regard.formal.grammar import read_grammar
from regard.formal.language import EMPTY, Blocks, Halves, Language, Majority
from regard.formal.regex import MARKS, regex_dfa, symbols_of

BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))
NP_DAT = ("em-Hans", "em-Peter", "em-Chind")  # to Hans, …
NP_ACC = ("de-Hans", "es-Huus", "d-Chind")  # Hans, the house, the children
V_DAT = ("hälfed", "hälfe")  # help, which wants a dative
V_ACC = ("aastriiche", "laa", "lönd")  # paint, let, which want an accusative
ENGLISH = """
S -> NPs VPs | NPp VPp
NPs -> Det Ns | Det Ns PP | Det Ns Rel
NPp -> Det Np | Det Np PP | Det Np Rel
PP -> Prep NPs | Prep NPp
Rel -> that NPs Ts | that NPp Tp
VPs -> Is | Ts NPs | Ts NPp | is Adj
VPp -> Ip | Tp NPs | Tp NPp | are Adj
Det -> the
Ns -> key | cabinet | dog | cat | child
Np -> keys | cabinets | dogs | cats | children
Prep -> to | near | behind
Is -> sleeps | waits
Ip -> sleep | wait
Ts -> sees | likes
Tp -> see | like
Adj -> old | here
"""
"""A verb agrees with the head of its subject, not with the noun before it; clauses inside clauses
make the distance as long as one likes (Linzen 2016). s and p: singular and plural; I and T:
intransitive and transitive."""


def dyck(kinds: int, depth: int | None = None) -> Language:
    """Balanced brackets of several kinds, nested as deep as one likes, or to a depth."""
    if not 1 <= kinds <= len(BRACKETS) or (depth is not None and depth < 1):
        asked = f"{kinds} kinds" + (f", depth {depth}" if depth is not None else "")
        raise UsageError("making a Dyck language", asked, f"1 to {len(BRACKETS)} kinds, depth ≥ 1")
    pairs = BRACKETS[:kinds]
    alphabet = tuple(sign for pair in pairs for sign in pair)
    name = f"dyck-{kinds}" + (f"-depth-{depth}" if depth is not None else "")
    summary = f"balanced brackets {' '.join(alphabet)}"
    if depth is None:
        rules = " | ".join(f"'{a}' S '{b}' S" for a, b in pairs)
        return derived(name, summary, f"S -> {rules} |")
    opening = {b: a for a, b in pairs}

    def step(stack: str | None, symbol: str) -> str | None:
        if stack is None:
            return None
        if symbol in opening:
            return stack[:-1] if stack.endswith(opening[symbol]) else None
        return stack + symbol if len(stack) < depth else None

    empty: str | None = ""
    dfa = explore(alphabet, empty, step, lambda stack: stack == "")
    return Language(name, "regular", f"{summary}, at most {depth} deep", alphabet, dfa)


def regular(name: str, summary: str, alphabet: str, pattern: str) -> Language:
    """A language given by an expression."""
    return Language(name, "regular", summary, tuple(alphabet), regex_dfa(pattern, alphabet))


def counted(name: str, summary: str, letters: str) -> Language:
    """a^n b^n and its longer kin."""
    kind = "context-free" if len(letters) == 2 else "context-sensitive"
    source = Blocks(tuple((letter,) for letter in letters), (0,) * len(letters))
    return Language(name, kind, summary, tuple(letters), source)


def swiss() -> Language:
    """NP_dat^m NP_acc^n V_dat^m V_acc^n: verbs take their objects crosswise (Shieber 1985)."""
    blocks = (NP_DAT, NP_ACC, V_DAT, V_ACC)
    source = Blocks(blocks, (0, 1, 0, 1), least=1)
    words = tuple(word for words in blocks for word in words)
    summary = "NP_dat^m NP_acc^n V_dat^m V_acc^n, as in Swiss German"
    return Language("swiss", "context-sensitive", summary, words, source)


def derived(name: str, summary: str, rules: str) -> Language:
    """A language given by a grammar that derives no word in two ways."""
    grammar = read_grammar(rules, f"the grammar of {name}")
    chart = Chart(grammar, unambiguous=True)
    return Language(name, "context-free", summary, grammar.terminals, chart)


MAKERS: dict[str, Callable[[], Language]] = {
    "an": lambda: regular("an", "a^n, of words over a and b", "ab", "a*"),
    "aa": lambda: regular("aa", "(aa)*, an even number of a", "a", "(aa)*"),
    "ab": lambda: regular("ab", "(ab)*", "ab", "(ab)*"),
    "parity": lambda: regular("parity", "an even number of 1", "01", "0*(10*10*)*"),
    "even-pairs": lambda: regular(
        "even-pairs",
        "first and last symbol agree: 01 and 10 evenly often",
        "ab",
        "()|a|b|a.*a|b.*b",
    ),
    "first": lambda: regular("first", "the first symbol is 1", "01", "1.*"),
    "dyck-2-depth-3": lambda: dyck(2, 3),
    "anbn": lambda: counted("anbn", "a^n b^n", "ab"),
    "majority": lambda: Language(
        "majority", "context-free", "more 1 than 0", ("0", "1"), Majority()
    ),
    "dyck-1": lambda: dyck(1),
    "dyck-2": lambda: dyck(2),
    "english": lambda: derived(
        "english",
        "the keys that the dog sees are here: verbs agree across other nouns",
        ENGLISH,
    ),
    "palindromes": lambda: Language(
        "palindromes", "context-free", "the same backwards", ("a", "b"), Halves(("a", "b"), True)
    ),
    "anbncn": lambda: counted("anbncn", "a^n b^n c^n", "abc"),
    "anbncndn": lambda: counted("anbncndn", "a^n b^n c^n d^n", "abcd"),
    "copy": lambda: Language(
        "copy", "context-sensitive", "w w", ("a", "b"), Halves(("a", "b"), False)
    ),
    "swiss": swiss,
}
"""The languages by name; `dyck-K` and `dyck-K-depth-D` are made for any K and D."""


@cache
def find_language(name: str) -> Language:
    """The language of a name."""
    bounded = re.fullmatch(r"dyck-(\d{1,2})(?:-depth-(\d{1,2}))?", name)
    if bounded:
        return dyck(int(bounded[1]), int(bounded[2]) if bounded[2] else None)
    check_known(name, MAKERS, "finding a language", f"unknown name {name!r}")
    return MAKERS[name]()


# What a user writes -----------------------------------------------------------------------------

FILE = re.compile(r"[\w./~-]+\.(txt|cfg|grammar|g)|[\w.~-]*/[\w./~-]*")  # what means a file


def open_language(text: str, words: bool | None = None, lines: Iterable[str] = ()) -> Language:
    """The language of a name, a grammar's file, or an expression over its symbols and the lines'.

    An expression is over words when it has blanks, or when `words` says so.
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
    if not set(text) & MARKS and not words:
        return find_language(text)  # which says what is near
    words = bool(set(text) & set(" \t\n")) if words is None else words
    split = (line.split() if words else line for line in lines if line.strip() != EMPTY)
    known = {symbol for line in split for symbol in line if words or not symbol.isspace()}
    alphabet = tuple(sorted(known | set(symbols_of(text, words))))
    if not alphabet:
        raise UsageError("reading an expression", f"{text!r}, without symbols", "some, as in (ab)*")
    return Language(text, "regular", "an expression", alphabet, regex_dfa(text, alphabet, words))
