"""The rule behind labelled sequences: what fits, how well, what else fits, what would decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.errors import DataError
from regard.formal.dfa import DFA
from regard.rules.description_length import (
    TIE,
    Code,
    contrast_code,
    label_code,
    leave_one_out,
    posterior,
)
from regard.rules.encoded_lines import encode
from regard.rules.labelled_lines import RANDOM, Line, in_both
from regard.rules.nerode import automaton
from regard.rules.null_model import Chance, Source, chance_of, rate_of, source_of
from regard.rules.permutation_test import Test, shuffle_test
from regard.rules.probes import Probe, changed, distinct, find_probes, named, short_words
from regard.rules.rule import Rule
from regard.rules.rule_search import Candidate, Search
from regard.rules.size_principle import rarities

LEVEL = 0.01  # a rule is claimed below this p-value
SEARCHED = 1000  # lines that the search looks at; rules found are counted on all
COUNTED = 40  # rules, at most, that are counted again when there are more lines
LISTED, TIED = 20, 100  # rules listed; those that tie with the best, at most
TRUSTED = 6.0  # bits, at most, by which it counts that rules are rare: lines may not be random
SEARCHING = 0.6  # of the seconds; the rest is for shuffles, rivals and counts
RIVALS, NEAR = 8, 10.0  # rules that probes tell apart; bits by which one may be dearer
SHORT = 300  # tokens of a line from which rivals are told apart
DRAWN = 400, 800  # random lines, least and most, where there is one side only


@dataclass(frozen=True)
class Hypothesis:
    """A rule with its evidence."""

    rule: Rule
    bits: int
    total: float
    """Bits of the rule and of the labels given the rule, less what it is rare by chance."""
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
    rivals: tuple[int, ...]
    """The hypotheses that the probes tell apart, from 0."""
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
    """Rules that were tried alone."""

    @property
    def claimed(self) -> bool:
        """Whether the evidence is enough to speak of a rule."""
        return bool(self.hypotheses) and self.p_value < LEVEL


def discover(
    lines: Sequence[Line],
    seconds: float = 60.0,
    seed: int = 0,
    top: int = LISTED,
    told: Callable[[str], None] = lambda _: None,
) -> Discovery:
    """Search, weigh, compare; with one side only, against random lines."""
    given = [line for line in lines if line.tokens]
    if not given:
        raise DataError("looking for a rule", "no tokens", "lines of words or characters")
    rng, deadline = np.random.default_rng(seed), time.monotonic() + seconds
    one_sided = len({line.positive for line in given}) == 1
    used = [*given, *drawn_lines(given, rng)] if one_sided else given
    part = some(used, rng)
    labels = np.array([line.positive for line in part])
    coded = encode([line.tokens for line in part])
    until = deadline - (1 - SEARCHING) * seconds
    search = Search(coded, labels, code_of(part, one_sided), until, rng, told)
    search.run()
    complete, search.deadline = not search.late(), deadline
    told("shuffled labels")
    test = shuffle_test(search, rng)
    told("rivals and probes")
    found = rank(search, used, part, top, test, rng)
    vocabulary = encode([line.tokens for line in given]).symbols
    null = None if one_sided else source_of(negatives_of(used), vocabulary)
    for n, one in enumerate(found[: 2 * RIVALS]):
        if n < 4 or not search.late():
            found[n] = with_chance(one, null, vocabulary, rng)
    rivals = choose_rivals(found)
    return Discovery(
        lines=tuple(used),
        vocabulary=vocabulary,
        hypotheses=tuple(found),
        probes=tuple(decide([found[n] for n in rivals], used, vocabulary, rng)),
        rivals=tuple(rivals),
        p_value=test.p_value(search.best),
        permutation=test.permutation(search.best),
        shuffles=len(test.chance),
        bound=test.bound(search.best),
        leave_one_out=None if one_sided else left_out(search),
        none=code_of(used, one_sided).none,
        both=tuple(in_both(given)),
        null=null,
        complete=complete,
        searched=len(part),
        tried=sum(map(len, search.pool.atoms)),
    )


def drawn_lines(given: Sequence[Line], rng: np.random.Generator) -> list[Line]:
    """Random lines with the lengths and the shares of symbols of the given ones."""
    coded = encode([line.tokens for line in given])
    shares = coded.counts.sum(1) / coded.counts.sum()
    source = Source(coded.symbols, tuple(shares.tolist()), tuple(coded.lengths.tolist()), False)
    words = source.draw(int(np.clip(2 * len(given), *DRAWN)), rng)
    return [Line(tuple(word), False, RANDOM, n, " ".join(word)) for n, word in enumerate(words, 1)]


def code_of(lines: Sequence[Line], one_sided: bool) -> Code:
    """How labels are coded."""
    positives = sum(line.positive for line in lines)
    make = contrast_code if one_sided else label_code
    return make(positives, len(lines) - positives)


def some(lines: Sequence[Line], rng: np.random.Generator) -> list[Line]:
    """Lines to search in: all, or as many of either side as may be."""
    if len(lines) <= SEARCHED:
        return list(lines)
    sides = [[line for line in lines if line.positive == sign] for sign in (True, False)]
    room = max(SEARCHED // 2, SEARCHED - min(map(len, sides)))
    chosen = (sorted(rng.permutation(len(side))[:room].tolist()) for side in sides)
    return [side[n] for side, numbers in zip(sides, chosen, strict=True) for n in numbers]


def left_out(search: Search) -> float | None:
    """Leave-one-out accuracy, the choice among the rules found made anew for each line."""
    leaders = search.leaders(2000)
    if not leaders:
        return None
    rows, bits = np.stack([one.row for one in leaders]), [one.bits for one in leaders]
    return leave_one_out(rows, np.array(bits, np.float32), search.labels, search.code)


def rank(
    search: Search,
    used: Sequence[Line],
    part: Sequence[Line],
    top: int,
    test: Test,
    rng: np.random.Generator,
) -> list[Hypothesis]:
    """Different rules, best first; with more lines than were searched, weighed on all of them."""
    leaders = search.leaders(600)
    symbols = named([one.rule for one in leaders[:40]], search.coded.symbols, 3)
    words = [*short_words(symbols, 360)]
    words += changed(short_lines(part), search.coded.symbols, rng)
    kept, lines = distinct(leaders, words, TIED), part
    p_values = {one.rule: test.p_value(one.total) for one in kept}
    none, one_sided = search.code.none, any(line.file == RANDOM for line in used)
    saved = {} if one_sided else savings(search, kept, rng)
    if len(part) < len(used):
        code = code_of(used, one_sided)
        kept, lines, none = weigh_again(kept[:COUNTED], used, code, search), used, code.none
    kept = [one._replace(total=one.total - saved.get(one.rule, 0.0)) for one in kept]
    kept.sort(key=lambda one: (one.total, one.bits))
    kept = [one for n, one in enumerate(kept) if n < top or one.total <= kept[0].total + TIE]
    shares = posterior(np.array([one.total for one in kept]), none)
    labels = np.array([line.positive for line in lines])
    made = []
    for one, share in zip(kept, shares.tolist(), strict=True):
        wrong = [lines[n] for n in np.flatnonzero(one.row != labels).tolist()]
        exceptions = tuple(line for line in wrong if line.file != RANDOM)
        right = sum(line.file != RANDOM for line in lines) - len(exceptions)
        evidence = one.rule, one.bits, one.total, right, exceptions
        made.append(Hypothesis(*evidence, share, p_values[one.rule]))
    return made


def savings(
    search: Search, kept: Sequence[Candidate], rng: np.random.Generator
) -> dict[Rule, float]:
    """Bits that count for each rule's being rare."""
    near = [one for one in kept if one.total <= kept[0].total + 2 * TRUSTED]
    if len(near) < 2 or search.late():
        return {}
    rows, tests = [one.row for one in near], [one.rule.compile() for one in near]
    saved = np.clip(rarities(search.coded, rows, tests, rng), -TRUSTED, TRUSTED)
    return {one.rule: bits for one, bits in zip(near, saved.tolist(), strict=True)}


def weigh_again(
    kept: Sequence[Candidate], used: Sequence[Line], code: Code, search: Search
) -> list[Candidate]:
    """Rules found on some lines, counted on all of them; as many as time allows."""
    labels, made = np.array([line.positive for line in used]), list[Candidate]()
    for one in kept:
        if made and search.late():
            break
        accepts = one.rule.compile()
        row = np.array([accepts(line.tokens) for line in used])
        good, bad = int((row & labels).sum()), int((row & ~labels).sum())
        made.append(one._replace(row=row, total=one.bits + float(code.bits(good, bad))))
    return made


def short_lines(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Lines to make new sequences of; hundreds of very long ones would take minutes to judge."""
    return [line.tokens[:SHORT] for line in lines]


def negatives_of(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Tokens of the negative lines."""
    return [line.tokens for line in lines if not line.positive]


def with_chance(
    one: Hypothesis,
    null: Source | None,
    vocabulary: tuple[str, ...],
    rng: np.random.Generator,
) -> Hypothesis:
    """Add the automaton of a rule, and how often random lines keep it."""
    dfa, chance = automaton(one.rule, vocabulary), None
    if null is not None:
        kept = sum(not line.positive for line in one.exceptions)
        rate = rate_of(one.rule.compile(), dfa, null, rng)
        chance = chance_of(rate, len(null.lengths), kept)
    return replace(one, dfa=dfa, chance=chance)


def choose_rivals(found: Sequence[Hypothesis]) -> list[int]:
    """Rules not much dearer than the best, then those that get as many lines right."""
    near = [n for n, one in enumerate(found) if one.total <= found[0].total + NEAR][:RIVALS]
    equal = [n for n, one in enumerate(found) if n not in near and one.right >= found[0].right]
    return sorted([*near, *equal[: RIVALS - len(near)]])


def decide(
    rivals: Sequence[Hypothesis],
    lines: Sequence[Line],
    vocabulary: tuple[str, ...],
    rng: np.random.Generator,
) -> list[Probe]:
    """New sequences whose labels would tell the rivals apart."""
    rules, given = [one.rule for one in rivals], {line.tokens for line in lines}
    words = list(short_words(named(rules, vocabulary), 1500))
    words += changed(short_lines(lines), vocabulary, rng)
    fresh = [word for word in dict.fromkeys(words) if word and word not in given]
    weights = [max(one.posterior, 1e-6) for one in rivals]
    return find_probes(rules, weights, fresh)
