"""Strict mode: the same bits alone, batched, padded, packed, cached or not (N6).

A row of a matrix product may change in its last bits with the number of rows beside it. So strict
mode gives every sequence the same shapes whatever came with it: each one runs alone, without
padding, and a decoder runs in tiles of TILE positions through a cache, position t always in row
t mod TILE of its tile. Equal shapes and equal places give equal bits; docs/limits.md has the price.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from regard.core.cache import Cache
from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.model import Memory, Model

TILE = 32
SIGNALS = ("image", "audio", "wave")  # of which a row is a sequence


class Alone(NamedTuple):
    """One sequence of a batch: its row, its document, and its columns in that row."""

    row: int
    document: int
    columns: Tensor


class StrictRun(NamedTuple):
    """What one run of the model was: which of its places belong to which columns of the batch."""

    row: int
    places: Tensor
    """Places of the run that hold tokens."""
    columns: Tensor
    """Columns of the batch those tokens have."""


class StrictCache:
    """One cache per sequence of a batch; made and filled by strict calls only."""

    def __init__(self, model: Model, batch: int, size: int) -> None:
        if not model.stacks:
            fault, fix = "a recurrent model", "leave strict mode out"
            raise UsageError("running in strict mode", fault, "a Transformer", fix)
        self.model, self.batch = model, batch
        self.size = -(-size // TILE) * TILE  # whole tiles
        self.held: dict[tuple[int, int], Cache] = {}
        self.memories: dict[tuple[int, int | None], Memory] = {}

    def of(self, alone: Alone) -> Cache:
        """The cache of one sequence."""
        key = alone.row, alone.document
        if key not in self.held:
            self.held[key] = self.model.cache(1, self.size, tile=TILE)
        return self.held[key]

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows: repeated, dropped or re-ordered, each with a cache of its own."""
        old, memories = self.held, self.memories
        self.held, self.memories = {}, {}
        for new, row in enumerate(rows.tolist()):
            for (number, document), cache in old.items():
                if number == row:
                    self.held[new, document] = cache.copy()
            for (number, name), memory in memories.items():
                if number == row:
                    self.memories[new, name] = memory
        self.batch = len(rows)

    def memory(self, alone: Alone) -> Memory | None:
        """What one sequence reads of the encoder; a source may be empty."""
        if self.model.encoder is None:
            return None
        for document in (alone.document, None):  # None: the source is not packed, all of it
            if (alone.row, document) in self.memories:
                return self.memories[alone.row, document]
        return Memory(next(self.model.parameters()).new_zeros(1, 0, self.model.config.width))


def sequences(count: int, width: int, real: Tensor | None, document: Tensor | None) -> list[Alone]:
    """The sequences of a batch (B, T): rows without their padding, packed rows by document."""
    alone = []
    for row in range(count):
        columns = torch.arange(width)
        if real is not None:
            columns = columns[real[row].cpu()]
        if document is None:
            alone.append(Alone(row, 0, columns))
            continue
        kept = document[row].cpu()[columns]
        alone += [Alone(row, n, columns[kept == n]) for n in sorted(set(kept.tolist()))]
    return [one for one in alone if len(one.columns)]


def strict_logits(model: Model, batch: Batch, cache: StrictCache | None = None) -> Tensor:
    """Logits as `Model.forward` gives them, each sequence computed alone; padding gives zeros."""
    ids = batch.ids
    if model.decoder is None:
        runs = encode_runs(model, batch)
        return collect(model, ((part, model.score(memory.x)) for part, memory in runs), ids)
    cache = StrictCache(model, len(ids), ids.shape[1]) if cache is None else cache
    if batch.target is not None and not cache.memories:
        documents = batch.source_documents
        for part, memory in encode_runs(model, batch.source):
            document = None if documents is None else int(documents[part.row, part.columns[0]])
            cache.memories[part.row, document] = memory
    alone = sequences(len(ids), ids.shape[1], batch.mask, batch.documents)
    runs_of = (run for one in alone for run in decode_runs(model, ids, one, cache))
    return collect(model, runs_of, ids)


def collect(model: Model, runs: Iterator[tuple[StrictRun, Tensor]], ids: Tensor) -> Tensor:
    """Lay the scores of single runs (1, T, V) or (1, V) back into the shape of the batch."""
    out: Tensor | None = None
    for part, scores in runs:
        if out is None:
            signal = model.decoder is None and model.config.front.kind in SIGNALS
            width = scores.shape[1] if signal else ids.shape[1]
            shape = (len(ids), width) if scores.dim() == 3 else (len(ids),)
            out = scores.new_zeros((*shape, scores.shape[-1]))
        if scores.dim() == 3:
            out[part.row, part.columns] = scores[0, part.places]
        else:
            out[part.row] = scores[0]
    if out is None:  # nothing but padding
        size = model.config.head.size or model.config.last.block.dim
        shape = (len(ids), size) if model.config.head.take != "all" else (*ids.shape, size)
        out = next(model.parameters()).new_zeros(shape)
    return out


def encode_runs(model: Model, batch: Batch) -> Iterator[tuple[StrictRun, Memory]]:
    """Run the encoder over each sequence alone, at its own length."""
    inputs, segments, paths = batch.inputs, batch.segments, batch.paths
    signal = model.config.front.kind in SIGNALS
    for row, _, columns in sequences(len(inputs), inputs.shape[1], batch.mask, batch.documents):
        own = None if segments is None else segments[row, columns][None]
        between = None if paths is None else paths[row, columns][None, :, columns]
        memory = model.encode(Batch(inputs[row, columns][None], segments=own, paths=between))
        places = torch.arange(memory.x.shape[1])
        yield StrictRun(row, places, places if signal else columns), memory


def decode_runs(
    model: Model, ids: Tensor, alone: Alone, strict: StrictCache
) -> Iterator[tuple[StrictRun, Tensor]]:
    """Run the decoder over new tokens of one sequence, a tile at a time, after its cache."""
    cache, columns = strict.of(alone), alone.columns
    memory = strict.memory(alone)
    start, stop = cache.used, cache.used + len(columns)
    if stop > strict.size:
        doing, fault = "appending to a strict cache", f"{stop} tokens in row {alone.row}"
        raise UsageError(doing, fault, f"at most {strict.size}", "make the cache larger")
    for tile in range(start // TILE, -(-stop // TILE)):
        slots = torch.arange(max(start, tile * TILE), min(stop, (tile + 1) * TILE))
        places, here = slots - tile * TILE, columns[slots - start]
        tokens = ids.new_zeros(1, TILE)
        tokens[0, places] = ids[alone.row, here]
        real = torch.zeros(1, TILE, dtype=torch.bool, device=ids.device)
        real[0, places] = True
        scores = model.score(model.decode(Batch(tokens, mask=real), memory, cache))
        yield StrictRun(alone.row, places, here), scores
