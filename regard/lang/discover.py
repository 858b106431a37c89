"""The rule behind labelled sequences: what fits, how well, what else fits, what would decide."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.errors import DataError
from regard.lang.automaton import automaton
from regard.lang.chance import Chance, Source, chance_of, rate_of, source_of
from regard.lang.coded import Bools, encode
from regard.lang.dfa import DFA
from regard.lang.evidence import (
    Bits,
    Code,
    at_least_as_good,
    best_of_pairs,
    best_of_rows,
    contrast_code,
    label_code,
    leave_one_out,
    posterior,
    shuffled,
)
from regard.lang.lines import Line, in_both
from regard.lang.probes import Probe, changed, distinct, find_probes, named, short_words
from regard.lang.rules import PAIR, Rule
from regard.lang.search import Candidate, Search

LEVEL = 0.01  # a rule is claimed below this p-value
SEARCHED = 1000  # lines that the search looks at; rules found are counted on all
PAIRED = 200  # cheapest rows whose pairs take part in the permutation test
LISTED, RIVALS = 20, 8
NEAR = 10.0  # bits by which a rival may be dearer than the best rule
TIED = 100  # rules with the best score that are listed at most


@dataclass(frozen=True)
class Hypothesis:
    """A rule with its evidence."""

    rule: Rule
    bits: int
    total: float
    """Bits of the rule and of the labels given the rule."""
    right: int
    exceptions: tuple[Line, ...]
    posterior: float
    p_value: float
    chance: Chance | None = None
    dfa: DFA | None = None


@dataclass(frozen=True)
class Discovery:
    """All that was found about some lines."""

    lines: tuple[Line, ...]
    vocabulary: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...]
    probes: tuple[Probe, ...]
    rivals: int
    """How many of the first hypotheses the probes tell apart."""
    p_value: float
    permutation: float
    shuffles: int
    bound: float
    leave_one_out: float | None
    none: float
    """Bits of the labels without a rule."""
    both: tuple[tuple[Line, Line], ...]
    null: Source | None
    """What negatives would be if they were random lines."""
    complete: bool
    searched: int
    tried: int
    """Different rules over the lines, pairs and automata not counted."""

    @property
    def claimed(self) -> bool:
        """Whether the evidence is enough to speak of a rule."""
        return bool(self.hypotheses) and self.p_value < LEVEL


def discover(
    lines: Sequence[Line],
    seconds: float = 20.0,
    seed: int = 0,
    top: int = LISTED,
    told: Callable[[str], None] = lambda _: None,
) -> Discovery:
    """Search, weigh, compare."""
    if not any(line.tokens for line in lines):
        raise DataError("looking for a rule", "no tokens", "lines of words or characters")
    rng, deadline = np.random.default_rng(seed), time.monotonic() + seconds
    given = [line for line in lines if line.tokens]
    one_sided = len({line.positive for line in given}) == 1
    used = [*given, *drawn_lines(given, rng)] if one_sided else given
    part = some(used, rng)
    labels = np.array([line.positive for line in part])
    sides = int(labels.sum()), int((~labels).sum())
    code = contrast_code(*sides) if one_sided else label_code(*sides)
    search = Search(encode([line.tokens for line in part]), labels, code, deadline, rng, told)
    search.run()
    told("shuffled labels")
    chance, observed = shuffle_test(search, code, rng, deadline)
    permutation = at_least_as_good(observed, chance) if len(chance) else 1.0
    found = rank(search, used, part, code, one_sided, top, rng)
    best = found[0].total if found else math.inf
    bound = min(1.0, 2.0 ** (best - code.none)) if len(part) == len(used) else min(
        1.0, 2.0 ** (search.best - code.none)
    )
    leaders = search.leaders(2000)
    outside = None
    if not one_sided and leaders:
        rows, bits = np.stack([c.row for c in leaders]), np.array([c.bits for c in leaders])
        outside = leave_one_out(rows, bits.astype(np.float32), labels, code)
    made = Discovery(
        lines=tuple(used),
        vocabulary=tuple(encode([line.tokens for line in given]).symbols),
        hypotheses=tuple(found),
        probes=(),
        rivals=0,
        p_value=min(1.0, 2 * min(permutation, bound)),
        permutation=permutation,
        shuffles=len(chance),
        bound=bound,
        leave_one_out=outside,
        none=code.none,
        both=tuple(in_both(used)),
        null=None,
        complete=time.monotonic() < deadline,
        searched=len(part),
        tried=sum(map(len, search.pool.atoms)),
    )
    told("rivals and probes")
    return with_probes(with_chance(made, one_sided, rng), chance, observed, rng)


def drawn_lines(given: Sequence[Line], rng: np.random.Generator) -> list[Line]:
    """Random lines with the symbols and lengths of the given ones, labelled as the other side."""
    source = source_of([line.tokens for line in given], vocabulary_of(given))._replace(even=False)
    counts = encode([line.tokens for line in given])
    shares = counts.counts.sum(1) / counts.counts.sum()
    source = source._replace(symbols=counts.symbols, shares=tuple(shares.tolist()))
    other = not given[0].positive
    words = source.draw(min(max(400, 2 * len(given)), 800), rng)
    made = enumerate(words, 1)
    return [Line(tuple(word), other, "random", n, " ".join(word)) for n, word in made]


def vocabulary_of(lines: Sequence[Line]) -> tuple[str, ...]:
    """Symbols, those of most lines first."""
    return encode([line.tokens for line in lines]).symbols


def some(lines: Sequence[Line], rng: np.random.Generator) -> list[Line]:
    """Lines to search in: all, or as many of either side as may be."""
    if len(lines) <= SEARCHED:
        return list(lines)
    sides = [[line for line in lines if line.positive == sign] for sign in (True, False)]
    room = SEARCHED // 2
    least = min(len(side) for side in sides)
    most = [min(len(side), max(room, SEARCHED - least)) for side in sides]
    return [
        side[n]
        for side, size in zip(sides, most, strict=True)
        for n in sorted(rng.choice(len(side), size, replace=False))
    ]


def shuffle_test(
    search: Search, code: Code, rng: np.random.Generator, deadline: float
) -> tuple[Bits, float]:
    """Least totals under shuffled labels, and the one of the labels themselves.

    Over the same rules in each case: all atoms, and the pairs of the cheapest of them.
    """
    pool, labels = search.pool, search.labels
    saved = code.none - search.best
    times = 999 if len(labels) <= 120 else 399
    if saved > 30:
        times = 199
    columns = np.concatenate(
        [labels.astype(np.float32)[:, None], shuffled(labels, times, rng)], axis=1
    )
    if not len(pool.rows):
        return np.zeros(0, np.float32), math.inf
    best = best_of_rows(pool.rows, pool.bits + 2, columns, code)
    cheap, price = pool.rows[:PAIRED], pool.bits[:PAIRED] + PAIR / 2
    if len(cheap) > 1 and time.monotonic() < deadline:
        best = np.minimum(best, best_of_pairs(cheap, price, columns, code))
    return best[1:], float(best[0])


def rank(
    search: Search,
    used: Sequence[Line],
    part: Sequence[Line],
    code: Code,
    one_sided: bool,
    top: int,
    rng: np.random.Generator,
) -> list[Hypothesis]:
    """Different rules, best first; with very many lines they are weighed again on all of them."""
    candidates = search.leaders(600)
    rules = [one.rule for one in candidates[:40]]
    symbols = named(rules, search.coded.symbols, 3)
    words = [*short_words(symbols, 360), *changed([l.tokens for l in part], search.coded.symbols, rng)]
    kept = distinct(candidates, words, TIED)
    if len(part) < len(used):
        kept = weigh_again(kept, used, one_sided)
        labels = [line.positive for line in used]
    else:
        labels = [line.positive for line in part]
    best = min((one.total for one in kept), default=0.0)
    kept = [one for n, one in enumerate(kept) if n < top or one.total < best + 0.01]
    every = posterior(np.array([one.total for one in kept]), none_bits(labels, one_sided))
    lines = used if len(part) < len(used) else part
    made = []
    for one, probability in zip(kept, every, strict=True):
        wrong = np.flatnonzero(one.row != np.array(labels))
        exceptions = tuple(lines[n] for n in wrong if lines[n].file != "random")
        right = sum(line.file != "random" for line in lines) - len(exceptions)
        made.append(
            Hypothesis(one.rule, one.bits, one.total, right, exceptions, float(probability), 1.0)
        )
    return made


def none_bits(labels: Sequence[bool], one_sided: bool) -> float:
    """Bits of labels without a rule."""
    return 0.0 if one_sided else math.log2(math.comb(len(labels), sum(labels)))


def weigh_again(
    kept: Sequence[Candidate], used: Sequence[Line], one_sided: bool
) -> list[Candidate]:
    """Rules found on some lines, counted on all of them."""
    labels = np.array([line.positive for line in used])
    sides = int(labels.sum()), int((~labels).sum())
    code = contrast_code(*sides) if one_sided else label_code(*sides)
    made = []
    for one in kept[:40]:
        accepts = one.rule.compile()
        row: Bools = np.array([accepts(list(line.tokens)) for line in used])
        good, bad = int((row & labels).sum()), int((row & ~labels).sum())
        made.append(one._replace(row=row, total=one.bits + float(code.bits(good, bad))))
    return sorted(made, key=lambda one: one.total)


def with_chance(found: Discovery, one_sided: bool, rng: np.random.Generator) -> Discovery:
    """Add automata, and how often random lines keep each rule."""
    negatives = [line for line in found.lines if not line.positive]
    null = source_of([line.tokens for line in negatives], found.vocabulary) if negatives else None
    made = []
    for number, one in enumerate(found.hypotheses):
        if number >= 2 * RIVALS:
            made.append(one)
            continue
        dfa = automaton(one.rule, found.vocabulary)
        chance = None
        if null is not None and not one_sided:
            accepts = one.rule.compile()
            kept = sum(accepts(list(line.tokens)) for line in negatives)
            chance = chance_of(rate_of(accepts, dfa, null, rng), len(negatives), kept)
        made.append(replace(one, dfa=dfa, chance=chance))
    return replace(found, hypotheses=tuple(made), null=None if one_sided else null)


def with_probes(
    found: Discovery, chance: Bits, observed: float, rng: np.random.Generator
) -> Discovery:
    """Add the p-value of each rule, and probes that tell the first ones apart."""
    made = []
    for one in found.hypotheses:
        share = at_least_as_good(max(one.total, observed), chance) if len(chance) else 1.0
        bound = 2.0 ** min(0.0, one.total - found.none)
        made.append(replace(one, p_value=min(1.0, 2 * min(share, bound))))
    near = [one for one in made if one.total <= made[0].total + NEAR]
    rivals = near[:RIVALS]
    probes: list[Probe] = []
    if len(rivals) > 1:
        rules = [one.rule for one in rivals]
        symbols = named(rules, found.vocabulary)
        words = list(short_words(symbols, 1500))
        words += changed([line.tokens for line in found.lines], found.vocabulary, rng)
        seen = {line.tokens for line in found.lines}
        words = [word for word in dict.fromkeys(words) if word and word not in seen]
        weights = [max(one.posterior, 1e-6) for one in rivals]
        probes = find_probes(rules, weights, words)
    return replace(found, hypotheses=tuple(made), probes=tuple(probes), rivals=len(rivals))
