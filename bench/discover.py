"""Planted rules: does `regard discover` find them? A table by family.

    python bench/discover.py --cases 66 --seed 0
    python bench/discover.py --random 100       labels drawn at random: nothing may be claimed

A case is solved when one of the hypotheses with the best score agrees with the planted rule on
99 % of 2,000 fresh strings. Cases of fewer than 40 lines with noise are counted apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from regard.formal.dfa import DFA
from regard.rules.discovery import discover_rule
from regard.rules.results import Discovery, LabelledLine

Test = Callable[[Sequence[str]], bool]
FRESH = 2000


class Case(NamedTuple):
    """Labelled lines of a planted rule, and fresh ones to test what is found."""

    family: str
    name: str
    lines: list[LabelledLine]
    fresh: list[tuple[str, ...]]
    rule: Test
    noise: float

    @property
    def hard(self) -> bool:
        """Whether the lines may not identify the rule."""
        return self.noise > 0 and len(self.lines) < 40


def is_subsequence(word: Sequence[str], line: Sequence[str]) -> bool:
    """Whether a word's symbols occur in its order."""
    rest = iter(line)
    return all(symbol in rest for symbol in word)


def is_substring(word: Sequence[str], line: Sequence[str]) -> bool:
    """Whether a word's symbols occur side by side."""
    size = len(word)
    return any(tuple(line[n : n + size]) == tuple(word) for n in range(len(line) - size + 1))


def is_dyck(line: Sequence[str], pairs: dict[str, str], depth: int) -> bool:
    """Whether brackets match, not deeper than so."""
    stack: list[str] = []
    for symbol in line:
        if symbol in pairs:
            stack.append(pairs[symbol])
            if len(stack) > depth:
                return False
        elif symbol in pairs.values() and (not stack or stack.pop() != symbol):
            return False
    return not stack


def plant_subsequence(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """Two to four symbols in an order."""
    word = rng.choices(symbols, k=rng.choice((2, 3, 3, 4)))
    return " … ".join(word), lambda line: is_subsequence(word, line)


def plant_substring(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """Symbols side by side."""
    word = rng.choices(symbols, k=rng.choice((1, 2, 2, 3)))
    return "".join(word), lambda line: is_substring(word, line)


def plant_mod(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """A count modulo two or three."""
    a, m = rng.choice(symbols), rng.choice((2, 2, 3))
    r = rng.randrange(m)
    return f"#{a} mod {m} = {r}", lambda line: list(line).count(a) % m == r


def plant_threshold(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """At least so many."""
    a, t = rng.choice(symbols), rng.randrange(2, 5)
    return f"#{a} >= {t}", lambda line: list(line).count(a) >= t


def plant_comparison(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """More of one than of the other."""
    a, b = rng.sample(symbols, 2)
    return f"#{a} > #{b}", lambda line: list(line).count(a) > list(line).count(b)


def plant_position(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """What stands at a place; the first equal to the last."""
    a, place = rng.choice(symbols), rng.choice((0, -1, 1, -2, 2, None))
    if place is None:
        return "first = last", lambda line: line[0] == line[-1]
    return f"x[{place}] = {a}", lambda line: line[place] == a


def plant_order(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """All a before all b; the first a before the first b."""
    a, b = rng.sample(symbols, 2)
    if rng.random() < 0.5:
        return f"all {a} before {b}", lambda line: not is_subsequence((b, a), line)

    def first(line: Sequence[str]) -> bool:
        return a in line and (b not in line or list(line).index(a) < list(line).index(b))

    return f"first {a} before first {b}", first


SIMPLE = (plant_subsequence, plant_substring, plant_mod, plant_threshold, plant_position)


def plant_xor(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """Just one of two simple rules."""
    one, two = (rng.choice(SIMPLE)(rng, symbols) for _ in range(2))
    return f"{one[0]} xor {two[0]}", lambda line: one[1](line) != two[1](line)


def plant_dfa(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """A random minimal automaton of three or four states."""
    while True:
        states = rng.choice((3, 4))
        rows = tuple(tuple(rng.randrange(states) for _ in symbols) for _ in range(states))
        final = frozenset(n for n in range(states) if rng.random() < 0.5)
        dfa = DFA(tuple(symbols), rows, final).minimise()
        if len(dfa.moves) == states:
            return f"{states} states", dfa.accepts


def plant_dyck(rng: Random, symbols: list[str]) -> tuple[str, Test]:
    """Brackets up to depth two."""
    pairs = {symbols[0]: symbols[1]}
    if len(symbols) >= 4 and rng.random() < 0.5:
        pairs[symbols[2]] = symbols[3]
    depth = rng.choice((1, 2))
    return f"dyck-{len(pairs)} depth {depth}", lambda line: is_dyck(line, pairs, depth)


PLANTS: dict[str, Callable[[Random, list[str]], tuple[str, Test]]] = {
    "subsequence": plant_subsequence,
    "substring": plant_substring,
    "count mod": plant_mod,
    "count threshold": plant_threshold,
    "count comparison": plant_comparison,
    "position": plant_position,
    "order": plant_order,
    "xor": plant_xor,
    "small dfa": plant_dfa,
    "dyck": plant_dyck,
}


def draw_dyck(rng: Random, symbols: list[str], longest: int) -> tuple[str, ...]:
    """Half of the time nearly brackets: random strings are never that."""
    line: list[str] = []
    stack: list[str] = []
    pairs = list(zip(symbols[::2], symbols[1::2], strict=False))
    for _ in range(rng.randrange(1, longest // 2 + 1)):
        if stack and rng.random() < 0.5:
            line.append(stack.pop())
        elif len(stack) < 3:
            one, two = rng.choice(pairs)
            line.append(one)
            stack.append(two)
    line += reversed(stack)
    if rng.random() < 0.5 and line:
        line[rng.randrange(len(line))] = rng.choice(symbols)
    return tuple(line) or (symbols[0],)


def make_case(family: str, rng: Random, noise: float, each: int) -> Case:
    """Lines of both labels, as many of each, then noise; fresh ones drawn alike."""
    while True:
        size = {"small dfa": (2, 3), "dyck": (2, 4)}.get(family, (2, 3, 4, 6, 8, 10))
        symbols = [chr(97 + n) for n in range(rng.choice(size))]
        low, high = rng.choice(((3, 8), (4, 12), (6, 16), (10, 10), (10, 30)))
        name, rule = PLANTS[family](rng, symbols)
        sides: dict[bool, dict[tuple[str, ...], None]] = {True: {}, False: {}}
        fresh: dict[bool, list[tuple[str, ...]]] = {True: [], False: []}
        for _ in range(60_000):
            length = rng.randint(low, high)
            line = tuple(rng.choices(symbols, k=length))
            if family == "dyck" and rng.random() < 0.7:
                line = draw_dyck(rng, symbols, high)
            side = rule(line)
            if len(sides[side]) < each:
                sides[side][line] = None
            elif len(fresh[side]) < FRESH // 2 and line not in sides[side]:
                fresh[side].append(line)
            if all(len(found) >= FRESH // 2 for found in fresh.values()):
                break
        if all(len(s) == each for s in sides.values()) and all(
            len(f) > 200 for f in fresh.values()
        ):
            break
    lines = [
        LabelledLine(line, side != (rng.random() < noise), "planted", n, " ".join(line))
        for side, found in sides.items()
        for n, line in enumerate(found)
    ]
    return Case(family, name, lines, fresh[True] + fresh[False], rule, noise)


def solved(case: Case, found: Discovery) -> tuple[bool, float]:
    """Whether a best hypothesis agrees with the planted rule; the agreement of the best."""
    best, truth = found.hypotheses[0].posterior, [case.rule(line) for line in case.fresh]
    tied = [one for one in found.hypotheses if one.posterior == best]
    shares = []
    for one in tied:
        said = [one.accepts(line) for line in case.fresh]
        shares.append(sum(a == b for a, b in zip(said, truth, strict=True)) / len(truth))
    return max(shares) >= 0.99, max(shares)


def run_planted(cases: int, seed: int, seconds: float, only: str | None) -> None:
    """The table."""
    tally: dict[str, list[Any]] = {}
    for number in range(cases):
        rng = Random(f"{seed} {number}")
        names = [only] if only else list(PLANTS)
        family = names[number % len(names)]
        each = rng.choice((10, 20, 30, 50, 100, 200))
        case = make_case(family, rng, rng.choice((0, 0, 0.03, 0.05, 0.1)), each)
        begin = time.monotonic()
        found = discover_rule(case.lines, seconds=seconds)
        took = time.monotonic() - begin
        good, share = solved(case, found)
        row = "apart" if case.hard else case.family
        tally.setdefault(row, []).append((good, found.claimed, took))
        mark = "ok  " if good else "MISS"
        best = found.hypotheses[0]
        print(
            f"{mark} {number:3d} {family:16} {case.name:24} {each:3d} each, noise {case.noise:.0%},"
            f" {took:4.1f} s, {share:.1%}, p {found.p_value:.2g}: {best.rule[:90]}",
            flush=True,
        )
    print(f"{'family':18}{'cases':>7}{'solved':>8}{'claimed':>9}{'seconds':>9}")
    for name, rows in tally.items():
        solved_, claimed, took_ = (sum(row[n] for row in rows) for n in range(3))
        print(f"{name:18}{len(rows):7}{solved_:8}{claimed:9}{took_ / len(rows):9.1f}")
    counted = [row for name, rows in tally.items() if name != "apart" for row in rows]
    print(f"solved {sum(r[0] for r in counted)} of {len(counted)} that the lines identify")


def run_random(cases: int, seed: int, seconds: float) -> None:
    """Labels that have nothing to do with the lines."""
    claimed = 0
    for number in range(cases):
        rng = Random(f"random {seed} {number}")
        symbols = [chr(97 + n) for n in range(rng.choice((2, 3, 4, 6, 8, 10)))]
        each = rng.choice((10, 20, 50, 100))
        lines = [
            LabelledLine(
                tuple(rng.choices(symbols, k=rng.randint(4, 14))), n < each, "random labels", n, ""
            )
            for n in range(2 * each)
        ]
        found = discover_rule(lines, seconds=seconds)
        claimed += found.claimed
        best = found.hypotheses[0]
        print(
            f"{number:3d} {each:3d} each, {len(symbols)} symbols, p {found.p_value:.3f}"
            f"{' CLAIMED' if found.claimed else ''}: {best.rule[:80]}",
            flush=True,
        )
    print(f"claimed {claimed} of {cases}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=70)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=tuple(PLANTS))
    args = parser.parse_args()
    if args.random:
        run_random(args.random, args.seed, args.seconds)
    else:
        run_planted(args.cases, args.seed, args.seconds, args.only)


if __name__ == "__main__":
    main()
