"""A model as a search sees it: ids in, next-token scores out, with its cache inside."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.core.cache import Cache
from regard.decode.step import Listener
from regard.model.batch import Batch
from regard.model.fronts import TextFront
from regard.model.model import Memory, Model
from regard.model.strict import StrictCache, strict_logits

READ = 400  # source tokens that are read together on a CPU


class ModelStep:
    """Goes on with the rows of a batch; an encoder reads its source once.

    The batch's `ids` are the start that a search is given; `room` is how many tokens may follow.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        room: int,
        strict: bool = False,
        listener: Listener | None = None,
    ) -> None:
        self.model, self.begin, self.listener = model, batch, listener
        rows, width = batch.ids.shape[0], batch.ids.shape[1]
        self.cache: Cache | StrictCache = (
            StrictCache(model, rows, width + room) if strict else model.cache(rows, width + room)
        )
        self.started = False

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        """Read ids (N, t); logits (N, V) of the token after them."""
        if isinstance(self.cache, StrictCache):
            batch = self.next(ids)
            return take_last(strict_logits(self.model, batch, self.cache), batch.mask)
        return self.model.score(self.vectors(ids)[:, None])[:, 0]

    def vectors(self, ids: Tensor) -> Tensor:
        """Read ids (N, t); the last stack's output (N, D) at the last of them."""
        assert isinstance(self.cache, Cache)
        first, batch = not self.started, self.next(ids)
        if self.listener is not None:
            self.listener.before(batch.ids, batch.mask)
        elif first and reads_apart(self.model, batch):
            self.cache.source = read_apart(self.model, batch)
        x = take_last(self.model.hidden(batch, self.cache), batch.mask)
        if self.listener is not None:
            self.listener.after()
        return x

    def next(self, ids: Tensor) -> Batch:
        """What the model reads now: first the batch it was given, then these ids."""
        if not self.started:
            self.started = True
            return replace(self.begin)
        return Batch(ids) if self.begin.target is None else Batch(ids, ids)

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows."""
        self.cache.select(rows, group)
        if self.listener is not None:
            self.listener.select(rows)


def reads_apart(model: Model, batch: Batch) -> bool:
    """Whether sources are better read a few at a time: on a CPU, plain rows of text."""
    paired = batch.target is not None and batch.source_documents is None
    text = isinstance(model.front, TextFront) and bool(model.stacks)
    return paired and text and model.device.type == "cpu" and len(batch.inputs) > 1


def read_apart(model: Model, batch: Batch) -> Memory:
    """What `Model.encode` makes of sources, those of like length together and a few at a time.

    So little padding is computed, and a core's own cache holds the activations.
    """
    assert model.encoder is not None
    ids, real = batch.inputs, batch.source_mask
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
    lengths = real.sum(-1)
    weight, dim = next(model.parameters()), model.encoder.config.block.dim
    out = weight.new_zeros(*ids.shape, dim)
    for rows in lengths.argsort(stable=True).split(max(1, READ // max(1, int(lengths.max())))):
        seen = real[rows].any(0).nonzero()[:, 0]  # columns that hold a token
        if len(seen):
            own = real[rows][:, seen]
            given = ids[rows][:, seen]
            out[rows[:, None], seen] = model.encode(given, None if bool(own.all()) else own).x
    return Memory(out, batch.source_mask)


def take_last(x: Tensor, real: Tensor | None) -> Tensor:
    """The last real column of each row: (N, T, …) → (N, …)."""
    if real is None:
        return x[:, -1]
    last = real.shape[1] - 1 - real.flip(1).int().argmax(-1)
    return x[torch.arange(len(x), device=x.device), last]
