"""The rule behind labelled sequences: search, evidence, rivals, probes, and a program that checks.

Nothing is claimed that labels without a rule would explain as well; of the rules that the lines
cannot tell apart, all are listed, with the shortest sequences whose labels would decide.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from regard.ambient import current, progress
from regard.errors import DataError
from regard.formal.state_diagram import dot
from regard.rules import results
from regard.rules.description_length import TIE, LabelCode, contrast_code, label_code, posterior
from regard.rules.encoded_lines import encode
from regard.rules.labelled_lines import WORDS, LineFormat, find_in_both, thin_sides
from regard.rules.null_model import RandomLines, acceptance_rate, chance_of, fit_random_lines
from regard.rules.permutation_test import PermutationTest, shuffle_test
from regard.rules.probes import distinct, edit_lines, find_probes, probe_symbols, short_words
from regard.rules.results import RANDOM, Discovery, LabelledLine, RuleHypothesis, number
from regard.rules.rule import Rule, rule_automaton
from regard.rules.rule_search import RuleCandidate, RuleSearch
from regard.rules.size_principle import rarities

LEVEL = 0.01  # a rule is claimed below this p-value
SEARCHED = 1000  # lines that the search looks at; rules found are counted on all
COUNTED = 40  # rules, at most, that are counted again when there are more lines
LISTED, TIED = 20, 100  # rules listed; those that tie with the best, at most
TRUSTED = 6.0  # bits, at most, by which it counts that rules are rare: lines may not be random
SEARCHING = 0.6  # of the seconds; the rest is for shuffles, rivals and counts
RIVALS, NEAR = 8, 10.0  # rules that probes tell apart; bits by which one may be dearer
DRAWN = 400, 800  # random lines, least and most, where there is one side only
PROVEN = 2_000_000  # tokens by which printed programs are compared with the search


def discover_rule(
    lines: Sequence[LabelledLine],
    seconds: float = 60.0,
    top: int = LISTED,
    form: LineFormat = WORDS,
    file: str = "",
    notes: Sequence[str] = (),
) -> Discovery:
    """Search, weigh, compare; with one side only, against random lines.

    `form` and `file` say how the printed checker reads its files; `notes` come before those of the
    discovery itself.
    """
    labelled = [line for line in lines if line.tokens]
    if not labelled:
        raise DataError("looking for a rule", "no tokens", "lines of words or characters")
    rng = np.random.default_rng(current().seed % (1 << 63))  # no seed is negative here
    deadline = time.monotonic() + seconds
    one_sided = len({line.positive for line in labelled}) == 1
    used = labelled
    if one_sided:  # against random lines, of such lengths and shares of symbols
        source = RandomLines.like(encode([line.tokens for line in labelled]))
        words = source.draw(int(np.clip(2 * len(labelled), *DRAWN)), rng)
        drawn = [(tuple(word), False, RANDOM, n, " ".join(word)) for n, word in enumerate(words, 1)]
        used = [*labelled, *(LabelledLine(*line) for line in drawn)]
    part = thin_sides(used, SEARCHED)
    labels = np.array([line.positive for line in part])
    encoded = encode([line.tokens for line in part])
    until = deadline - (1 - SEARCHING) * seconds
    search = RuleSearch(encoded, labels, code_of(part, one_sided), until, rng)
    search.run()
    complete, search.deadline = not search.late(), deadline
    with progress("weighing rules") as say:
        say("shuffled labels")
        test = shuffle_test(search, rng)
        say("rivals and probes")
        hypotheses = rank(search, used, part, top, test, rng)
        claimed = bool(hypotheses) and test.p_value(search.best) < LEVEL
        vocabulary = encode([line.tokens for line in labelled]).symbols
        negatives = [line.tokens for line in used if not line.positive]
        null = None if one_sided else fit_random_lines(negatives, vocabulary)
        for n, one in enumerate(hypotheses):
            if n < 4 or (n < 2 * RIVALS and not search.late()):
                one = with_automaton(one, null, vocabulary, rng)
            is_claimed = claimed and one.p_value < LEVEL
            hypotheses[n] = replace(one, claimed=is_claimed, checker=write_checker(one, form, file))
        near = [n for n, one in enumerate(hypotheses) if one.score <= hypotheses[0].score + NEAR]
        near = near[:RIVALS]
        most = hypotheses[0].right if hypotheses else 0
        equal = [n for n, one in enumerate(hypotheses) if n not in near and one.right >= most]
        rivals = sorted([*near, *equal[: RIVALS - len(near)]])  # not much dearer, or as often right
        probes = decide(hypotheses, rivals, used, vocabulary, rng, form)
    verify_checkers(hypotheses, labelled)
    discovery = Discovery(
        hypotheses=hypotheses,
        probes=probes,
        claimed=claimed,
        p_value=test.p_value(search.best),
        permutation_p=test.permutation(search.best),
        shuffles=len(test.chance),
        bound_p=test.bound(search.best),
        leave_one_out=None if one_sided else search.leave_one_out(),
        bits_without_rule=code_of(used, one_sided).none,
        complete=complete,
        rules_tried=sum(map(len, search.atoms.atoms)),
        lines=len(labelled),
        symbols=len(vocabulary),
        in_both=find_in_both(labelled),
        notes=[],
        examples=used,
    )
    more = write_notes(discovery, len(part), seconds)
    if null is not None and claimed:
        more += note_random(discovery, rivals, null)
    return replace(discovery, notes=[*notes, *more])


# Lines ------------------------------------------------------------------------------------------


def code_of(lines: Sequence[LabelledLine], one_sided: bool) -> LabelCode:
    """How labels are coded."""
    positives = sum(line.positive for line in lines)
    make = contrast_code if one_sided else label_code
    return make(positives, len(lines) - positives)


# Evidence ---------------------------------------------------------------------------------------


def rank(
    search: RuleSearch,
    used: Sequence[LabelledLine],
    part: Sequence[LabelledLine],
    top: int,
    test: PermutationTest,
    rng: np.random.Generator,
) -> list[RuleHypothesis]:
    """Different rules, best first; with more lines than were searched, weighed on all of them."""
    leaders = search.leaders(600)
    symbols = probe_symbols([one.rule for one in leaders[:40]], search.lines.symbols, 3)
    words = [*short_words(symbols, 360), *short_words(symbols[:2], 254)]  # to length 4, and 7
    words += edit_lines([line.tokens for line in part], rng)
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
    count = sum(line.file != RANDOM for line in lines)
    hypotheses = []
    for one, share in zip(kept, shares.tolist(), strict=True):
        wrong = [lines[n] for n in np.flatnonzero(one.row != labels).tolist()]
        exceptions = [line for line in wrong if line.file != RANDOM]
        right = count - len(exceptions)
        hypotheses.append(
            RuleHypothesis(
                rule=one.rule.reading,
                accuracy=right / count,
                right=right,
                lines=count,
                bits=one.bits,
                score=round(one.total, 3),
                posterior=share,
                p_value=p_values[one.rule],
                exceptions=exceptions,
                formula=one.rule,
            )
        )
    return hypotheses


def savings(
    search: RuleSearch, kept: Sequence[RuleCandidate], rng: np.random.Generator
) -> dict[Rule, float]:
    """Bits that count for each rule's being rare."""
    near = [one for one in kept if one.total <= kept[0].total + 2 * TRUSTED]
    if len(near) < 2 or search.late():
        return {}
    rows, tests = [one.row for one in near], [one.rule.compile() for one in near]
    saved = np.clip(rarities(search.lines, rows, tests, rng), -TRUSTED, TRUSTED)
    return {one.rule: bits for one, bits in zip(near, saved.tolist(), strict=True)}


def weigh_again(
    kept: Sequence[RuleCandidate], used: Sequence[LabelledLine], code: LabelCode, search: RuleSearch
) -> list[RuleCandidate]:
    """Rules found on some lines, counted on all of them; as many as time allows."""
    labels, weighed = np.array([line.positive for line in used]), list[RuleCandidate]()
    for one in kept:
        if weighed and search.late():
            break
        accepts = one.rule.compile()
        row = np.array([accepts(line.tokens) for line in used])
        good, bad = int((row & labels).sum()), int((row & ~labels).sum())
        weighed.append(one._replace(row=row, total=one.bits + float(code.table[good, bad])))
    return weighed


def with_automaton(
    one: RuleHypothesis,
    null: RandomLines | None,
    vocabulary: tuple[str, ...],
    rng: np.random.Generator,
) -> RuleHypothesis:
    """Add the automaton of a rule, and how often random lines keep it."""
    dfa, chance = rule_automaton(one.formula, vocabulary), None
    if null is not None:
        kept = sum(not line.positive for line in one.exceptions)
        rate = acceptance_rate(one.accepts, dfa, null, rng)
        chance = chance_of(rate, len(null.lengths), kept)
    if dfa is None:
        return replace(one, by_chance=chance)
    text = dot(dfa) if len(dfa.moves) <= results.SMALL_STATES else None
    return replace(one, by_chance=chance, automaton=dfa, states=len(dfa.moves), dot=text)


# Rivals and probes ------------------------------------------------------------------------------


def decide(
    ranked: Sequence[RuleHypothesis],
    rivals: Sequence[int],
    lines: Sequence[LabelledLine],
    vocabulary: tuple[str, ...],
    rng: np.random.Generator,
    form: LineFormat,
) -> list[results.DecidingProbe]:
    """New sequences whose labels would tell the rivals apart."""
    rules, known = {n + 1: ranked[n].formula for n in rivals}, {line.tokens for line in lines}
    words = list(short_words(probe_symbols([*rules.values()], vocabulary), 1500))
    words += edit_lines([line.tokens for line in lines], rng)
    fresh = [word for word in dict.fromkeys(words) if word and word not in known]
    weights = [max(ranked[n].posterior, 1e-6) for n in rivals]
    return find_probes(rules, weights, fresh, "" if form.chars else " ")


# What a reader must know to judge the rules -----------------------------------------------------


def write_notes(result: Discovery, searched: int, seconds: float) -> list[str]:
    """Whether there is a rule at all, what was compared with what, and what cannot be told."""
    tests = (
        f"p = {number(result.p_value)}: twice the smaller of {number(result.permutation_p)}, a "
        f"permutation test of {result.shuffles} shuffles over the same rules, and "
        f"{number(result.bound_p)}, a bound by description length"
    )
    if not result.hypotheses:
        notes = ["no rule is claimed: none that was tried tells one line from another"]
    elif result.claimed:
        notes = [f"there is a rule ({tests})"]
    else:
        chance = f"the labels may be chance ({tests}; below {LEVEL} is needed)"
        notes = [f"no rule is claimed: {chance}"]
    if drawn := len(result.examples) - result.lines:
        notes.append(
            f"only one side is given: compared with {drawn} random lines of the same lengths and "
            "symbols; a rule is worth the more, the fewer of them keep it"
        )
    if searched < len(result.examples):
        notes.append(
            f"the search looked at {searched:,} lines; the rules listed are counted on all "
            f"{len(result.examples):,}"
        )
    if not result.complete:
        notes.append(f"the {round(seconds, 1):g} seconds were up: these are the best rules so far")
    if both := result.in_both:
        listed = "; ".join(f"{one.text} ({one.positive}, {one.negative})" for one in both[:5])
        many = "1 sequence stands" if len(both) == 1 else f"{len(both)} sequences stand"
        notes.append(f"{many} on both sides: {listed}")
    most = max((one.right for one in result.hypotheses), default=0)
    equal = [n for n, one in enumerate(result.hypotheses, 1) if one.right == most]
    if len(equal) >= 2:
        listed = ", ".join(map(str, equal[:12])) + (" …" if len(equal) > 12 else "")
        notes.append(f"these lines cannot tell rules {listed} apart: each gets {most} lines right")
    return notes


def note_random(result: Discovery, rivals: Sequence[int], null: RandomLines) -> Iterator[str]:
    """The reading that negatives are random lines, where it is plausible."""
    drawn = "drawn evenly" if null.even else "drawn as often as they occur there"
    begin = f"the negatives may be unfiltered random lines: with tokens {drawn}"
    plausible = [
        (one.bits, -one.by_chance.rate, n)  # the simplest, and the widest of those
        for n, one in ((n + 1, result.hypotheses[n]) for n in rivals)
        if one.by_chance is not None and one.by_chance.plausible and one.exceptions
        if not any(line.positive for line in one.exceptions)
    ]
    if plausible:
        n = min(plausible)[-1]
        one, chance = result.hypotheses[n - 1], result.hypotheses[n - 1].by_chance
        assert chance is not None
        kept = chance.observed
        yield (
            f"{begin}, {chance.expected:.2f} of them would keep rule {n} ({one.rule}) by chance; "
            f"{kept} {'does' if kept == 1 else 'do'}: P(exactly {kept}) = {chance.p_exactly:.3f}, "
            f"P(at least {kept}) = {chance.p_at_least:.3f}. Then its exceptions are coincidence"
        )


# A rule as a program of ten lines that anybody can run on the files ------------------------------

PACKED = {".gz": "gzip", ".xz": "lzma"}


def write_checker(one: RuleHypothesis, form: LineFormat = WORDS, file: str = "") -> str:
    """Python that defines `accepts(tokens)`, and counts accepted lines of files such as this."""
    source = one.formula.source
    module = PACKED.get(file[-3:].lower(), "io")
    used = {"reduce(": "functools", "accumulate(": "itertools"}
    imports = [f"from {home} import {name[:-1]}" for name, home in used.items() if name in source]
    tokens = "row.strip()" if form.chars else "row.split()"
    title = f"{one.rule}: {one.right} of {one.lines} lines"
    title = title.replace("\\", "\\\\").replace('"', "'")
    title = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in title)  # no NUL in a program
    lines = [
        f'"""{title}."""',
        "; ".join([f"import sys, {module}", *imports]),
        "def accepts(tokens):",
        "    x = list(tokens)",
        f"    return bool({source})",
        'if __name__ == "__main__":',
        "    for name in sys.argv[1:]:",
        f"        rows = {module}.open(name, 'rt', encoding='utf-8-sig', newline='\\n')",
        f"        said = [accepts({tokens}) for row in rows if row.strip()]",
        '        print(f"{name}: {sum(said)} of {len(said)} lines accepted")',
    ]
    return "\n".join(lines) + "\n"


def verify_checkers(hypotheses: Sequence[RuleHypothesis], lines: Sequence[LabelledLine]) -> None:
    """Run each printed program on the lines: it must say what is reported."""
    enough = max(5, PROVEN // sum(len(line.tokens) for line in lines))
    for one in hypotheses[:enough]:
        names: dict[str, Any] = {"__name__": "checker"}
        exec(compile(one.checker, "checker", "exec"), names)
        wrong = sum(names["accepts"](line.tokens) != line.positive for line in lines)
        if wrong != len(one.exceptions):
            problem = f"{wrong} exceptions by the checker, {len(one.exceptions)} by the search"
            raise DataError(f"checking {one.rule!r}", problem, "the same")
