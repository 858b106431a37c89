"""Atomic rules: words for people, Python for the checker, a description length in bits.

Each kind says how many of its arguments are symbols and how many are numbers. `x` in a source is
the list of a line's tokens. Description lengths are those of a prefix code (Rissanen 1978): the
sum of 2**-bits over all atoms stays below one, whatever the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from regard.formal.dfa import Word

SURPLUS = 1  # bits of every atom, so that the code of all kinds together is a prefix code


class Atom(NamedTuple):
    """One kind of test with its arguments; symbols stand as numbers of the vocabulary."""

    kind: str
    args: tuple[Any, ...]


Template = str | tuple[str, ...] | Callable[..., str]
"""What arguments are put into; of several the first argument chooses; or a function of them.

{0} is the first argument. Of one that is a word, {dots} and {blanks} are its symbols with dots or
blanks between them, {list} is the word as a list and {size} its length."""


@dataclass(frozen=True)
class AtomKind:
    """How atoms of one kind read, run and cost."""

    takes: str
    """A letter for each argument: w a word of symbols, s a symbol, n a number, v one of four,
    m a modulus, r a remainder after it, t digits of an automaton."""
    words: Template
    """An atom in words."""
    source: Template
    """An atom as a Python expression over `x`."""
    base: float
    """Bits for the kind itself; symbols and numbers come on top."""


def fill(template: Template, args: tuple[Any, ...]) -> str:
    """A template with the arguments of an atom."""
    if callable(template):
        return template(*args)
    text = template if isinstance(template, str) else template[args[0]]
    word = args[0] if args and isinstance(args[0], tuple) else ()
    dots, blanks = " … ".join(word), " ".join(word)
    return text.format(*args, dots=dots, blanks=blanks, list=[*word], size=len(word))


def whole_bits(number: int) -> float:
    """Bits of a whole number from 0 up, small ones short (Elias 1975): 1, 3, 3, 5, 5, 5, 5, 7, …"""
    return 2 * math.floor(math.log2(number + 1)) + 1


def atom_bits(kind: str, args: tuple[Any, ...], vocabulary: int) -> float:
    """Description length of an atom alone, without its sign, when there are so many symbols."""
    if kind == "moves":
        return 1 + moves_bits(len(args[1]), len(args[0]), vocabulary)
    symbol, bits, modulus = math.log2(max(vocabulary, 2)), SURPLUS + KINDS[kind].base, 2
    for letter, value in zip(KINDS[kind].takes, args, strict=True):
        if letter == "w":
            bits += len(value) * symbol + (2 if len(value) <= 4 else len(value) - 1)
        elif letter == "n":
            bits += whole_bits(abs(value))
        elif letter == "m":
            modulus, bits = value, bits + whole_bits(value - 2)
        else:
            bits += {"s": symbol, "r": math.log2(modulus), "v": 2}[letter]
    return bits


def moves_bits(states: int, symbols: int, vocabulary: int) -> float:
    """Bits of an automaton: its size, its symbols, its moves; numbering the states is free."""
    choice = math.log2(max(vocabulary, symbols) * math.comb(max(vocabulary, symbols), symbols))
    moves = states * symbols * math.log2(states) + states
    return states + choice + moves - math.log2(math.factorial(states - 1))


# Words and Python of the kinds that no template can write --------------------------------------


def name_place(place: int) -> str:
    """Where in a line: 1 is the first, -1 the last."""
    names = {1: "first", -1: "last"}
    return names.get(place, f"{abs(place)}. from the end" if place < 0 else f"{place}.")


def at_place(place: int) -> str:
    """The token there; places count from 1, or from -1 at the end."""
    return f"x[{place - 1 if place > 0 else place}]"


def nested_moves(a: str, b: str, c: str, d: str, depth: int) -> dict[tuple[str, str], str]:
    """Two kinds of brackets as an automaton: its states are the brackets that are open."""
    moves = {}
    for opened in (open for n in range(depth + 1) for open in product("([", repeat=n)):
        stack = "".join(opened)
        for symbol, bracket in ((a, "("), (c, "[")):
            moves[stack, symbol] = stack + bracket if len(stack) < depth else "x"
        for symbol, bracket in ((b, "("), (d, "[")):
            moves[stack, symbol] = stack[:-1] if stack.endswith(bracket) else "x"
    return moves


def moves_source(symbols: Word, moves: Word, accepting: Word) -> str:
    """An automaton that steps over other symbols; moves are rows of digits, a row for a state."""
    table = {
        (state, symbol): int(target)
        for state, row in enumerate(moves)
        for symbol, target in zip(symbols, row, strict=True)
        if int(target) != state
    }
    final = tuple(int(n) for n in accepting)
    return f"reduce(lambda s, t: {table!r}.get((s, t), s), x, 0) in {final!r}"


SUM = "x.count({0!r}) + x.count({1!r})"
DIFFERENCE = "x.count({0!r}) - x.count({1!r})"
LEVELS = "[0, *accumulate((t == {0!r}) - (t == {1!r}) for t in x)]"
RUNS = "[t for n, t in enumerate(p) if n == 0 or t != p[n - 1]]"
CHANGES = "sum(s != t for s, t in zip(x, x[1:]))"
ORDERS = (
    "no {2} before the first {1}, which occurs",
    "some {1} before the first {2}, which occurs",
    "no {1} after the last {2}, which occurs",
    "some {2} after the last {1}, which occurs",
)
ORDER_SOURCES = (
    "{1!r} in x and {2!r} not in x[:x.index({1!r})]",
    "{2!r} in x and {1!r} in x[:x.index({2!r})]",
    "{2!r} in x and {1!r} not in x[::-1][:x[::-1].index({2!r})]",
    "{1!r} in x and {2!r} in x[::-1][:x[::-1].index({1!r})]",
)
AROUND = "{2} has {1} before it and {1} after it, and {2} occurs"
BEFORE, AFTER = "{1!r} in x[:x.index({2!r})]", "{1!r} in x[::-1][:x[::-1].index({2!r})]"
ENCLOSED_SOURCES = (
    "{2!r} in x and " + BEFORE + " and " + AFTER,
    "{2!r} in x and " + BEFORE + " and {1!r} in x[x.index({2!r}):]",
    "{2!r} in x and {1!r} in x[::-1][x[::-1].index({2!r}):] and " + AFTER,
)

KINDS = {
    "sub": AtomKind(
        "w",
        lambda w: f"contains {' … '.join(w)}" + (" in this order" if len(w) > 1 else ""),
        "(lambda rest: all(t in rest for t in {0!r}))(iter(x))",
        2,
    ),
    "string": AtomKind(
        "w",
        "contains {blanks} side by side",
        "any(x[i:i + {size}] == {list} for i in range(len(x)))",
        2,
    ),
    "starts": AtomKind("w", "begins with {blanks}", "x[:{size}] == {list}", 3),
    "ends": AtomKind("w", "ends with {blanks}", "x[-{size}:] == {list}", 3),
    "place": AtomKind(
        "ns",
        lambda n, a: f"the {name_place(n)} token is {a}",
        lambda n, a: f"len(x) >= {abs(n)} and {at_place(n)} == {a!r}",
        3,
    ),
    "same": AtomKind(
        "nn",
        lambda i, j: f"the {name_place(i)} and the {name_place(j)} token are equal",
        lambda i, j: f"len(x) >= {max(abs(i), abs(j))} and {at_place(i)} == {at_place(j)}",
        5,
    ),
    "near": AtomKind(
        "wn",
        "contains {dots} with at most {1} between neighbours",
        "reduce(lambda ends, t: {{j for i in ends for j in range(i + 1, i + 2 + {1}) "
        "if x[j:j + 1] == [t]}}, {0!r}[1:], [i for i, t in enumerate(x) if t == {0!r}[0]])",
        6,
    ),
    "later": AtomKind(
        "ssn",
        "some {1} stands {2} places after {0}",
        "any(p == ({0!r}, {1!r}) for p in zip(x, x[{2}:]))",
        6,
    ),
    "least": AtomKind("sn", "at least {1} {0}", "x.count({0!r}) >= {1}", 3),
    "just": AtomKind("sn", "exactly {1} {0}", "x.count({0!r}) == {1}", 4),
    "mod": AtomKind("smr", "count of {0} mod {1} is {2}", "x.count({0!r}) % {1} == {2}", 3),
    "more": AtomKind(
        "ssn",
        lambda a, b, n: {0: f"at least as many {a} as {b}", 1: f"more {a} than {b}"}.get(
            n, f"count of {a} minus count of {b} is at least {n}"
        ),
        DIFFERENCE + " >= {2}",
        3,
    ),
    "equal": AtomKind("ss", "as many {0} as {1}", "x.count({0!r}) == x.count({1!r})", 4),
    "apart": AtomKind(
        "ssmr",
        "count of {0} minus count of {1}, mod {2}, is {3}",
        f"({DIFFERENCE}) % {{2}} == {{3}}",
        5,
    ),
    "both": AtomKind("ssn", "at least {2} of {0} and {1} together", SUM + " >= {2}", 6),
    "bothmod": AtomKind(
        "ssmr", "count of {0} and {1} together, mod {2}, is {3}", f"({SUM}) % {{2}} == {{3}}", 5
    ),
    "most": AtomKind("s", "more than half of the tokens are {0}", "2 * x.count({0!r}) > len(x)", 5),
    "long": AtomKind("n", "at least {0} tokens", "len(x) >= {0}", 4),
    "length": AtomKind("n", "exactly {0} tokens", "len(x) == {0}", 5),
    "lengthmod": AtomKind("mr", "number of tokens mod {0} is {1}", "len(x) % {0} == {1}", 4),
    "order": AtomKind("vss", ORDERS, ORDER_SOURCES, 2),
    "enclosed": AtomKind(
        "vss", ("every " + AROUND, "the first " + AROUND, "the last " + AROUND), ENCLOSED_SOURCES, 5
    ),
    "shape": AtomKind(
        "w",
        lambda w: f"keeping only {' and '.join(dict.fromkeys(w))}: {' '.join(f'{s}+' for s in w)}",
        f"(lambda p: {RUNS} == {{list}})([t for t in x if t in {{0!r}}])",
        4,
    ),
    "early": AtomKind(
        "ns",
        lambda n, a: f"some {a} among the {'last' if n < 0 else 'first'} {abs(n)} tokens",
        lambda n, a: f"{a!r} in x[{n}:]" if n < 0 else f"{a!r} in x[:{n}]",
        4,
    ),
    "every": AtomKind(
        "smr",
        lambda a, m, r: f"some {a} at a position that is {(r + 1) % m} mod {m}",
        "{0!r} in x[{2}::{1}]",
        5,
    ),
    "followed": AtomKind(
        "ss",
        "every {0} has {1} right after it",
        "all(x[i + 1:i + 2] == [{1!r}] for i, t in enumerate(x) if t == {0!r})",
        5,
    ),
    "preceded": AtomKind(
        "ss",
        "every {0} has {1} right before it",
        "all(i and x[i - 1] == {1!r} for i, t in enumerate(x) if t == {0!r})",
        5,
    ),
    "repeat": AtomKind(
        "n",
        lambda d: "two equal neighbours" if d == 1 else f"two equal tokens {d} places apart",
        "any(s == t for s, t in zip(x, x[{0}:]))",
        4,
    ),
    "changes": AtomKind("n", "at least {0} changes of token", CHANGES + " >= {0}", 6),
    "changemod": AtomKind(
        "mr", "number of changes of token mod {0} is {1}", CHANGES + " % {0} == {1}", 6
    ),
    "kinds": AtomKind("n", "at least {0} different tokens", "len(set(x)) >= {0}", 7),
    "top": AtomKind(
        "n", "some token occurs at least {0} times", "max(map(x.count, x), default=0) >= {0}", 7
    ),
    "mirror": AtomKind("", "a palindrome", "x == x[::-1]", 6),
    "copy": AtomKind(
        "", "the same half twice", "len(x) % 2 == 0 and x[:len(x) // 2] == x[len(x) // 2:]", 6
    ),
    "dyck": AtomKind(
        "ssv",
        lambda a, b, n: f"{a} and {b} match as brackets" + (f", depth at most {n}" if n else ""),
        "(lambda d: min(d) >= 0 == d[-1] and max(d) <= ({2} or len(x)))(" + LEVELS + ")",
        3,
    ),
    "prefix": AtomKind("ss", "never more {1} than {0} so far", f"min({LEVELS}) >= 0", 5),
    "nested": AtomKind(
        "ssssv",
        "{0} {1} and {2} {3} match as brackets, depth at most {4}",
        lambda *args: f"reduce(lambda s, t: {nested_moves(*args)!r}.get((s, t), s), x, '') == ''",
        4,
    ),
    "moves": AtomKind(
        "wtt",
        lambda symbols, moves, accepting: (
            f"automaton over {' '.join(symbols)} ("
            + "".join(f"{n}{'!' * (str(n) in accepting)}: {row}; " for n, row in enumerate(moves))
            + "! accepts, others are stepped over)"
        ),
        moves_source,
        0,
    ),
}
"""Every kind of atom; that of an automaton has a description length of its own."""
