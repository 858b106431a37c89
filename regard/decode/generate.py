"""Generate: one token after the other until each row ends; greedy and sampling choose them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decode.step import Hypothesis, Limit, Process, Step, chain, limits_of
from regard.errors import UsageError

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""(logits (N, V), row numbers (N,), step) → tokens (N,)."""


def greedy(logits: Tensor, rows: Tensor, step: int) -> Tensor:
    """Always the likeliest token; of equals the one with the lowest id."""
    return logits.argmax(-1)


@dataclass(frozen=True)
class Ends:
    """What ends a row before the limit."""

    eos: Collection[int] = ()
    """Tokens that end it."""
    stop: Callable[[list[int]], bool] | None = None
    """A look at its tokens so far, for stop strings."""
    watch: Callable[[int, int], None] | None = None
    """Called with (row, token) as each token is chosen: streaming output."""


def generate(
    step: Step,
    start: Tensor,
    limit: Limit,
    choose: Choose = greedy,
    ends: Ends | None = None,
    processes: Sequence[Process] = (),
) -> list[Hypothesis]:
    """One hypothesis per row of `start` (B, T), of at most `limit` new tokens.

    A finished row is dropped from the batch; rows do not see each other, so this changes none.
    """
    limits = limits_of(limit, len(start))
    ends = ends or Ends()
    rows = torch.arange(len(start), device=start.device)  # the rows still going
    history = start.new_zeros(len(start), 0)
    tokens: list[list[int]] = [[] for _ in rows]
    logprob = [0.0] * len(tokens)
    finished = [False] * len(tokens)
    column = start
    for count in range(max(limits, default=0)):
        logits = step(column).float()
        shaped = chain(processes, logits, history)
        check_left(shaped, rows, bool(processes))
        chosen = choose(shaped, rows, count)
        value = logits.log_softmax(-1).gather(-1, chosen[:, None])[:, 0]
        going = []
        for n, row, token, add in zip(
            range(len(rows)), rows.tolist(), chosen.tolist(), value.tolist(), strict=True
        ):
            tokens[row].append(token)
            logprob[row] += add
            if ends.watch is not None:
                ends.watch(row, token)
            finished[row] = token in ends.eos or bool(ends.stop and ends.stop(tokens[row]))
            going += [] if finished[row] or count + 1 == limits[row] else [n]
        if not going:
            break
        history, column = torch.cat((history, chosen[:, None]), 1), chosen[:, None]
        if len(going) < len(rows):
            kept = torch.tensor(going, device=start.device)
            step.select(kept)
            rows, history, column = rows[kept], history[kept], column[kept]
    return [
        Hypothesis(words, total, total, end)
        for words, total, end in zip(tokens, logprob, finished, strict=True)
    ]


def check_left(logits: Tensor, rows: Tensor, asked: bool) -> None:
    """Constraints must leave a token to choose; without them nothing is looked at."""
    none = (logits == -torch.inf).all(-1) if asked else torch.zeros(0, dtype=torch.bool)
    if bool(none.any()):
        row = int(rows[none][0])
        fix = "loosen the constraints"
        raise UsageError("generating", f"no token is allowed next in row {row}", "one or more", fix)
