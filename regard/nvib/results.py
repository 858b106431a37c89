"""What `regard.nvib` returns. No torch here."""

from __future__ import annotations

from regard.result import Result, Row


class Skipped(Row):
    """An attention that was left as it is."""

    attention: str
    why: str


class Attached(Result):
    """Bottlenecks of a model."""

    attentions: list[str]
    """Those that have one now, by name."""
    skipped: list[Skipped]
