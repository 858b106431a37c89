"""Sampling: one token after the other, the likeliest or one that is drawn, until each row ends.

What reshapes scores takes and returns logits (B, V); what it cuts gets −inf, so that any chain of
cuts stays a distribution. Order as usual: penalties, temperature, then the cuts. Equal scores are
ordered by id, lowest first. Draws are counter-based: they depend on seed, row and step, on nothing
else, so a row's sample does not change with its neighbours, the batch, the device or the order of
work, and a resumed search draws the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.decode.ranking import Scored
from regard.decode.step import Hypothesis, Process, apply_processes
from regard.errors import UsageError, check_names


@dataclass(frozen=True)
class SampleConfig:
    """How to draw."""

    temperature: float = 1.0
    """Below 1 sharper, above 1 flatter; 0 is greedy, inf uniform over what is left."""
    top_k: int | None = None
    """Draw from this many likeliest tokens."""
    top_p: float | None = None
    """Draw from the smallest set of likeliest tokens that reaches this probability."""
    min_p: float | None = None
    """Draw from tokens at least this share as likely as the best."""
    typical: float | None = None
    """Draw from tokens of typical surprise that reach this probability."""
    repetition: float = 1.0
    """Divide the score of tokens that occurred already by this."""
    frequency: float = 0.0
    """Subtract this from a token's score for each time it occurred."""
    presence: float = 0.0
    """Subtract this from a token's score if it occurred."""
    seed: int = 0
    """The same seed draws the same tokens, whatever else is in the batch."""
    first: int = 0
    """Number of the batch's first row; a row's draws belong to its number."""

    def __post_init__(self) -> None:
        share = "more than 0 and at most 1"
        for name, holds, expected in (
            ("seed", -(2**63) <= self.seed < 2**63, "a whole number of 64 bits"),
            ("temperature", self.temperature >= 0, "0 or more"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, share),
            ("min_p", self.min_p is None or 0 <= self.min_p <= 1, "0 to 1"),
            ("typical", self.typical is None or 0 < self.typical <= 1, share),
            ("repetition", self.repetition > 0, "more than 0"),
        ):
            if not holds:
                raise UsageError("sampling", f"{name} = {getattr(self, name)}", expected)


def sample_config(values: dict[str, Any]) -> SampleConfig:
    """A SampleConfig from its fields by name; an unknown one fails with the nearest."""
    check_names(values, SampleConfig.__dataclass_fields__, "sampling", "a field of SampleConfig")
    return SampleConfig(**values)


# Choosing a token -------------------------------------------------------------------------------


def reshape(logits: Tensor, c: SampleConfig) -> Tensor:
    """Temperature first, then the cuts; the renormalised probabilities are its softmax."""
    if c.temperature == float("inf"):
        logits = torch.where(logits == -torch.inf, logits, 0.0)
    elif c.temperature > 0:
        below = (logits - logits.amax(-1, keepdim=True)).double()  # a small T overflows no top
        logits = (below / c.temperature).to(logits)
    count = 1 if c.temperature == 0 else c.top_k
    if count is not None:
        order = logits.argsort(dim=-1, descending=True, stable=True)
        logits = keep(logits, order, torch.arange(logits.shape[-1], device=logits.device) < count)
    if c.top_p is not None:  # the smallest set that reaches this probability (Holtzman 2020)
        order = logits.argsort(dim=-1, descending=True, stable=True)
        logits = keep(logits, order, within(logits.softmax(-1).gather(-1, order), c.top_p))
    if c.min_p is not None:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < c.min_p * p.amax(-1, keepdim=True), -torch.inf)
    if c.typical is not None:  # those whose surprise is nearest to the entropy (Meister 2023)
        log = logits.log_softmax(-1)
        p = log.exp()
        entropy = -(p * log.masked_fill(p == 0, 0)).sum(-1, keepdim=True)
        order = (-log - entropy).abs().argsort(dim=-1, stable=True)
        logits = keep(logits, order, within(p.gather(-1, order), c.typical))
    return logits


def within(p: Tensor, mass: float) -> Tensor:
    """Tokens in their order up to and including the one that reaches `mass`; at least one."""
    before = p.double().cumsum(-1) - p
    inside = (before < mass) | (mass == 1)  # all of it, whatever rounding makes of the sum
    inside[..., 0] = True
    return inside


def keep(logits: Tensor, order: Tensor, inside: Tensor) -> Tensor:
    """Cut what is not `inside`, which speaks of tokens in the order `order`."""
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, inside.expand_as(order))
    return logits.masked_fill(~kept, -torch.inf)


def penalise(logits: Tensor, history: Tensor, c: SampleConfig) -> Tensor:
    """Make tokens of the history (B, t) less likely, whatever their sign (Keskar 2019)."""
    count = torch.zeros_like(logits)
    count = count.scatter_add(-1, history, torch.ones_like(history, dtype=logits.dtype))
    less = torch.where(logits > 0, logits / c.repetition, logits * c.repetition)
    return torch.where(count > 0, less - c.frequency * count - c.presence, logits)


# Random numbers ---------------------------------------------------------------------------------

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number


def mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64 (Steele 2014); multiplication wraps around."""
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        x = (x ^ logical_shift(x, shift)) * factor
    return x ^ logical_shift(x, 31)


def logical_shift(x: Tensor, count: int) -> Tensor:
    """Shift right and fill with zeros; torch's own keeps the sign."""
    return (x >> count) & ((1 << (64 - count)) - 1)


def uniform(seed: int, rows: Tensor, step: int | Tensor) -> Tensor:
    """One float64 in [0, 1) per row number (B,); seed and row number count as one, their sum."""
    key = mix((rows.to(torch.int64) + 1 + seed) * GOLDEN)  # wraps around, as do all below
    count = (torch.as_tensor(step, dtype=torch.int64) + 1) * GOLDEN
    bits = logical_shift(mix(key + count), 11)  # 53 bits
    return bits.double() * 2.0**-53


def draw(logits: Tensor, number: Tensor) -> Tensor:
    """The token that a uniform number (B,) falls on, tokens laid out in the order of their ids."""
    p = logits.double().softmax(-1)
    edges = p.cumsum(-1)
    total = edges[..., -1:]
    chosen = torch.searchsorted(edges, (number.to(p.device)[:, None] * total), right=True)[:, 0]
    last = p.shape[-1] - 1 - (p.flip(-1) > 0).int().argmax(-1)  # never a token of probability 0
    return torch.minimum(chosen, last)


# The search -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ends:
    """What ends a row before the limit."""

    eos: Collection[int] = ()
    """Tokens that end it."""
    stop: Callable[[list[int]], bool] | None = None
    """A look at its tokens so far, for stop strings."""
    watch: Callable[[int, int], None] | None = None
    """Called with (row, token) as each token is chosen: streaming output."""


class Rows(NamedTuple):
    """Rows that are being written."""

    number: Tensor  # (A,) of the row in its batch
    limit: Tensor  # (A,) tokens at most
    ends: Tensor  # (E,) tokens that end a row
    column: Tensor  # (A, t) read next
    tokens: Tensor  # (A, most) chosen so far; what follows `length` does not count
    length: Tensor  # (A,)
    logprob: Tensor  # (A,) in float64: a sum of many
    logprobs: Tensor  # (A, most) of each token
    finished: Tensor  # (A,)
    taken: Tensor  # () steps
    parent: Tensor | None = None  # (A,) rows to go on with, after others have left

    @property
    def over(self) -> Tensor:
        """Rows that ended or are full."""
        return self.finished | (self.length >= self.limit)

    def rows(self, kept: Tensor) -> Rows:
        """Only these rows."""
        names = ("number", "limit", "column", "tokens", "length", "logprob", "logprobs", "finished")
        return self._replace(parent=kept, **{n: getattr(self, n)[kept] for n in names})


class Sampling:
    """A search that writes one token after the other in each row: drawn, or greedy without config.

    A row has one hypothesis, whose log-probability is the model's own. A finished row leaves the
    batch; rows do not see each other, so this changes none.
    """

    width = 1

    def __init__(
        self,
        config: SampleConfig | None = None,
        ends: Ends | None = None,
        processes: Sequence[Process] = (),
    ) -> None:
        self.ends = ends or Ends()
        self.processes, self.first, self.config = [*processes], 0, config
        if config is not None:  # a seed counts as so many rows more
            if config.repetition != 1 or config.frequency or config.presence:
                self.processes.append(partial(penalise, c=config))
            self.first = (config.seed + config.first + 2**63) % 2**64 - 2**63
            self.config = replace(config, seed=0, first=0)
        key = (len(set(self.ends.eos)), self.config)
        self.key: Hashable | None = None if self.processes else key
        watched = self.ends.watch is not None or self.ends.stop is not None
        self.watch = self.tell if watched else None

    def begin(self, column: Tensor, limits: Sequence[int], columns: int) -> Rows:
        """Nothing written yet before `column` (A, t) is read."""
        rows, device = len(column), column.device
        self.written: list[list[int]] = [[] for _ in limits]
        return Rows(
            torch.arange(rows, device=device) + self.first,
            torch.tensor(limits, dtype=torch.long, device=device),
            torch.tensor(sorted(set(self.ends.eos)), dtype=torch.long, device=device),
            column,
            column.new_zeros(rows, columns),
            column.new_zeros(rows),
            torch.zeros(rows, dtype=torch.float64, device=device),
            torch.zeros(rows, columns, device=device),
            torch.zeros(rows, dtype=torch.bool, device=device),
            column.new_zeros(()),
        )

    def advance(self, rows: Rows, logits: Tensor) -> Rows:
        """One token more for each row that is not over."""
        shaped = logits
        if self.processes:
            history = rows.tokens[:, : int(rows.taken)]
            shaped = apply_processes(self.processes, logits.float(), history)
            none = (shaped == -torch.inf).all(-1)
            if bool(none.any()):
                row = int((rows.number - self.first)[none][0])
                wrong = f"no token is allowed next in row {row}"
                raise UsageError("generating", wrong, "one or more", "loosen the constraints")
        scored = Scored(logits)
        if self.config is not None and self.config.temperature > 0:
            shaped = reshape(shaped.float(), self.config)
            chosen = draw(shaped, uniform(0, rows.number, rows.taken))
        else:  # of equals the lowest id
            chosen = shaped.argmax(-1) if self.processes else scored.best()
        chosen = chosen[:, None]  # (A, 1)
        value = scored.logprob(chosen)[:, 0]
        going = ~rows.over
        return rows._replace(
            column=chosen,
            tokens=rows.tokens.index_copy(1, rows.taken[None], chosen),
            length=rows.length + going,
            logprob=rows.logprob + value.masked_fill(~going, 0.0),
            logprobs=rows.logprobs.index_copy(1, rows.taken[None], value[:, None]),
            finished=rows.finished | (going & (chosen == rows.ends).any(-1)),
            taken=rows.taken + 1,
            parent=None,
        )

    def tell(self, rows: Rows) -> None:
        """Tell of each row's new token, and end the rows that a stop string ends."""
        fresh = (rows.length == rows.taken).tolist()  # the others were over before
        stopped = [False] * len(fresh)
        new = zip((rows.number - self.first).tolist(), rows.column[:, -1].tolist(), strict=True)
        for n, (row, token) in enumerate(new):
            if fresh[n]:
                self.written[row].append(token)
                if self.ends.watch is not None:
                    self.ends.watch(row, token)
                stopped[n] = self.ends.stop is not None and self.ends.stop(self.written[row])
        rows.finished.logical_or_(torch.tensor(stopped, device=rows.finished.device))

    def read(self, rows: Rows, over: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """Rows that are over as hypotheses, each with its number."""
        kept = torch.tensor(over, device=rows.number.device)
        own = (rows.tokens, rows.logprobs, rows.length, rows.logprob, rows.finished)
        parts = (part[kept].tolist() for part in (rows.number - self.first, *own))
        return [
            (number, [Hypothesis(tokens[:length], logprob, logprob, finished, each[:length])])
            for number, tokens, each, length, logprob, finished in zip(*parts, strict=True)
        ]
