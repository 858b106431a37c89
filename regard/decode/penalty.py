"""Length penalties: what a log-probability is divided by; a length counts the end token."""

from __future__ import annotations

from collections.abc import Callable

from regard.errors import UsageError

Penalty = Callable[[int], float]


def length_penalty(kind: str = "gnmt", alpha: float = 0.6) -> Penalty:
    """none: 1; length: n^α; gnmt: ((5 + n) / 6)^α (Wu 2016, eq. 14), with α ≥ 0."""
    if not alpha >= 0:
        raise UsageError("beam search", f"alpha = {alpha}", "0 or more")
    kinds: dict[str, Penalty] = {
        "none": lambda n: 1.0,
        "length": lambda n: float(n) ** alpha,
        "gnmt": lambda n: ((5 + n) / 6) ** alpha,
    }
    if kind not in kinds:
        raise UsageError("beam search", f"length penalty {kind!r}", ", ".join(kinds))
    return kinds[kind]
