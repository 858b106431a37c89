"""Fixed pace: steps whose shapes do not change, recorded as a CUDA graph where there is CUDA.

A look at the host every few steps; sources leave when half of them are over, so that the shapes
left are few. The answers are those of the ordinary pace.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.attention import Attention, View
from regard.core.cache import FixedCache
from regard.decode.pace import Advance, Pace, S
from regard.decode.recorded import (
    Record,
    Shelf,
    copy_pairs,
    copy_tensors,
    record_graph,
    tensors,
)
from regard.model.batch import Batch
from regard.model.model import Model

SOURCE = 8  # lengths of sources are a multiple of this


class FixedPace(Pace):
    """The rows of a batch, `width` for each, with room for `room` new tokens.

    `key` names the search: what of it a recorded step depends on.
    """

    every = 8

    def __init__(
        self,
        model: Model,
        batch: Batch,
        width: int,
        room: int,
        shelf: Shelf,
        key: Hashable,
        compiled: bool = False,
    ) -> None:
        self.model, self.batch, self.shelf = model, batch, shelf
        self.prefixes, self.compiled = width, compiled
        self.room = rounded(room, 32)
        self.size = rounded(batch.ids.shape[1] + self.room * width)
        self.key: Hashable = (key, width, self.room, self.size, compiled, *source_key(batch))
        self.record = self.record_of(len(batch.ids))

    def record_of(self, sources: int) -> Record:
        """The buffers for so many sources."""
        return self.shelf.record((sources, self.key), lambda: self.cache(sources))

    def cache(self, sources: int) -> FixedCache:
        """A cache for so many sources."""
        decoder = self.model.decoder
        assert decoder is not None
        weight = next(decoder.parameters())
        sizes = (sources, self.prefixes, self.size)
        return FixedCache(decoder.config, *sizes, weight.dtype, weight.device)

    def columns(self, most: int) -> int:
        """Room for new tokens in a state."""
        return self.room

    @torch.no_grad()
    def begin(self, start: Tensor) -> Tensor:
        """Read all but the last token of each row; that one is the first column, (A · W, 1)."""
        cache, model, batch = self.record.cache, self.model, self.batch
        cache.reset()
        memory = None
        if batch.target is not None:
            read = model.encode(batch.inputs, batch.source_mask)
            missing = rounded(read.x.shape[1], SOURCE) - read.x.shape[1]
            real = read.real
            if missing and real is None:
                real = torch.ones(read.x.shape[:2], dtype=torch.bool, device=read.x.device)
            real = None if real is None else F.pad(real, (0, missing))
            memory = read._replace(x=F.pad(read.x, (0, 0, 0, missing)), real=real)
            cache.remember(self.project(memory.x), real)
        before, real, last = split_last(batch.ids, batch.mask)
        if before.shape[1]:
            model.decode(before, memory, real, cache=cache)
        cache.start(real)
        return last.repeat_interleave(self.prefixes, 0)

    def project(self, source: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
        """Keys and values of a source for each layer's cross-attention."""
        assert self.model.decoder is not None
        found = {}
        for part in self.model.decoder.modules():
            if isinstance(part, Attention) and part.cross:
                fresh = [part.k(source), part.v(source)]
                found[part.layer] = part.keys_values(fresh, View())
        return found

    @torch.no_grad()
    def turn(self, state: S, advance: Advance[S]) -> S:
        """One step, replayed where it has been recorded."""
        if len(state.over) != self.record.cache.batch:
            state = self.shrink(state)
        record, cache = self.record, self.record.cache
        record.load(state)
        span = self.span(cache.filled + cache.width)
        cache.grow(span)
        if span not in record.steps:
            body = self.body(record, advance)
            with self.shelf.joined():
                if not cache.held.is_cuda:
                    body()
                    return record.state  # type: ignore[no-any-return]
                record.steps[span] = self.recorded(body, record)
        record.steps[span]()
        return record.state  # type: ignore[no-any-return]

    def span(self, slots: int) -> int:
        """How many slots attention runs over; few sizes when each of them is compiled."""
        least = rounded(self.size // 2) if self.compiled else 64
        return min(rounded(slots, least), self.size)

    def body(self, record: Record, advance: Advance[S]) -> Callable[[], None]:
        """A step on the record's buffers alone."""
        cache, model, paired = record.cache, self.model, self.batch.target is not None

        def body() -> None:
            state = record.state
            if cache.width > 1:
                cache.select(state.parent.flatten())
            ids = state.column
            logits = model(Batch(ids, ids) if paired else Batch(ids), cache)[:, 0]
            copy_tensors(state, advance(state, logits))

        return body

    def recorded(self, body: Callable[[], None], record: Record) -> Callable[[], None]:
        """The step as a graph, compiled first if so wished."""
        cache = record.cache
        changing = [*tensors(record.state), cache.bias, cache.lengths, cache.index]
        before = [held.clone() for held in changing]
        if self.compiled:
            body = compiled(body, single=len(record.state.column) == 1)
        with torch.cuda.device(cache.held.device):
            undo = partial(copy_pairs, list(zip(changing, before, strict=True)))
            return record_graph(body, undo, self.shelf.pool)

    def shrink(self, state: S) -> S:
        """Go on in smaller buffers with the sources that are left."""
        old, parent = self.record.cache, state.parent
        assert parent is not None
        self.record = self.record_of(len(state.over))
        self.record.cache.take(old, parent.flatten())
        return state.settle()

    def keep(self, over: Sequence[bool]) -> list[int] | None:
        """All that are not over, and as many others as make it a half, a quarter, …, or all."""
        going, size = len(over) - sum(over), len(over)
        while size > 1 and going <= -(-size // 2):
            size = -(-size // 2)
        if size == len(over):
            return None
        return sorted(sorted(range(len(over)), key=lambda n: over[n])[:size])


def compiled(body: Callable[[], None], single: bool) -> Callable[[], None]:
    """A step compiled for its shapes alone; what a single row is multiplied with can be fused."""
    made = torch.compile(body, dynamic=False, options={"coordinate_descent_tuning": single})

    def run() -> None:
        with torch._dynamo.config.patch(recompile_limit=1000):  # each shape is compiled anew
            made()

    return run


def rounded(count: int, least: int = 64) -> int:
    """Up to a multiple of `least`, or of about a sixth of the count: few shapes, little waste."""
    step = max(least, 1 << max(count.bit_length() - 3, 0))
    return -(-count // step) * step


def source_key(batch: Batch) -> tuple[Hashable, ...]:
    """Shape of an encoder's output, as far as it is known before, and whether it has padding."""
    if batch.target is None:
        return ()
    if batch.inputs.dim() > 2:
        return tuple(batch.inputs.shape[1:])
    length = batch.inputs.shape[1]
    return rounded(length, SOURCE), batch.source_mask is None and rounded(length, SOURCE) == length


def split_last(ids: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
    """All but each row's last token, with their padding, and that token (A, 1)."""
    if real is None:
        return ids[:, :-1], None, ids[:, -1:]
    last = real.shape[1] - 1 - real.flip(1).int().argmax(-1, keepdim=True)
    return ids, real.scatter(1, last, False), ids.gather(1, last)
