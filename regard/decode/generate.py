"""Generate: one token after the other until each row ends; greedy and sampling choose them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from regard.decode.pace import Pace, drive
from regard.decode.step import Hypothesis, Limit, Listener, Process, Step, chain, limits_of
from regard.decode.top import Scored
from regard.errors import UsageError

Choose = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits (N, V), row numbers (N,), step ()) → tokens (N,)."""


def greedy(logits: Tensor, rows: Tensor, step: int | Tensor) -> Tensor:
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
    listener: Listener | None = None
    """Follows the model's steps; then they are taken one by one."""


@dataclass(frozen=True)
class Rows:
    """Rows that are being written."""

    number: Tensor  # (A,) of the row in its batch
    limit: Tensor  # (A,) tokens at most
    ends: Tensor  # (E,) tokens that end a row
    column: Tensor  # (A, t) read next
    tokens: Tensor  # (A, most) chosen so far; what follows `length` does not count
    length: Tensor  # (A,)
    logprob: Tensor  # (A,) in float64: a sum of many
    finished: Tensor  # (A,)
    count: Tensor  # () steps taken
    parent: Tensor | None = None  # (A,) rows to go on with, after others have left

    @property
    def over(self) -> Tensor:
        """Rows that ended or are full."""
        return self.finished | (self.length >= self.limit)

    def rows(self, kept: Tensor) -> Rows:
        """Only these rows."""
        parts = (self.number, self.limit, self.column, self.tokens, self.length)
        number, limit, column, tokens, length = (part[kept] for part in parts)
        logprob, finished = self.logprob[kept], self.finished[kept]
        return Rows(
            number, limit, self.ends, column, tokens, length, logprob, finished, self.count, kept
        )

    def settle(self) -> Rows:
        """The same when the model's rows are these."""
        return replace(self, parent=None)


def begin(
    start: Tensor, limits: Sequence[int], eos: Collection[int], columns: int, first: int = 0
) -> Rows:
    """Nothing written yet after `start` (A, t); rows are numbered from `first`."""
    rows, device = len(start), start.device
    return Rows(
        torch.arange(rows, device=device) + first,
        torch.tensor(limits, dtype=torch.long, device=device),
        torch.tensor(sorted(set(eos)), dtype=torch.long, device=device),
        start,
        start.new_zeros(rows, columns),
        start.new_zeros(rows),
        torch.zeros(rows, dtype=torch.float64, device=device),
        torch.zeros(rows, dtype=torch.bool, device=device),
        start.new_zeros(()),
    )


def advance_rows(
    rows: Rows, logits: Tensor, choose: Choose, processes: Sequence[Process] = ()
) -> Rows:
    """One token more for each row that is not over; log-probabilities are the model's own."""
    shaped = logits
    if processes:
        shaped = chain(processes, logits.float(), rows.tokens[:, : int(rows.count)])
        check_left(shaped, rows.number)
    scored = Scored(logits)
    if choose is greedy and not processes:
        chosen = scored.best()[:, None]  # (A, 1)
    else:
        chosen = choose(shaped, rows.number, rows.count)[:, None]
    value = scored.logprob(chosen)[:, 0]
    going = ~rows.over
    return replace(
        rows,
        column=chosen,
        tokens=rows.tokens.index_copy(1, rows.count[None], chosen),
        length=rows.length + going,
        logprob=rows.logprob + value.masked_fill(~going, 0.0),
        finished=rows.finished | (going & (chosen == rows.ends).any(-1)),
        count=rows.count + 1,
        parent=None,
    )


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
    advance = partial(advance_rows, choose=choose, processes=processes)
    return generate_at(Pace(step), start, limit, advance, ends)


def generate_at(
    pace: Pace,
    start: Tensor,
    limit: Limit,
    advance: Callable[[Rows, Tensor], Rows],
    ends: Ends | None = None,
    first: int = 0,
) -> list[Hypothesis]:
    """The same at a pace of choice; `first` is the number of the first row."""
    limits, ends = limits_of(limit, len(start)), ends or Ends()
    most = max(limits, default=0)
    found: list[Hypothesis | None] = [None] * len(start)
    heard: list[list[int]] = [[] for _ in found]

    def leave(rows: Rows, over: list[int]) -> None:
        for row, hypothesis in read(rows, over):
            found[row - first] = hypothesis

    def look(rows: Rows) -> None:
        tell(rows, ends, heard, first)

    state = begin(pace.begin(start), limits, ends.eos, pace.columns(most), first)
    listening = ends.watch is not None or ends.stop is not None
    drive(pace, state, advance, most, leave, look if listening else None)
    return [hypothesis for hypothesis in found if hypothesis is not None]


def tell(rows: Rows, ends: Ends, heard: list[list[int]], first: int) -> None:
    """Tell the listeners of each row's new token, and end the rows that a stop string ends."""
    fresh = (rows.length == rows.count).tolist()  # the others were over before
    stopped = [False] * len(fresh)
    words = zip(rows.number.tolist(), rows.column[:, -1].tolist(), strict=True)
    for n, (number, token) in enumerate(words):
        if fresh[n]:
            row = number - first
            heard[row].append(token)
            if ends.watch is not None:
                ends.watch(row, token)
            stopped[n] = ends.stop is not None and ends.stop(heard[row])
    rows.finished.logical_or_(torch.tensor(stopped, device=rows.finished.device))


def read(rows: Rows, over: list[int]) -> list[tuple[int, Hypothesis]]:
    """Rows as hypotheses, each with its number."""
    kept = torch.tensor(over, device=rows.number.device)
    parts = (rows.number, rows.tokens, rows.length, rows.logprob, rows.finished)
    return [
        (number, Hypothesis(tokens[:length], logprob, logprob, finished))
        for number, tokens, length, logprob, finished in zip(
            *(part[kept].tolist() for part in parts), strict=True
        )
    ]


def check_left(logits: Tensor, rows: Tensor) -> None:
    """Constraints must leave a token to choose."""
    none = (logits == -torch.inf).all(-1)
    if bool(none.any()):
        row = int(rows[none][0])
        fix = "loosen the constraints"
        raise UsageError("generating", f"no token is allowed next in row {row}", "one or more", fix)
