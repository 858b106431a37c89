"""A model as a search sees it: ids in, next-token scores out, with its cache inside."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.core.cache import Cache
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.strict import StrictCache, strict_logits


class ModelStep:
    """Goes on with the rows of a batch; an encoder reads its source once.

    The batch's `ids` are the start that a search is given; `room` is how many tokens may follow.
    """

    def __init__(self, model: Model, batch: Batch, room: int, strict: bool = False) -> None:
        self.model, self.begin = model, batch
        rows, width = batch.ids.shape[0], batch.ids.shape[1]
        self.cache: Cache | StrictCache = (
            StrictCache(model, rows, width + room) if strict else model.cache(rows, width + room)
        )
        self.started = False

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        """Read ids (N, t); logits (N, V) of the token after them."""
        batch = Batch(ids) if self.begin.target is None else Batch(ids, ids)
        if not self.started:
            batch, self.started = replace(self.begin), True
        if isinstance(self.cache, StrictCache):
            return take_last(strict_logits(self.model, batch, self.cache), batch.mask)
        x = take_last(self.model.hidden(batch, self.cache), batch.mask)
        return self.model.score(x[:, None])[:, 0]

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows."""
        self.cache.select(rows, group)


def take_last(x: Tensor, real: Tensor | None) -> Tensor:
    """The last real column of each row: (N, T, …) → (N, …)."""
    if real is None:
        return x[:, -1]
    last = real.shape[1] - 1 - real.flip(1).int().argmax(-1)
    return x[torch.arange(len(x), device=x.device), last]
