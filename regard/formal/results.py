"""What the verbs of `regard.formal` return."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from regard.formal.dfa import DFA
from regard.formal.state_diagram import AutomatonResult
from regard.result import DASH, Grid, Result, Row, grid_of, human, shown

NEAR = 100  # lengths up to here are told apart from the rest


class DrawnWords(Result):
    """Words of {language}, and words that are not in it."""

    language: str
    kind: str
    seed: int
    members: list[str]
    others: list[str]

    def parts(self) -> Iterator[str | Grid]:
        """Members, an empty line, non-members."""
        yield from [*self.members, *([""] if self.others else []), *self.others]


class TestedLine(Row):
    """A line, and whether it is in a language."""

    text: str = shown("{:.60}")
    member: bool = shown()
    line: int = shown()


class Membership(Result):
    """Which lines are in {language}."""

    language: str
    kind: str
    members: int
    others: int
    blank: int
    """Lines that were left out; ε stands for the empty word."""
    lines: list[TestedLine]
    top: int = shown(json=False, default=40)

    def parts(self) -> Iterator[str | Grid]:
        """A row for each of the first lines."""
        title = f"{self.language}: {self.members:,} of {len(self.lines):,} lines are members"
        yield grid_of(title, self.lines[: self.top]) if self.top else title
        if len(self.lines) > self.top:
            yield f"{len(self.lines) - self.top:,} more lines are counted, not shown (--top)"
        if self.blank:
            yield f"{self.blank:,} blank lines are left out; ε stands for the empty word"


class Automaton(AutomatonResult):
    """The smallest automaton of {language}."""

    language: str
    states: int
    dead: int
    """States from which nothing is accepted: none or one."""
    dot: str
    dfa: DFA = shown(json=False)

    def parts(self) -> Iterator[str | Grid]:
        """The DOT text, then its size."""
        yield self.dot.rstrip()
        yield f"{self.states} states{' (one is dead)' if self.dead else ''}"

    def drawn(self) -> DFA:
        """The automaton."""
        return self.dfa


class LanguageRow(Row):
    """A language that has a name."""

    name: str
    kind: str
    summary: str = shown(title=" ")
    alphabet: list[str] = shown(table=False)
    example: str = shown(json=False, title="such as")


class TaskRow(Row):
    """A task of length generalisation, with the best published accuracy of each model."""

    name: str
    level: str
    chance: float = shown("{:.0%}")
    published: dict[str, float]


class Languages(Result):
    """Languages and tasks by their names."""

    languages: list[LanguageRow] = shown(title="languages (dyck-K too)")
    tasks: list[TaskRow] = shown(title="tasks, with the published best at lengths 41 to 500 (%)")


class LengthRun(Row):
    """One training on short sequences, and its accuracy on longer ones."""

    task: str
    model: str
    seed: int
    steps: int
    lr: float
    loss: float
    short: float
    """Share of right symbols at the longest length of training."""
    near: float | None
    """Mean over longer lengths up to 100; None where none was tested."""
    far: float
    """Mean over all longer lengths."""
    chance: float
    published: float | None
    """The study's best, in per cent."""
    lengths: dict[int, float]


class LengthRuns(Result):
    """Trained on short sequences, tested on long ones."""

    runs: list[LengthRun]

    def parts(self) -> Iterator[str | Grid]:
        """Best and mean of the seeds, beside the study's figures."""
        first = self.runs[0]
        short, end = min(first.lengths), max(first.lengths)
        groups: dict[tuple[str, str], list[LengthRun]] = {}
        for run in self.runs:
            groups.setdefault((run.task, run.model), []).append(run)
        rows = []
        for names, runs in groups.items():
            shares = zip(*((run.short, run.near, run.far) for run in runs), strict=True)
            known = human(runs[0].published, "{:.1f}"), f"{100 * runs[0].chance:.0f}"
            rows.append((*names, *map(percent, shares), *known))
        seeds = len({run.seed for run in self.runs})
        title = (
            f"per cent of right symbols, trained to length {short}, {first.steps:,} steps, "
            f"{seeds} seed{'s' if seeds > 1 else ''}, best (mean)"
        )
        near = f"{short + 1}–{min(NEAR, end)}"
        columns = ("task", "model", str(short), near, f"{short + 1}–{end}", "published", "chance")
        yield Grid(title, columns, rows, left=range(2))
        yield "published: Delétang et al. 2023, lengths 41 to 500, best of ten seeds and more steps"


def percent(values: Iterable[float | None]) -> str:
    """The best, and the mean where there are several."""
    listed = [100 * value for value in values if value is not None]
    if not listed:
        return DASH
    more = f" ({statistics.mean(listed):.1f})" if len(listed) > 1 else ""
    return f"{max(listed):.1f}{more}"
