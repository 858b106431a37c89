"""What `regard discover` found, in words and tables."""

from __future__ import annotations

from regard.cli.show import Show
from regard.formal.state_diagram import dot
from regard.rules.discovery import LEVEL, Discovery, Hypothesis
from regard.rules.labelled_lines import RANDOM

SHOWN, EXCEPTIONS = 10, 5
CLIP = 300  # characters of a line that is shown


def number(value: float) -> str:
    """0.0123 → 0.012; very small ones as powers."""
    return f"{value:.2g}" if value >= 1e-4 or value == 0 else f"{value:.0e}"


def notes(found: Discovery, seconds: float) -> list[str]:
    """What a reader must know to judge the rules."""
    said = [claim(found)]
    drawn = sum(line.file == RANDOM for line in found.lines)
    if drawn:
        said.append(
            f"only one side is given: compared with {drawn} random lines of the same lengths and "
            "symbols; a rule is worth the more, the fewer of them keep it"
        )
    if found.searched < len(found.lines):
        said.append(
            f"the search looked at {found.searched:,} lines; the rules listed are counted on all "
            f"{len(found.lines):,}"
        )
    if not found.complete:
        said.append(f"the {seconds:g} seconds were up: these are the best rules so far")
    if found.both:
        listed = "; ".join(f"{one.text} ({one.place}, {two.place})" for one, two in found.both[:5])
        many = "1 sequence stands" if len(found.both) == 1 else f"{len(found.both)} sequences stand"
        said.append(f"{many} on both sides: {listed}")
    said += rivals(found)
    said += unfiltered(found)
    return said


def claim(found: Discovery) -> str:
    """Whether there is a rule at all."""
    tests = (
        f"p = {number(found.p_value)}: twice the smaller of {number(found.permutation)}, a "
        f"permutation test of {found.shuffles} shuffles over the same rules, and "
        f"{number(found.bound)}, a bound by description length"
    )
    if not found.hypotheses:
        return "no rule is claimed: none that was tried tells one line from another"
    if found.claimed:
        return f"there is a rule ({tests})"
    return f"no rule is claimed: the labels may be chance ({tests}; below {LEVEL} is needed)"


def rivals(found: Discovery) -> list[str]:
    """Rules that fit as well as the best of them."""
    most = max((one.right for one in found.hypotheses), default=0)
    equal = [n for n, one in enumerate(found.hypotheses, 1) if one.right == most]
    if len(equal) < 2:
        return []
    listed = ", ".join(map(str, equal[:12])) + (" …" if len(equal) > 12 else "")
    return [f"these lines cannot tell rules {listed} apart: each gets {most} lines right"]


def unfiltered(found: Discovery) -> list[str]:
    """The reading that negatives are random lines, where it is plausible."""
    said: list[str] = []
    if found.null is None or not found.claimed:
        return said
    drawn = "drawn evenly" if found.null.even else "drawn as often as they occur there"
    near = ((n + 1, found.hypotheses[n], found.hypotheses[n].chance) for n in found.rivals)
    may_be = [
        (one.bits, -chance.rate, n)  # the simplest, and the widest of those
        for n, one, chance in near
        if chance is not None and chance.plausible and one.exceptions
        if not any(line.positive for line in one.exceptions)
    ]
    if may_be:
        n = min(may_be)[-1]
        one, chance = found.hypotheses[n - 1], found.hypotheses[n - 1].chance
        assert chance is not None
        kept = chance.observed
        said.append(
            f"the negatives may be unfiltered random lines: with tokens {drawn}, "
            f"{chance.expected:.2f} of them would keep rule {n} ({one.rule.reading}) by chance; "
            f"{kept} {'does' if kept == 1 else 'do'}: P(exactly {kept}) = {chance.just:.3f}, "
            f"P(at least {kept}) = {chance.least:.3f}. Then its exceptions are coincidence"
        )
        said += narrower(found, one, n)
    first = found.hypotheses[0].chance
    if not said and first is not None and first.observed == 0 and first.just > 0.05:
        said.append(
            f"the negatives may be unfiltered random lines: with tokens {drawn}, "
            f"{first.expected:.2f} of them would keep rule 1 by chance, and none does with "
            f"probability {first.just:.3f}"
        )
    return said


def narrower(found: Discovery, wide: Hypothesis, number_: int) -> list[str]:
    """How surprising it is that all positives keep a narrower rule too."""
    positives = sum(line.positive for line in found.lines)
    for n, one in enumerate(found.hypotheses, 1):
        if one.exceptions or one.dfa is None or wide.dfa is None or not one.chance:
            continue
        assert wide.chance is not None
        if (one.dfa - wide.dfa).shortest() is None and one.chance.rate < wide.chance.rate:
            likely = (one.chance.rate / wide.chance.rate) ** positives
            return [
                f"but were the positives random lines that keep rule {number_} alone, all "
                f"{positives} would keep rule {n} as well with probability {number(likely)}"
            ]
    return []


def print_found(
    found: Discovery, sources: list[str], said: list[str], blank: str, show: Show
) -> None:
    """Everything for people; `blank` stands between tokens."""
    given = [line for line in found.lines if line.file != RANDOM]
    sides = sum(line.positive for line in given), sum(not line.positive for line in given)
    show.line(
        f"{sides[0]:,} positive and {sides[1]:,} negative lines, {len(found.vocabulary):,} "
        f"symbols; {found.tried:,} rules tried alone, then two and three together, then automata"
    )
    if found.hypotheses:
        rows = [row(n, one) for n, one in enumerate(found.hypotheses[:SHOWN], 1)]
        title = "rules" if found.claimed else "candidates, none of which is claimed"
        columns = ("", "rule", "right", "bits", "total", "posterior", "p")
        show.table(f"{title}, best first", columns, rows, left=2)
    print_exceptions(found, show)
    if found.leave_one_out is not None:
        share = f"{found.leave_one_out:.1%}"
        show.line(f"left-out lines, each by the rule that is best without it: {share} right")
    print_probes(found, blank, show)
    for note in said:
        show.line(f"* {note}")
    if not found.hypotheses:
        return
    dfa = found.hypotheses[0].dfa
    if dfa is not None and len(dfa.moves) <= 8:
        show.line(f"\nautomaton of rule 1, {len(dfa.moves)} states (DOT; --png draws it)")
        show.line(dot(dfa).rstrip())
    show.line("\nchecker of rule 1 (--checker writes it)")
    show.line(sources[0].rstrip())


def row(n: int, one: Hypothesis) -> tuple[str, ...]:
    """One rule of the table."""
    right = f"{one.right}/{one.right + len(one.exceptions)}"
    numbers = f"{one.bits}", f"{one.total:.1f}", number(one.posterior), number(one.p_value)
    return str(n), one.rule.reading, right, *numbers


def print_exceptions(found: Discovery, show: Show) -> None:
    """Lines that go against the first rules."""
    for n, one in enumerate(found.hypotheses[:SHOWN], 1):
        for line in one.exceptions[: EXCEPTIONS if n <= 5 else 0]:
            sign = "+" if line.positive else "-"
            text = line.text if len(line.text) <= CLIP else f"{line.text[: CLIP - 1]}…"
            show.line(f"  exception to {n}: {line.place} ({sign}): {text}")
        if n <= 5 and len(one.exceptions) > EXCEPTIONS:
            show.line(f"  exceptions to {n}: {len(one.exceptions) - EXCEPTIONS} more (--json)")


def print_probes(found: Discovery, blank: str, show: Show) -> None:
    """The sequences that would decide."""
    if not found.probes:
        return
    heads = [str(n + 1) for n in found.rivals]
    table = [
        (blank.join(probe.tokens), *("yes" if yes else "no" for yes in probe.verdicts))
        for probe in found.probes
    ]
    show.table("probes that would decide, and what each rule says", ("", *heads), table)
    first = blank.join(found.probes[0].tokens)
    show.line(f"  answer one and rank again: --label '{first} : yes'")
