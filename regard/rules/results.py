"""What rule discovery returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property

from regard.errors import DataError
from regard.formal.dfa import DFA
from regard.formal.state_diagram import AutomatonResult
from regard.result import Grid, Result, Row, grid_of_values, shown
from regard.rules.rule import Accepts, Rule

SHOWN, SHOWN_EXCEPTIONS = 10, 5
SMALL_STATES = 12  # up to which an automaton is part of the result
CLIP = 300  # characters of a line that is shown
RANDOM = "<random>"  # the file of lines that were drawn


class LabelledLine(Row):
    """One line with its label and where it stands."""

    tokens: tuple[str, ...] = field(metadata={"json": False})
    positive: bool
    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """file:line."""
        return f"{self.file}:{self.line}"


class Chance(Row):
    """Negatives that keep a rule, when they are random lines."""

    rate: float
    expected: float
    observed: int
    p_exactly: float
    """Probability of exactly as many."""
    p_at_least: float
    """Probability of as many or more."""

    @property
    def plausible(self) -> bool:
        """Whether random negatives would look like these."""
        return self.p_at_least > 0.05 and 1 - self.p_at_least + self.p_exactly > 0.05


class RuleHypothesis(Row, kw_only=True):
    """A rule with its evidence; `accepts(tokens)` decides."""

    rule: str
    accuracy: float
    right: int
    lines: int
    claimed: bool = False
    bits: int
    """Description length of the rule."""
    score: float
    """Bits of the rule and of the labels given the rule, less what it is rare by chance."""
    posterior: float
    p_value: float
    exceptions: list[LabelledLine]
    checker: str = ""
    """A program of ten lines that counts accepted lines of files."""
    formula: Rule = shown(json=False)
    by_chance: Chance | None = None
    states: int | None = None
    dot: str | None = None
    automaton: DFA | None = shown(json=False, default=None)

    @cached_property
    def accepts(self) -> Accepts:
        """Whether a sequence of tokens keeps the rule."""
        return self.formula.compile()


class DecidingProbe(Row):
    """A sequence that would decide, and which hypotheses, from 1, say yes and no to it."""

    sequence: list[str]
    text: str
    accepted_by: list[int]
    refused_by: list[int]
    bits: float
    """Expected bits about which of the rules is the right one."""


class BothSides(Row):
    """A sequence among the positives and the negatives, with the first place of each."""

    text: str
    positive: str
    negative: str


class Disagreement(Row):
    """A word on which an automaton and a network do not agree."""

    text: str
    network: bool


class ExtractedAutomaton(Result):
    """The automaton that stands for the network."""

    states: int
    agreement: float = shown("{:.1%}", title="fresh strings alike")
    """Share of fresh words on which both say the same; none of them was used to learn it."""
    fresh: int = shown(title="of so many")
    """How many fresh words there were."""
    queries: int = shown(title="questions asked")
    exact: bool = shown()
    """While it was learnt, no word contradicted it at the end."""
    differs: list[Disagreement] = shown(title="they differ")
    """The shortest of the fresh words on which they differ."""
    dot: str | None = shown(table=False)
    dfa: DFA = shown(json=False, table=False)


class Counterfactuals(Result):
    """Words changed in one place: does the network change its mind where the rule does?"""

    edits: int
    agreement: float | None = shown("{:.1%}", title="both change their answer, or both keep it")
    """Share of edits after which network and rule either both change or both keep their answer;
    None without a rule."""
    symbols: dict[str, float] = shown(title="how often replacing it changes the network's answer")
    """How often replacing a symbol changes the network's answer, for each symbol."""


class SymbolLink(Row):
    """How many times as much weight as an equal share of it goes from a symbol to another."""

    query: str
    key: str
    lift: float

    def __str__(self) -> str:
        return f"{self.query} → {self.key} ×{self.lift:.1f}"


class HeadUse(Row):
    """What a head does for the decision, and where it looks."""

    block: int
    head: int
    kept: float = shown("{:.0%}", title="margin left")
    """Share of the margin that is left when its output is its mean over words."""
    flips: float = shown("{:.0%}", title="answers changed")
    """Share of decisions that change then."""
    looks: list[SymbolLink] = shown(title="looks most")


class NeuralStudy(Result):
    """A Transformer of two blocks and two heads; rule: {rule}."""

    cross_validated: float = shown("{:.1%}", title="left-out lines right")
    by_seed: list[float] = shown("{:.1%}")
    majority: float = shown("{:.1%}", title="always the same answer")
    """Accuracy of always saying the more frequent label."""
    taught: bool = shown(title="then taught the best rule, no line")
    """The network that was opened was taught the rule; else it learnt from the lines alone."""
    accuracy: float = shown("{:.1%}", title="lines right")
    """Share of the lines that it has right; if taught, without having seen one."""
    agreement_with_rule: float | None = shown("{:.1%}", title="fresh strings as the rule says")
    """Share of fresh strings on which it says what the rule says; None without a rule."""
    edits: Counterfactuals = shown()
    automaton: ExtractedAutomaton = shown()
    heads: list[HeadUse] = shown(title="what is left without a head (its mean instead)")
    rule: str = shown(json=False, table=False)

    def parts(self) -> Iterator[str | Grid]:
        """Accuracies, edits, the automaton and the heads, then the automaton as DOT."""
        yield from super().parts()
        if self.automaton.dot is not None:
            yield f"\nautomaton of the network (DOT)\n{self.automaton.dot}"


class Discovery(AutomatonResult):
    """The rule behind labelled sequences: what fits, what else fits, and what would decide."""

    hypotheses: list[RuleHypothesis]
    probes: list[DecidingProbe]
    claimed: bool
    """Whether the evidence is enough to speak of a rule."""
    p_value: float
    permutation_p: float
    shuffles: int
    bound_p: float
    leave_one_out: float | None
    bits_without_rule: float
    complete: bool
    """Whether the search came to its end before the time was up."""
    rules_tried: int
    """Rules that were tried alone."""
    lines: int
    symbols: int
    in_both: list[BothSides]
    notes: list[str]
    examples: list[LabelledLine] = shown(json=False)
    """The lines themselves; where one side only was given, with random ones beside them."""
    neural: NeuralStudy | None = shown(optional=True, default=None)

    @property
    def positives(self) -> int:
        """How many positive lines were given."""
        return sum(line.positive and line.file != RANDOM for line in self.examples)

    def parts(self) -> Iterator[str | Grid]:
        """Rules with their exceptions, probes, what a reader must know, automaton and checker."""
        yield (
            f"{self.positives:,} positive and {self.lines - self.positives:,} negative lines, "
            f"{self.symbols:,} symbols; {self.rules_tried:,} rules tried alone, then two and three "
            "together, then automata"
        )
        listed = list(enumerate(self.hypotheses[:SHOWN], 1))
        if listed:
            rows = [
                (str(n), h.rule, f"{h.right}/{h.lines}", h.bits, h.score, h.posterior, h.p_value)
                for n, h in listed
            ]
            title = "rules" if self.claimed else "candidates, none of which is claimed"
            columns = ("", "rule", "right", "bits", "total", "posterior", "p")
            forms = (*[None] * 4, "{:.1f}", number, number)
            yield grid_of_values(f"{title}, best first", columns, rows, forms)
        for n, one in listed[:5]:
            for line in one.exceptions[:SHOWN_EXCEPTIONS]:
                text = line.text if len(line.text) <= CLIP else f"{line.text[: CLIP - 1]}…"
                yield f"  exception to {n}: {line.place} ({'-+'[line.positive]}): {text}"
            if len(one.exceptions) > SHOWN_EXCEPTIONS:
                more = len(one.exceptions) - SHOWN_EXCEPTIONS
                yield f"  exceptions to {n}: {more} more (--json)"
        if self.leave_one_out is not None:
            share = f"{self.leave_one_out:.1%}"
            yield f"left-out lines, each by the rule that is best without it: {share} right"
        if self.probes:
            rivals = sorted([*self.probes[0].accepted_by, *self.probes[0].refused_by])
            table = [
                (probe.text, *(n in probe.accepted_by for n in rivals)) for probe in self.probes
            ]
            title = "probes that would decide, and what each rule says"
            yield grid_of_values(title, ("", *map(str, rivals)), table)
            yield f"  answer one and rank again: --label '{self.probes[0].text} : yes'"
        yield from (f"* {note}" for note in self.notes)
        if self.hypotheses:
            best = self.hypotheses[0]
            if best.dot is not None and best.states is not None and best.states <= 8:
                yield f"\nautomaton of rule 1, {best.states} states (DOT)\n{best.dot.rstrip()}"
            yield f"\nchecker of rule 1 (--checker writes it)\n{best.checker.rstrip()}"
        if self.neural is not None:
            yield ""
            yield from self.neural.parts()

    def drawn(self) -> DFA:
        """The automaton of the best rule."""
        dfa = self.hypotheses[0].automaton if self.hypotheses else None
        if dfa is None:
            problem = "no small automaton decides the rule"
            raise DataError("drawing an automaton", problem, "one that does")
        return dfa


def number(value: float) -> str:
    """0.0123 → 0.012; very small ones as powers."""
    return f"{value:.2g}" if value >= 1e-4 or value == 0 else f"{value:.0e}"
