"""What `regard.check` and `regard.export` return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.result import Grid, Result, Row, shown


@dataclass(frozen=True)
class Parity(Row):
    """How far our scores are from transformers', as it stands in parity.json."""

    architecture: str
    passed: bool
    max_difference: float
    relative: float
    """max_difference over the largest score."""
    largest: float
    """Largest score, without its sign."""
    bar: float
    batches: int
    seed: int
    dtype: str
    device: str
    versions: dict[str, str]
    date: str


@dataclass(frozen=True)
class Property(Row):
    """One promise and how it was kept."""

    name: str = shown(title="property")
    passed: bool | None = shown()
    """None when it does not apply."""
    detail: str = shown(title="measured")


@dataclass(frozen=True)
class CheckReport(Result):
    """Parity of {path} with transformers."""

    path: str
    parity: Parity | None
    reason: str | None = None
    """Why parity was not measured."""
    properties: list[Property] | None = None
    """What attention promises, where it was tested."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 where parity or a property failed."""
        failed = [p for p in self.properties or [] if p.passed is False]
        return 1 if failed or (self.parity is not None and not self.parity.passed) else 0

    def to_dict(self) -> dict[str, Any]:
        """Parity, or why there is none; properties where they were tested."""
        values = super().to_dict()
        reason = values.pop("reason")
        values["parity"] = values["parity"] or {"measured": False, "reason": reason}
        return {name: value for name, value in values.items() if value is not None}

    def parts(self) -> Iterator[str | Grid]:
        """The figures of parity, then the properties."""
        parity = self.parity
        if parity is None:
            yield f"parity with transformers: not measured ({self.reason})"
        else:
            figures = {
                "result": "pass" if parity.passed else "FAIL",
                "architecture": parity.architecture,
                "largest difference": f"{parity.max_difference:.2e}",
                "largest score": f"{parity.largest:.2e}",
                "relative": f"{parity.relative:.2e} (at most {parity.bar:.0e})",
                "compared": f"{parity.batches} random batches, {parity.dtype}, {parity.device}",
                "versions": ", ".join(f"{name} {n}" for name, n in parity.versions.items()),
            }
            yield Grid(self.title(), ("", ""), list(figures.items()), left=2)
        if self.properties:
            words = {True: "pass", False: "FAIL", None: "skip"}
            rows = [(p.name, words[p.passed], p.detail) for p in self.properties]
            yield Grid("properties", ("property", "result", "measured"), rows, left=3)


@dataclass(frozen=True)
class Exported(Result):
    """{folder}."""

    folder: str
    form: str
    bytes: int
