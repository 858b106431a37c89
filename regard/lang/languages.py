"""Named languages from regular to context-sensitive: members, non-members, and an oracle.

Members of a length are drawn uniformly. Non-members are random words, or near misses: members
with one symbol changed, exchanged, dropped or doubled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

from regard.errors import DataError, UsageError, did_you_mean
from regard.lang import counter
from regard.lang.counter import CounterMachine
from regard.lang.cyk import Chart
from regard.lang.dfa import DFA, explore
from regard.lang.grammar import Grammar, read_grammar
from regard.lang.regex_text import regex_dfa
from regard.lang.sources import Blocks, Halves, Majority, Source, Unambiguous, Word
from regard.lang.trees import english

ATTEMPTS = 200  # draws of a non-member before another way is tried


class Fault(NamedTuple):
    """Why a word is not in a language: where it goes wrong, from 0, and what is wrong there."""

    at: int
    why: str


@dataclass(frozen=True)
class Language:
    """A named language over an alphabet."""

    name: str
    kind: str
    summary: str
    alphabet: Word
    source: Source

    def accepts(self, word: Sequence[str]) -> bool:
        """Whether a word is a member."""
        return self.source.failure(word) is None

    def fault(self, word: Sequence[str]) -> Fault | None:
        """Why a word is not a member; None: it is."""
        at = self.source.failure(word)
        if at is None:
            return None
        if at >= len(word):
            return Fault(at, "no member ends here" if word else "the empty word is no member")
        why = "cannot stand there" if word[at] in self.alphabet else "is not in the alphabet"
        if isinstance(self.source, Halves) and word[at] in self.alphabet:
            why = f"differs from symbol {self.source.partner(at, len(word)) + 1}"
        return Fault(at, f"symbol {at + 1}, {word[at]}, {why}")

    def has(self, length: int) -> bool:
        """Whether some member has this length."""
        return self.source.count(length) > 0

    def member(self, length: int, rng: Random) -> Word:
        """A member of this length, each as likely as any other."""
        return self.source.sample(length, rng)

    def stranger(self, length: int, rng: Random, near: bool = False) -> Word:
        """A word that is not a member: random, of this length; or a near miss of about it."""
        for attempt in range(2 * ATTEMPTS):
            if near or attempt >= ATTEMPTS:
                word = self.near_word(length, rng)
            else:
                word = tuple(rng.choices(self.alphabet, k=length))
            if not self.accepts(word):
                return word
        found = f"{2 * ATTEMPTS} words of about length {length}, all of them members"
        raise DataError(f"drawing what is not in {self.name}", found, "another length")

    def near_word(self, length: int, rng: Random) -> Word:
        """A member whose length is as near as can be, with one edit; towards this length."""
        close = (length, length - 1, length + 1, length - 2, length + 2)
        size = next((n for n in close if n >= 0 and self.has(n)), None)
        if size is None:
            return tuple(rng.choices(self.alphabet, k=length))
        return edit(self.member(size, rng), self.alphabet, length - size, rng)


def edit(word: Word, alphabet: Word, more: int, rng: Random) -> Word:
    """One symbol dropped (more < 0), added (more > 0), or changed or exchanged with another."""
    made = list(word)
    kinds = ["add"] if more > 0 or not made else ["drop"] if more < 0 else ["change", "exchange"]
    if len(alphabet) == 1 and kinds[0] == "change":
        kinds = ["drop", "add"]
    kind = rng.choice(kinds)
    if kind == "add":
        made.insert(rng.randint(0, len(made)), rng.choice(alphabet))
    elif kind == "drop":
        del made[rng.randrange(len(made))]
    elif kind == "change":
        at = rng.randrange(len(made))
        made[at] = rng.choice([symbol for symbol in alphabet if symbol != made[at]])
    else:
        one, two = rng.randrange(len(made)), rng.randrange(len(made))
        made[one], made[two] = made[two], made[one]
    return tuple(made)


# The languages ----------------------------------------------------------------------------------

BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))
NP_DAT = ("em-Hans", "em-Peter", "em-Chind")  # to Hans, …
NP_ACC = ("de-Hans", "es-Huus", "d-Chind")  # Hans, the house, the children
V_DAT = ("hälfed", "hälfe")  # help, which wants a dative
V_ACC = ("aastriiche", "laa", "lönd")  # paint, let, which want an accusative


def dyck(kinds: int, depth: int | None = None) -> Language:
    """Balanced brackets of several kinds, nested as deep as one likes, or to a depth."""
    if not 1 <= kinds <= len(BRACKETS) or (depth is not None and depth < 1):
        found = f"{kinds} kinds" + (f", depth {depth}" if depth is not None else "")
        raise UsageError("making a Dyck language", found, f"1 to {len(BRACKETS)} kinds, depth ≥ 1")
    pairs = BRACKETS[:kinds]
    alphabet = tuple(sign for pair in pairs for sign in pair)
    name = f"dyck-{kinds}" + (f"-depth-{depth}" if depth is not None else "")
    summary = f"balanced brackets {' '.join(alphabet)}"
    if depth is None:
        rules = " | ".join(f"'{a}' S '{b}' S" for a, b in pairs)
        chart = Unambiguous(Chart(read_grammar(f"S -> {rules} |")))
        return Language(name, "context-free", summary, alphabet, chart)
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


def modular(base: int = 5) -> DFA:
    """Sums and products of digits, without brackets, whose value is 0 modulo the base."""
    digits = tuple(map(str, range(base)))

    # value of what is closed, factor of what is open (None: none yet), whether a digit must come
    def step(state: tuple[int, int, bool] | None, symbol: str) -> tuple[int, int, bool] | None:
        if state is None or (symbol in digits) != state[2]:
            return None
        total, factor, _ = state
        if symbol in digits:
            return total, factor * int(symbol) % base, False
        if symbol == "*":
            return total, factor, True
        return (total + factor) % base, 1 if symbol == "+" else base - 1, True

    def accepts(state: tuple[int, int, bool] | None) -> bool:
        return state is not None and not state[2] and (state[0] + state[1]) % base == 0

    start: tuple[int, int, bool] | None = (0, 1, True)
    return explore((*digits, *"+-*"), start, step, accepts).minimise()


def regular(name: str, summary: str, alphabet: str, pattern: str) -> Language:
    """A language given by an expression."""
    return Language(name, "regular", summary, tuple(alphabet), regex_dfa(pattern, alphabet))


def counted(name: str, summary: str, letters: str, machine: CounterMachine) -> Language:
    """a^n b^n and its longer kin."""
    kind = "context-free" if len(letters) == 2 else "context-sensitive"
    source = Blocks(machine, tuple((letter,) for letter in letters), (0,) * len(letters))
    return Language(name, kind, summary, tuple(letters), source)


def swiss() -> Language:
    """NP_dat^m NP_acc^n V_dat^m V_acc^n: verbs take their objects crosswise (Shieber 1985)."""
    blocks = (NP_DAT, NP_ACC, V_DAT, V_ACC)
    source = Blocks(counter.cross_serial(blocks), blocks, (0, 1, 0, 1), least=1)
    words = tuple(word for words in blocks for word in words)
    summary = "NP_dat^m NP_acc^n V_dat^m V_acc^n, as in Swiss German"
    return Language("swiss", "context-sensitive", summary, words, source)


def phrases(grammar: Grammar) -> Language:
    """Sentences of the small grammar whose verbs agree with their subjects."""
    summary = "the keys that the dog sees are here: verbs agree across other nouns"
    chart = Unambiguous(Chart(grammar))
    return Language("english", "context-free", summary, grammar.terminals, chart)


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
    "mod5": lambda: Language(
        "mod5", "regular", "digits 0-4 with + - *: 0 modulo 5", (*"01234+-*",), modular()
    ),
    "dyck-2-depth-3": lambda: dyck(2, 3),
    "anbn": lambda: counted("anbn", "a^n b^n", "ab", counter.AN_BN),
    "majority": lambda: Language(
        "majority", "context-free", "more 1 than 0", ("0", "1"), Majority()
    ),
    "dyck-1": lambda: dyck(1),
    "dyck-2": lambda: dyck(2),
    "english": lambda: phrases(english()),
    "palindromes": lambda: Language(
        "palindromes", "context-free", "the same backwards", ("a", "b"), Halves(("a", "b"), True)
    ),
    "anbncn": lambda: counted("anbncn", "a^n b^n c^n", "abc", counter.AN_BN_CN),
    "anbncndn": lambda: counted("anbncndn", "a^n b^n c^n d^n", "abcd", counter.AN_BN_CN_DN),
    "copy": lambda: Language(
        "copy", "context-sensitive", "w w", ("a", "b"), Halves(("a", "b"), False)
    ),
    "swiss": swiss,
}
"""The languages by name; `dyck-K` and `dyck-K-depth-D` are made for any K and D."""


@cache
def language(name: str) -> Language:
    """The language of a name."""
    bounded = re.fullmatch(r"dyck-(\d{1,2})(?:-depth-(\d{1,2}))?", name)
    if bounded:
        return dyck(int(bounded[1]), int(bounded[2]) if bounded[2] else None)
    if name not in MAKERS:
        fix = did_you_mean(name, MAKERS, 1, otherwise="see `regard lang list`")
        raise UsageError("finding a language", f"unknown name {name!r}", ", ".join(MAKERS), fix)
    return MAKERS[name]()
