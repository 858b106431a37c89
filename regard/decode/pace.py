"""Pace: how a search takes its steps, and the loop that all searches share.

A search is a function `advance(state, logits) → state` on tensors. The pace reads the next column
with the model and calls it; the loop looks at the host now and then and lets those leave that are
over. A row or source that is over does not change any more, so a late look changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from regard.decode.step import Step


class State(Protocol):
    """Where a search is; frozen, all tensors."""

    @property
    def column(self) -> Tensor:
        """Ids (N, t) that the model reads next; the same number of rows for each source."""

    @property
    def parent(self) -> Tensor | None:
        """Rows of the model to go on with, (A, …) by source; None is all as they are."""

    @property
    def over(self) -> Tensor:
        """Sources (A,) that need no more steps."""

    def rows(self, kept: Tensor) -> Self:
        """Only these sources."""

    def settle(self) -> Self:
        """The same when the model's rows have gone on as `parent` says."""


S = TypeVar("S", bound=State)
Advance = Callable[[S, Tensor], S]


class Pace:
    """One step after the other, with a look after each; what is over leaves at once."""

    every = 1  # steps between looks

    def __init__(self, step: Step) -> None:
        self.step = step
        self.read = 0  # rows that the model has read

    def columns(self, most: int) -> int:
        """Room for new tokens in a state."""
        return most

    def begin(self, start: Tensor) -> Tensor:
        """The column that is read first, of what a search is given (A, T)."""
        return start

    def turn(self, state: S, advance: Advance[S]) -> S:
        """One step."""
        if self.read and state.parent is not None:
            rows = state.parent.flatten()
            # Often all stay in place, as in a beam of one; to ask costs a CPU nothing.
            if rows.device.type != "cpu" or rows.tolist() != list(range(self.read)):
                self.step.select(rows, state.parent[0].numel())
        self.read = len(state.column)
        return advance(state, self.step(state.column))

    def keep(self, over: Sequence[bool]) -> list[int] | None:
        """Which sources stay; None when all do."""
        return [n for n, done in enumerate(over) if not done] if any(over) else None


def drive(
    pace: Pace,
    state: S,
    advance: Advance[S],
    steps: int,
    leave: Callable[[S, list[int]], None],
    look: Callable[[S], None] | None = None,
) -> None:
    """Take at most `steps` steps; `leave` is told of sources whose answers are ready.

    `look` is called after each step, when somebody wants to see each token.
    """
    every = 1 if look is not None else pace.every
    taken = 0
    while taken < steps:
        count = min(every, steps - taken)
        for _ in range(count):
            state = pace.turn(state, advance)
        taken += count
        if look is not None:
            look(state)
        over = state.over.tolist()
        kept = [] if all(over) else pace.keep(over)
        if kept is None:
            continue
        staying = set(kept)
        leave(state, [n for n in range(len(over)) if n not in staying])
        if not kept:
            return
        state = state.rows(torch.tensor(kept, device=state.over.device))
