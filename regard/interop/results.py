"""What `regard.check` and `regard.export` return."""

from __future__ import annotations

from typing import Any

from regard.result import Result, Row, shown


def verdict(passed: bool) -> str:
    """A test's result in a word."""
    return "pass" if passed else "FAIL"


class Parity(Row):
    """How far our scores are from transformers', as it stands in parity.json."""

    architecture: str
    passed: bool = shown(verdict, title="result")
    max_difference: float = shown("{:.2e}", title="largest difference")
    relative: float = shown("{:.2e}")
    """max_difference over the largest score."""
    largest: float = shown("{:.2e}", title="largest score")
    """Largest score, without its sign."""
    bar: float = shown("{:.0e}", title="relative at most")
    batches: int = shown()
    seed: int = shown()
    dtype: str = shown()
    device: str = shown()
    versions: dict[str, str] = shown()
    date: str = shown()


class Property(Row):
    """One promise and how it was kept."""

    name: str = shown(title="property")
    passed: bool | None = shown(verdict, title="result")
    """None when it does not apply."""
    detail: str = shown(title="measured")


class CheckReport(Result):
    """Parity of {path} with transformers."""

    path: str
    parity: Parity | None = shown(empty="not measured")
    reason: str | None = shown(title="why not measured", optional=True, default=None)
    """Why parity was not measured."""
    properties: list[Property] | None = shown(optional=True, default=None)
    """What attention promises, where it was tested."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 where parity or a property failed."""
        failed = [p for p in self.properties or [] if p.passed is False]
        return 1 if failed or (self.parity is not None and not self.parity.passed) else 0

    def to_dict(self) -> dict[str, Any]:
        """Parity, or why there is none; properties where they were tested."""
        values = super().to_dict()
        reason = values.pop("reason", None)
        values["parity"] = values["parity"] or {"measured": False, "reason": reason}
        return {name: value for name, value in values.items() if value is not None}


class Exported(Result):
    """{folder}."""

    folder: str
    form: str
    bytes: int
