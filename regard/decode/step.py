"""Step: all that a search knows of a model, and what a search returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from regard.errors import UsageError

Process = Callable[[Tensor, Tensor], Tensor]
"""(logits (N, V), new tokens so far (N, t)) → logits; bans, penalties, constraints."""


Limit = int | Sequence[int]
"""The most new tokens: of every row, or of each."""


class Step(Protocol):
    """A model that goes on with rows of tokens. It remembers what each row has read."""

    def __call__(self, ids: Tensor) -> Tensor:
        """Read ids (N, t), the next ones of each row; logits (N, V) of the token after them."""

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows (N',) of the present ones: repeated, dropped or re-ordered.

        They come in groups of `group` that belong to one source: the beams of a sentence.
        """


class Listener(Protocol):
    """Somebody who follows a search: what the model reads, and which rows go on."""

    def before(self, ids: Tensor, real: Tensor | None) -> None:
        """The model is about to read ids (N, t), tokens where `real` is True or None."""

    def after(self) -> None:
        """The model has read them."""

    def select(self, rows: Tensor) -> None:
        """The search goes on with these rows of the present ones."""


@dataclass(frozen=True)
class Hypothesis:
    """One answer of a search."""

    tokens: list[int]
    """New tokens, the end token included where there is one."""
    logprob: float
    """Sum of the natural-log probabilities of `tokens`."""
    score: float
    """What the search ranks by: logprob over the length penalty."""
    finished: bool
    """Whether it ended by itself, not by the limit on length."""


def chain(processes: Sequence[Process], logits: Tensor, history: Tensor) -> Tensor:
    """Apply processes one after the other."""
    for process in processes:
        logits = process(logits, history)
    return logits


def limits_of(limit: Limit, rows: int) -> list[int]:
    """One limit per row, each 1 or more."""
    limits = [limit] * rows if isinstance(limit, int) else list(limit)
    if any(n < 1 for n in limits) or (isinstance(limit, int) and limit < 1):
        least = min(limits, default=limit)
        raise UsageError("decoding", f"at most {least} new tokens", "1 or more")
    return limits
