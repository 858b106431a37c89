"""What `regard.data.check` returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.errors import DataError
from regard.result import Grid, Result, Row, grid_of_names, grid_of_values, human, shown

BAR_WIDTH = 40  # characters of the longest bar
LABELS_SHOWN = 12
DISFLUENT = ("fillers", "restarts")
SPOKEN_SHARE = 0.02  # of the lines with either, from which a text is taken for speech
UNITS = {"pairs": "pairs", "conll": "sentences", "text": "lines"}


class Finding(Row):
    """How many lines are odd in one way, and the first of them."""

    count: int
    lines: list[int]


class MarkedLine(Row):
    """A line with fillers in braces and restarts in brackets."""

    line: int
    text: str


class Overlap(Row):
    """Test lines that stand in the training data."""

    found: int
    total: int
    """Test lines that were looked for: not empty, long enough."""
    lines: tuple[int, ...]
    """Numbers of the first of them, from 1."""

    @property
    def share(self) -> float:
        """Found of total."""
        return self.found / self.total if self.total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields, and the share."""
        return super().to_dict() | {"share": self.share}


class FileReport(Result):
    """{path} ({kind})."""

    path: str
    kind: str
    count: int
    """Lines, pairs, rows or sentences."""
    findings: dict[str, Finding]
    words: dict[str, dict[str, int]]
    """For each side, how many have so many words, in bands of doubling width."""
    labels: dict[str, int]
    speech: list[MarkedLine]
    """The first lines with fillers or restarts."""

    def parts(self) -> Iterator[str | Grid]:
        """Findings, fillers and restarts, lengths and labels."""
        unit = UNITS.get(self.kind, "rows")
        found = {n: share_at(f.count, self.count, f.lines) for n, f in self.findings.items()}
        rows = {unit: f"{self.count:,}"} | (found or {"findings": "none"})
        yield grid_of_names(self.title(), rows)
        most = max((self.findings[n].count for n in DISFLUENT if n in self.findings), default=0)
        if most >= SPOKEN_SHARE * self.count:
            yield "  fillers in {braces}, restarts in [brackets]"
            yield from (f"    line {each.line:,}: {each.text}" for each in self.speech)
        for side, lengths in self.words.items():
            places = [n for n in range(64) if band_name(n) in lengths]
            names = [band_name(n) for n in range(min(places), max(places) + 1)]
            title = f"words of each {unit.removesuffix('s') if side == 'all' else side}"
            yield bars(title, {name: lengths.get(name, 0) for name in names})
        if self.labels:
            yield bars("labels", dict(list(self.labels.items())[:LABELS_SHOWN]))
        if len(self.labels) > LABELS_SHOWN:
            yield f"  … {len(self.labels) - LABELS_SHOWN} more"
        yield ""


class CorpusReport(Result):
    """What data files hold and what is odd about them."""

    files: list[FileReport]
    overlap: dict[str, Overlap]
    """What of each test file stands in the others, by line, or by source, target and pair."""
    errors: list[str] = shown(table=False)
    """Why files could not be read to their end."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """That of bad data where a file is broken."""
        return DataError.exit_code if self.errors else 0

    def parts(self) -> Iterator[str | Grid]:
        """File by file, then the overlap."""
        for file in self.files:
            yield from file.parts()
        found = {n: share_at(o.found, o.total, o.lines) for n, o in self.overlap.items()}
        if found:
            yield grid_of_names("test data found in the other files", found)


def share_at(count: int, total: int, lines: Sequence[int]) -> str:
    """'3 of 100 (3.0%; line 4, 28, 1,005)'."""
    where = f"; line {human(lines)}" if lines else ""
    return f"{count:,} of {total:,} ({count / max(total, 1):.1%}{where})"


def band_name(n: int) -> str:
    """Band 4 holds lengths of four bits: '8–15'."""
    low, high = 2 ** max(n - 1, 0), 2**n - 1
    return "0" if n == 0 else f"{low}" if low == high else f"{low}–{high}"


def bars(title: str, counts: Mapping[str, int]) -> Grid:
    """Counts as a bar chart."""
    most = max(counts.values())
    rows = ((name, n, "█" * round(BAR_WIDTH * n / most)) for name, n in counts.items())
    return grid_of_values(title, ("", "", ""), rows)
