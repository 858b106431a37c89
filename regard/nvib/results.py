"""What `regard.nvib` returns. No torch here."""

from __future__ import annotations

from regard.result import Result


class Attached(Result):
    """Bottlenecks of a model."""

    attentions: list[str]
    """Those that have one now, by name."""
    skipped: dict[str, str]
    """Those that were left as they are, and why."""
