"""Step: a model as a search sees it, ids in and next-token scores out; what a search returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.core.cache import Cache
from regard.decode.shortlist import Shortlist, ShortlistHead
from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.fronts import TextFront
from regard.model.model import Memory, Model
from regard.model.strict import StrictCache, strict_logits

SOURCE_TOKENS = 400  # that are read together on a CPU

Process = Callable[[Tensor, Tensor], Tensor]
"""(logits (N, V), new tokens so far (N, t)) → logits; bans, penalties, constraints."""
Limit = int | Sequence[int]
"""The most new tokens: of every row, or of each."""


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
    logprobs: list[float] = field(default_factory=list)
    """Of each token, where the search notes them."""
    memory: Tensor | None = field(default=None, compare=False, repr=False)
    """What the encoder made of the source (source tokens, D), from a search in one call of C."""
    attention: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """To the source at each token (tokens, source tokens), the mean over the heads of one block,
    where it was asked for and the search is one call of C."""


class ModelStep:
    """A model that goes on with the rows of a batch; an encoder reads its source once.

    The batch's `ids` are the start that a search is given; `room` is how many tokens may follow.
    `memory` is what its encoder made of the sources, where they were read before, `cache` what was
    read before the start. With a shortlist, ids but the start's are places in a row's own list, and
    only the listed words are scored.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        room: int,
        strict: bool = False,
        shortlist: Shortlist | None = None,
        memory: Memory | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.model, self.begin, self.memory = model, batch, memory
        rows, width = batch.ids.shape[0], batch.ids.shape[1]
        self.cache: Cache | StrictCache
        if cache is None and strict:
            self.cache = StrictCache(model, rows, width + room)
        else:
            self.cache = model.cache(rows, width + room) if cache is None else cache
        self.started = False
        self.words = None if shortlist is None else ShortlistHead(model.head, batch, shortlist)

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        """Read ids (N, t), the next ones of each row; logits (N, V) of the token after them."""
        model, cache = self.model, self.cache
        if not self.started:
            batch = replace(self.begin)
        else:
            ids = ids if self.words is None else self.words.ids(ids)
            batch = Batch(ids) if self.begin.target is None else Batch(ids, ids)
        first, self.started = not self.started, True
        if isinstance(cache, StrictCache):
            return take_last(strict_logits(model, batch, cache), batch.mask)
        if first and self.memory is not None:
            cache.source = self.memory
        elif first and cache.source is None and len(batch.inputs) > 1:
            cache.source = read_sources(model, batch)
        x = take_last(model.hidden(batch, cache), batch.mask)
        return model.score(x[:, None])[:, 0] if self.words is None else self.words.score(x)

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows (N',) of the present ones: repeated, dropped or re-ordered.

        They come in groups of `group` that belong to one source: the beams of a sentence.
        """
        self.cache.select(rows, group)
        if self.words is not None:
            self.words.select(rows)


def read_sources(model: Model, batch: Batch) -> Memory | None:
    """What `Model.encode` makes of sources, those of like length together and a few at a time.

    So little padding is computed, and a core's own cache holds the activations. None where a model
    is not of this kind, or on a GPU.
    """
    paired = batch.target is not None and batch.source_documents is None
    plain = type(model) is Model and model.stacks  # nothing follows the encoder
    if not (paired and plain and model.device.type == "cpu" and isinstance(model.front, TextFront)):
        return None
    ids, real = batch.inputs, batch.source_mask
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
    lengths = real.sum(-1)
    out = next(model.parameters()).new_zeros(*ids.shape, model.config.width)
    together = max(1, SOURCE_TOKENS // max(1, int(lengths.max())))
    for rows in lengths.argsort(stable=True).split(together):
        columns = real[rows].any(0).nonzero()[:, 0]  # those that hold a token
        if len(columns):
            mask = real[rows][:, columns]
            some = Batch(ids[rows][:, columns], mask=None if bool(mask.all()) else mask)
            out[rows[:, None], columns] = model.encode(some).x
    return Memory(out, batch.source_mask)


def take_last(x: Tensor, real: Tensor | None) -> Tensor:
    """The last real column of each row: (N, T, …) → (N, …)."""
    if real is None:
        return x[:, -1]
    last = real.shape[1] - 1 - real.flip(1).int().argmax(-1)
    return x[torch.arange(len(x), device=x.device), last]


def apply_processes(processes: Sequence[Process], logits: Tensor, history: Tensor) -> Tensor:
    """Logits after each process in turn."""
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


def without_end(tokens: Sequence[int], eos: Collection[int]) -> list[int]:
    """The tokens before an end token."""
    return [*tokens[:-1]] if tokens and tokens[-1] in eos else [*tokens]
