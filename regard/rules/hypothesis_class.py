"""The hypothesis class of single rules: every atom over some lines, as rows of truth values.

Whole families of atoms are tried at once; those that agree on every line stand side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from regard.ambient import track
from regard.rules.atoms import Atom, atom_bits, nested_moves
from regard.rules.description_length import Bits
from regard.rules.encoded_lines import Bools, EncodedLines
from regard.rules.rule import Rule, name_symbols, negate
from regard.rules.transition_tables import run_tables, small_tables

ALIKE = 30  # atoms that agree on every line and are kept as rivals of one another
ROOM = 40_000_000  # truth values of one family at most, places counted
WIDE = 40_000  # atoms of one family at most
Block = tuple[list[Atom], Bools]
"""Atoms and, for each of them, the lines that satisfy it."""


@dataclass(frozen=True)
class HypothesisClass:
    """Different rows of truth values, and the atoms behind each of them, cheapest first."""

    symbols: tuple[str, ...]
    rows: Bools  # (U, N)
    bits: Bits  # (U,) of the cheapest atom, without sign
    atoms: list[list[tuple[Atom, bool]]]
    """Behind each row; False: the row is where the atom does not hold."""

    def rules(self, row: int) -> list[Rule]:
        """The atoms behind a row, with their signs."""
        named = ((name_symbols(atom, self.symbols), sign) for atom, sign in self.atoms[row])
        return [rule if sign else negate(rule) for rule, sign in named]


def fits(encoded: EncodedLines, power: int, most: int, places: bool = True) -> int:
    """How many symbols a family of V ** power atoms may look at."""
    lines, width = encoded.ids.shape
    each, size = lines * (width if places else 1), min(len(encoded.symbols), most)
    while size > 2 and (size**power * each > ROOM or size**power > WIDE):
        size -= 1
    return size


def subsequences(encoded: EncodedLines) -> Iterator[Block]:
    """Symbols in an order, other symbols between them or not."""
    size = min(len(encoded.symbols), 400)
    following, lines = encoded.next_place(fits(encoded, 1, size)), np.arange(len(encoded.ids))
    words: list[tuple[int, ...]] = [()]
    ends = np.zeros((1, len(lines)), np.int32)
    for length in range(1, 6):
        size = min(fits(encoded, length, 400, places=False), len(following))
        if length > 2 and size < min(len(encoded.symbols), 3):
            return
        kept = [n for n, word in enumerate(words) if all(symbol < size for symbol in word)]
        if not kept or len(kept) * size > WIDE:
            return
        words = [(*words[n], symbol) for n in kept for symbol in range(size)]
        ends = np.stack([following[:size, lines, ends[n]] for n in kept]).reshape(-1, len(lines))
        holds = ends <= encoded.ids.shape[1]
        yield [Atom("sub", (word,)) for word in words], holds
        alive = np.flatnonzero(holds.any(1))
        words, ends = [words[n] for n in alive], ends[alive]
        if not words:
            return


def strings(encoded: EncodedLines) -> Iterator[Block]:
    """Symbols side by side, anywhere, at the beginning, at the end; those that occur."""
    lines, width = encoded.ids.shape
    for length in range(2, min(6, width) + 1):
        windows = np.lib.stride_tricks.sliding_window_view(encoded.ids, length, axis=1)
        whole = windows[:, :, -1] >= 0
        yield from occurring("string", windows[whole], np.nonzero(whole)[0], lines)
    for length in range(1, min(4, width) + 1):
        rows = np.flatnonzero(encoded.lengths >= length)
        yield from occurring("starts", encoded.ids[rows, :length], rows, lines)
        at = encoded.lengths[rows, None] - length + np.arange(length)
        yield from occurring("ends", encoded.ids[rows[:, None], at], rows, lines)


def occurring(kind: str, words: Any, rows: Any, lines: int) -> Iterator[Block]:
    """Atoms of words that stand in some lines; those of one line only when lines are few."""
    if not len(words):
        return
    size = int(words.max()) + 1
    if size ** words.shape[1] < 2**62:  # words as numbers sort ten times as fast
        codes = words @ (size ** np.arange(words.shape[1]))
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        unique = words[first]
    else:
        unique, inverse = np.unique(words, axis=0, return_inverse=True)
    stands = np.unique(inverse.ravel() * lines + rows)  # each word once in a line
    often = np.bincount(stands // lines)
    kept = np.argsort(-often, kind="stable")[:WIDE]
    kept = kept[often[kept] >= (1 if lines <= 60 else 2)]
    place = np.full(len(unique), -1)
    place[kept] = np.arange(len(kept))
    stands = stands[place[stands // lines] >= 0]
    holds = np.zeros((len(kept), lines), bool)
    holds[place[stands // lines], stands % lines] = True
    yield [Atom(kind, (tuple(word),)) for word in unique[kept].tolist()], holds


def places(encoded: EncodedLines) -> Iterator[Block]:
    """What stands where, counted from either end; equal places."""
    size, deep = fits(encoded, 1, 400, places=False), min(encoded.ids.shape[1], 12)
    spots = [n for n in range(-deep, deep + 1) if n]
    for spot in spots:
        if abs(spot) > 1:
            atoms = [Atom("place", (spot, symbol)) for symbol in range(size)]
            yield atoms, encoded.from_end(spot) == np.arange(size)[:, None]
    near = [n for n in spots if abs(n) <= 6]
    pairs = [(i, j) for n, i in enumerate(near) for j in near[:n]]
    holds = np.zeros((len(pairs), len(encoded.ids)), bool)
    for row, (i, j) in enumerate(pairs):
        one, two = encoded.from_end(i), encoded.from_end(j)
        holds[row] = (one == two) & (one >= 0)
    yield [Atom("same", pair) for pair in pairs], holds
    for reach in range(2, min(deep, 7)):
        atoms = [Atom("early", (reach, symbol)) for symbol in range(size)]
        yield atoms, encoded.first[:size] < reach
        holds = (encoded.last[:size] >= encoded.lengths - reach) & (encoded.last[:size] >= 0)
        yield [Atom("early", (-reach, symbol)) for symbol in range(size)], holds
    for period, rest in ((m, r) for m in (2, 3) for r in range(m)):
        part = EncodedLines(
            encoded.symbols, np.ascontiguousarray(encoded.ids[:, rest::period]), encoded.lengths
        )
        if part.ids.shape[1]:
            atoms = [Atom("every", (symbol, period, rest)) for symbol in range(size)]
            yield atoms, part.counts[:size] > 0


def counts(encoded: EncodedLines) -> Iterator[Block]:
    """How often one symbol occurs; how long the line is."""
    size = fits(encoded, 1, 400, places=False)
    number, wide = encoded.counts[:size], encoded.lengths[None]
    for most in range(1, min(int(number.max(initial=0)), 15) + 1):
        if most > 1:
            yield [Atom("least", (n, most)) for n in range(size)], number >= most
        yield [Atom("just", (n, most)) for n in range(size)], number == most
    for period, rest in ((m, r) for m in (2, 3, 4, 5) for r in range(m)):
        if number.max(initial=0) >= period:
            yield [Atom("mod", (n, period, rest)) for n in range(size)], number % period == rest
        yield [Atom("lengthmod", (period, rest))], wide % period == rest
    yield [Atom("most", (n,)) for n in range(size)], 2 * number > wide
    for most in range(int(wide.min()), min(int(wide.max()), int(wide.min()) + 40) + 1):
        yield [Atom("long", (most,))], wide >= most
        yield [Atom("length", (most,))], wide == most


def comparisons(encoded: EncodedLines) -> Iterator[Block]:
    """Counts of two symbols, one against the other or together."""
    size = fits(encoded, 2, 40, places=False)
    pairs, half = list(permutations(range(size), 2)), list(combinations(range(size), 2))
    if not pairs:
        return
    one, two = (encoded.counts[[pair[n] for pair in pairs]] for n in (0, 1))
    for by in range(-2, 4):
        yield [Atom("more", (*pair, by)) for pair in pairs], one - two >= by
    one, two = (encoded.counts[[pair[n] for pair in half]] for n in (0, 1))
    yield [Atom("equal", pair) for pair in half], one == two
    for most in range(2, min(int((one + two).max()), 10) + 1):
        yield [Atom("both", (*pair, most)) for pair in half], one + two >= most
    for period, rest in ((m, r) for m in (2, 3, 4) for r in range(m)):
        holds = (one + two) % period == rest
        yield [Atom("bothmod", (*pair, period, rest)) for pair in half], holds
        if period > 2:
            holds = (one - two) % period == rest
            yield [Atom("apart", (*pair, period, rest)) for pair in half], holds


def orders(encoded: EncodedLines) -> Iterator[Block]:
    """Which of two symbols comes first or last; one between two of the other."""
    size = fits(encoded, 2, 60, places=False)
    pairs = [(a, b) for a in range(size) for b in range(size) if a != b]
    if not pairs:
        return
    one, two = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    first, last, end = encoded.first, encoded.last, encoded.ids.shape[1]
    ordered = (
        first[one] < first[two],
        (first[one] < first[two]) & (first[two] < end),
        last[one] < last[two],
        (last[one] < last[two]) & (last[one] >= 0),
    )
    for which, holds in enumerate(ordered):
        yield [Atom("order", (which, *pair)) for pair in pairs], holds
    enclosed = (
        (first[one] < first[two]) & (last[two] < last[one]) & (last[two] >= 0),
        (first[one] < first[two]) & (first[two] < last[one]),
        (first[one] < last[two]) & (last[two] < last[one]),
    )
    for which, holds in enumerate(enclosed):
        yield [Atom("enclosed", (which, *pair)) for pair in pairs], holds


def gaps(encoded: EncodedLines) -> Iterator[Block]:
    """Two or three symbols with bounded gaps, or at a distance."""
    size = fits(encoded, 2, 16)
    hot, pairs = encoded.onehot(size), list(product(range(size), repeat=2))
    for gap in (1, 2, 3):
        soon = within(hot, gap)
        holds = np.stack([(hot[a] & soon[b]).any(1) for a, b in pairs])
        yield [Atom("near", (pair, gap)) for pair in pairs], holds
        few = fits(encoded, 3, 8)
        words = list(product(range(few), repeat=3))
        if gap < 3 and few**3 * encoded.ids.size <= ROOM:
            inner = {(b, c): within((hot[b] & soon[c])[None], gap)[0] for b, c in pairs}
            holds = np.stack([(hot[a] & inner[b, c]).any(1) for a, b, c in words])
            yield [Atom("near", (word, gap)) for word in words], holds
    for apart in range(2, min(6, encoded.ids.shape[1])):
        holds = np.stack([(hot[a, :, :-apart] & hot[b, :, apart:]).any(1) for a, b in pairs])
        yield [Atom("later", (*pair, apart)) for pair in pairs], holds


def within(hot: Bools, gap: int) -> Bools:
    """Whether a symbol comes after a place with at most `gap` others between."""
    soon = np.zeros_like(hot)
    for ahead in range(1, min(gap + 2, hot.shape[2])):
        soon[:, :, :-ahead] |= hot[:, :, ahead:]
    return soon


def repetition(encoded: EncodedLines) -> Iterator[Block]:
    """Equal tokens, changes, variety, mirror images and copies."""
    ids, lengths, width = encoded.ids, encoded.lengths, encoded.ids.shape[1]
    for apart in range(1, min(5, width)):
        equal = (ids[:, :-apart] == ids[:, apart:]) & (ids[:, apart:] >= 0)
        yield [Atom("repeat", (apart,))], equal.any(1)[None]
    changes = ((ids[:, :-1] != ids[:, 1:]) & (ids[:, 1:] >= 0)).sum(1)[None]
    kinds, top = (encoded.counts > 0).sum(0)[None], encoded.counts.max(0)[None]
    for most in range(1, 13):
        yield [Atom("changes", (most,))], changes >= most
        yield [Atom("kinds", (most,))], kinds >= most
        yield [Atom("top", (most,))], top >= most
    for period, rest in ((m, r) for m in (2, 3) for r in range(m)):
        yield [Atom("changemod", (period, rest))], changes % period == rest
    at = np.arange(width)[None]
    flipped = np.take_along_axis(ids, np.clip(lengths[:, None] - 1 - at, 0, width - 1), 1)
    yield [Atom("mirror", ())], ((ids == flipped) | (at >= lengths[:, None])).all(1)[None]
    half = lengths[:, None] // 2
    second = np.take_along_axis(ids, np.clip(at + half, 0, width - 1), 1)
    same = ((ids == second) | (at >= half)).all(1) & (lengths % 2 == 0)
    yield [Atom("copy", ())], same[None]


def brackets(encoded: EncodedLines) -> Iterator[Block]:
    """Two symbols that open and close; two such pairs."""
    size = fits(encoded, 2, 12)
    hot = encoded.onehot(size).astype(np.int16)
    for a, b in permutations(range(size), 2):
        level = np.cumsum(hot[a] - hot[b], 1)
        low, deep, end = level.min(1), level.max(1), level[:, -1]
        closed = (low >= 0) & (end == 0)
        rows = [closed, *(closed & (deep <= depth) for depth in (1, 2, 3)), low >= 0]
        atoms = [Atom("dyck", (a, b, depth)) for depth in range(4)]
        yield [*atoms, Atom("prefix", (a, b))], np.stack(rows)
    for four in permutations(range(min(len(encoded.symbols), 6)), 4):
        if four[0] < four[2]:
            yield nested(encoded, four)


def nested(encoded: EncodedLines, four: tuple[int, ...]) -> Block:
    """Two kinds of brackets up to depths 1, 2, 3, as automata."""
    atoms, rows = [], []
    for depth in (1, 2, 3):
        moves = nested_moves("a", "b", "c", "d", depth)
        names = {state: n for n, state in enumerate(dict.fromkeys(["", *moves.values()]))}
        table = np.tile(np.arange(len(names))[:, None], (1, 4))
        for (state, symbol), target in moves.items():
            table[names[state], "abcd".index(symbol)] = names[target]
        atoms.append(Atom("nested", (*four, depth)))
        rows.append(run_tables(table[None], encoded, four)[0] == 0)
    return atoms, np.stack(rows)


def shapes(encoded: EncodedLines) -> Iterator[Block]:
    """Some symbols alone, runs as one: a+ b+ a+."""
    for count, most, longest in ((2, 30, 6), (3, 10, 5)):
        for chosen in combinations(range(fits(encoded, count, most)), count):
            yield from shape_of(encoded, chosen, longest)


def shape_of(encoded: EncodedLines, chosen: tuple[int, ...], longest: int) -> Iterator[Block]:
    """Runs of the chosen symbols in each line, where all of them occur."""
    digit = np.zeros(len(encoded.symbols) + 1, np.int64)
    digit[list(chosen)] = np.arange(1, len(chosen) + 1)
    code, last = np.zeros(len(encoded.ids), np.int64), np.zeros(len(encoded.ids), np.int64)
    base = len(chosen) + 1
    for column in digit[encoded.ids].T:
        new = (column > 0) & (column != last)
        code = np.where(new, np.minimum(code * base + column, base**longest), code)
        last = np.where(column > 0, column, last)
    atoms, rows = [], []
    for value in np.unique(code):
        word, rest = [], int(value)
        while rest:
            rest, number = divmod(rest, base)
            word.append(number)
        if value < base**longest and len(set(word)) == len(chosen):
            atoms.append(Atom("shape", (tuple(chosen[n - 1] for n in reversed(word)),)))
            rows.append(code == value)
    if rows:
        yield atoms, np.stack(rows)


def neighbours(encoded: EncodedLines) -> Iterator[Block]:
    """Every a has b right after it, or right before it."""
    pairs = list(permutations(range(fits(encoded, 2, 40)), 2))
    if not pairs or encoded.ids.shape[1] < 2:
        return
    code = np.where(encoded.ids[:, 1:] >= 0, encoded.ids[:, :-1] * len(encoded.symbols), -1)
    code = np.where(code >= 0, code + encoded.ids[:, 1:], -1)
    beside = np.stack([(code == a * len(encoded.symbols) + b).sum(1) for a, b in pairs])
    one, two = (encoded.counts[[pair[n] for pair in pairs]] for n in (0, 1))
    yield [Atom("followed", pair) for pair in pairs], beside == one
    yield [Atom("preceded", (b, a)) for a, b in pairs], beside == two


def projections(encoded: EncodedLines) -> Iterator[Block]:
    """Every automaton of two or three states over two symbols, others stepped over."""
    tables, finals = small_tables()
    final = np.zeros((len(finals), tables.shape[1]), bool)
    for row, one in enumerate(finals):
        final[row, [int(n) for n in one.accepting]] = True
    for pair in combinations(range(fits(encoded, 2, 10, places=False)), 2):
        ends = run_tables(tables, encoded, pair)[[one.table for one in finals]]
        atoms = [Atom("moves", (pair, one.moves, one.accepting)) for one in finals]
        yield atoms, np.take_along_axis(final, ends.astype(np.intp), 1)


FAMILIES: tuple[Callable[[EncodedLines], Iterator[Block]], ...] = (
    subsequences,
    counts,
    places,
    orders,
    strings,
    comparisons,
    repetition,
    shapes,
    brackets,
    neighbours,
    gaps,
    projections,
)
"""In the order in which they are tried when time is short."""


def enumerate_atoms(encoded: EncodedLines, deadline: float) -> HypothesisClass:
    """Run the families, as far as time allows."""
    atoms: list[Atom] = []
    blocks: list[Bools] = []
    for family in track(FAMILIES, "listing rules, family"):
        for named, rows in family(encoded):
            count = rows.sum(1)
            telling = np.flatnonzero((count > 0) & (count < rows.shape[1]))
            if len(telling):  # an atom that holds on all lines or on none tells nothing
                atoms += [named[n] for n in telling]
                blocks.append(rows[telling])
            if time.monotonic() > deadline:
                break
        if time.monotonic() > deadline and blocks:
            break
    rows = np.concatenate(blocks) if blocks else np.zeros((0, len(encoded.ids)), bool)
    return gather(encoded, atoms, rows)


def gather(encoded: EncodedLines, atoms: list[Atom], rows: Bools) -> HypothesisClass:
    """Rows that are equal or opposite become one."""
    bits = np.array([atom_bits(*atom, len(encoded.symbols)) for atom in atoms], np.float32)
    order = np.argsort(bits, kind="stable")
    rows, bits = rows[order], bits[order]
    signs = ~rows[:, 0] if len(rows) else np.zeros(0, bool)
    packed = np.packbits(rows ^ rows[:, :1], axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel() if len(rows) else packed
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    behind: list[list[tuple[Atom, bool]]] = [[] for _ in first]
    for place, group in enumerate(inverse.ravel().tolist()):
        if len(behind[group]) < ALIKE:
            same_side = bool(signs[place] == signs[first[group]])
            behind[group].append((atoms[order[place]], same_side))
    ranks = np.argsort(bits[first], kind="stable")
    chosen = first[ranks]
    return HypothesisClass(encoded.symbols, rows[chosen], bits[chosen], [behind[n] for n in ranks])
