"""Batch: what one forward pass reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Any

import torch
from torch import Tensor

from regard.core.similarity import to_tensor
from regard.errors import DataError, UsageError
from regard.model.config import FrontConfig, ModelConfig, TextConfig


@dataclass(frozen=True)
class Batch:
    """Inputs with their padding and packing; masks are True at real tokens."""

    inputs: Tensor
    """Ids (B, T), pixels (B, C, height, width), log-mel (B, mels, frames) or nodes (B, T, F)."""
    target: Tensor | None = None
    """Ids (B, T) that an encoder-decoder writes."""
    mask: Tensor | None = None
    """(B, T): real tokens of the last stack's input (the target where there is one)."""
    documents: Tensor | None = None
    """(B, T): number of the document each token belongs to, in packed rows."""
    source_mask: Tensor | None = None
    """(B, S): real tokens of an encoder-decoder's source."""
    source_documents: Tensor | None = None
    """(B, S): documents of an encoder-decoder's source."""
    segments: Tensor | None = None
    """(B, T): segment numbers (BERT); zeros when not given."""
    paths: Tensor | None = None
    """(B, T, T, 1 + kinds): shortest paths between the nodes of a graph (`graphs/`)."""

    @property
    def ids(self) -> Tensor:
        """The last stack's input."""
        return self.inputs if self.target is None else self.target

    @property
    def source(self) -> Batch:
        """What an encoder reads: of a pair the source as a batch of its own."""
        if self.target is None:
            return self
        return Batch(self.inputs, mask=self.source_mask, documents=self.source_documents)

    @property
    def written(self) -> Batch:
        """What a decoder reads: of a pair the target as a batch of its own."""
        if self.target is None:
            return self
        return Batch(self.target, mask=self.mask, documents=self.documents)

    def to(self, device: torch.device) -> Batch:
        """All tensors on one device; to a GPU beside its work, where they are page-locked."""
        wait = device.type == "cpu"
        return self.each(lambda x: x.to(device, non_blocking=not wait))

    def each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with all its tensors changed in the same way."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: change(x) for name, x in held.items() if x is not None})

    def tile(self, count: int) -> Batch:
        """The rows, `count` times one below the other."""
        return self.each(lambda x: tile_rows(x, count))


def tile_rows(x: Tensor, count: int) -> Tensor:
    """Rows (B, …), `count` times one below the other."""
    return x.repeat(count, *[1] * (x.dim() - 1))


def pad_rows(rows: Sequence[Sequence[int]], pad: int = 0) -> tuple[Tensor, Tensor | None]:
    """Lists of ids → ids (B, T) padded on the right and their mask, None when all are as long."""
    width = max(map(len, rows), default=0)
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], dtype=torch.long)
    mask = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    return ids.view(len(rows), width), None if mask.all() else mask


def id_batch(rows: Sequence[Sequence[int]], pad: int = 0) -> Batch:
    """Lists of ids as a batch, padded on the right."""
    ids, mask = pad_rows(rows, pad)
    return Batch(ids, mask=mask)


def to_ids(value: Any, name: str = "input") -> tuple[Tensor, Tensor | None]:
    """Ids as a tensor, an array, a list or a list of lists → ids (B, T) and their padding."""
    wanted = "whole numbers of shape (batch, length)"
    if not isinstance(value, Tensor):
        try:
            nested = len(value) > 0 and hasattr(value[0], "__len__")
            return pad_rows([list(map(index, row)) for row in (value if nested else [value])])
        except (TypeError, ValueError, OverflowError, RuntimeError):
            fault = f"{name} of type {type(value).__name__}"
            raise DataError("reading ids", fault, wanted) from None
    ids = value[None] if value.dim() == 1 else value
    if ids.dim() != 2 or ids.is_floating_point() or ids.dtype == torch.bool:
        fault = f"{name} of shape {tuple(value.shape)} and {value.dtype}"
        raise DataError("reading ids", fault, wanted)
    return ids.long(), None


def onehot(ids: Any, size: int, *, sparse: bool = False) -> Tensor:
    """Ids (…) → rows (…, K), K the size of the vocabulary: 1 at the id, 0 elsewhere.

    Example:
        >>> regard.onehot([2, 0], 3)
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
    """
    if not isinstance(size, int) or size < 1:
        raise UsageError("one-hot", f"size = {size!r}", "a whole number from 1 up")
    held = to_tensor("one-hot", "ids", ids)
    if held.numel() and (held.is_floating_point() or held.dtype == torch.bool):
        raise DataError("one-hot", f"ids of {held.dtype}", "whole numbers")
    if wrong := find_outside(held, size):
        fault = f"id {wrong}, vocabulary has {size}"
        raise DataError("one-hot", fault, f"ids from 0 to {size - 1}")
    if not sparse:
        return torch.nn.functional.one_hot(held.long(), size).float()
    where = torch.cat((torch.ones_like(held).nonzero(), held.reshape(-1, 1)), 1).T
    ones, shape = torch.ones(held.numel(), device=held.device), (*held.shape, size)
    return torch.sparse_coo_tensor(where, ones, shape, check_invariants=True)


def to_signal(value: Any, front: FrontConfig, dtype: torch.dtype) -> Tensor:
    """Pixels, log-mel, samples or nodes as a floating tensor; one of them makes a batch."""
    wanted = {"image": 4, "wave": 2}.get(front.kind, 3)  # samples (B, S), or (B, 1, S)
    signal = to_tensor(f"reading {front.kind}", "input", value)
    signal = signal[None] if signal.dim() == wanted - 1 else signal
    if not signal.is_floating_point():
        fault = f"values of {signal.dtype}"
        raise DataError(f"reading {front.kind}", fault, "floating-point values, scaled")
    return signal.to(dtype)


def check_batch(batch: Batch, config: ModelConfig) -> None:
    """Fail before any kernel runs: ids outside a vocabulary, masks that do not fit their ids."""
    pair = config.target is not None
    if pair != (batch.target is not None):
        fault = "a target" if batch.target is not None else "no target"
        kind = "source and target" if pair else "one input: this is no encoder-decoder"
        raise UsageError("running a model", fault, kind)
    check_ids(batch.inputs, config.front, "source" if pair else "input")
    if batch.target is not None and config.target is not None:
        check_ids(batch.target, config.target, "target")
        if len(batch.inputs) != len(batch.target):
            problem = f"{len(batch.inputs)} sources and {len(batch.target)} targets"
            raise DataError("reading a batch", problem, "as many of one as of the other")
    for name in ("mask", "documents", "segments", "source_mask", "source_documents"):
        if getattr(batch, name) is not None:
            check_side(name, getattr(batch, name), batch, config)
    check_documents(batch, config)


def check_side(name: str, value: Tensor, batch: Batch, config: ModelConfig) -> None:
    """A mask, documents or segments must fit ids, and a model that has a use for them."""
    source = name.startswith("source")
    if source and config.target is None:
        raise UsageError("reading a batch", f"{name}=", f"{name[7:]}=: there is one input only")
    ids = batch.inputs if source else batch.ids
    front = config.front if source or config.target is None else config.target
    if not isinstance(front, TextConfig):
        raise UsageError("reading a batch", f"{name}= for {front.kind}", "text: it has no padding")
    if value.shape != ids.shape[:2]:
        fault = f"{name} of shape {tuple(value.shape)}"
        raise DataError("reading a batch", fault, f"{tuple(ids.shape[:2])}, the shape of its ids")
    if name.endswith("mask") != (value.dtype == torch.bool) or value.is_floating_point():
        wanted = "booleans, True at real tokens" if name.endswith("mask") else "whole numbers"
        raise DataError("reading a batch", f"{name} of {value.dtype}", wanted)
    if name == "segments":
        if config.target is not None or not front.segments:
            raise UsageError("reading a batch", "segments=", "a model with segment embeddings")
        if int(value.min()) < 0 or int(value.max()) >= front.segments:
            fault = f"segments from {int(value.min())} to {int(value.max())}"
            raise DataError("reading a batch", fault, f"0 to {front.segments - 1}")


def check_documents(batch: Batch, config: ModelConfig) -> None:
    """Packed rows: numbers from 0 up, on both sides, and a head with an answer per position."""
    if batch.source_documents is not None and batch.documents is None:
        raise UsageError("reading a batch", "source_documents= alone", "documents= too")
    if batch.documents is None:
        return
    if config.head.take != "all":
        problem = "several documents packed in a row, and an output head with one answer per row"
        fix = "pad the rows instead of packing them"
        raise DataError("reading a batch", problem, "one document in each row", fix)
    real = batch.documents >= 0 if batch.mask is None else (batch.documents >= 0) | ~batch.mask
    if not bool(real.all()):
        fault = f"document number {int(batch.documents.min())}"
        raise DataError("reading a batch", fault, "numbers from 0 up at real tokens")


def check_ids(ids: Tensor, front: FrontConfig, name: str) -> None:
    """Stop at the first id outside the vocabulary, naming its place."""
    if not isinstance(front, TextConfig) or front.kind != "text":
        return
    if ids.dim() != 2 or ids.is_floating_point():
        fault = f"{name} of shape {tuple(ids.shape)} and {ids.dtype}"
        raise DataError("reading ids", fault, "integers of shape (batch, length)")
    if wrong := find_outside(ids, front.vocab):
        expected = f"ids from 0 to {front.vocab - 1}, the vocabulary of this model"
        fix = "use the tokenizer that belongs to the model"
        raise DataError("reading ids", f"id {wrong} of the {name}", expected, fix)


def find_outside(ids: Tensor, size: int, spared: int | None = None) -> str:
    """The first id that is not from 0 to size − 1, nor `spared`, and its place; else nothing."""
    wrong = (ids < 0) | (ids >= size)
    wrong = (wrong if spared is None else wrong & (ids != spared)).nonzero()
    if not len(wrong):
        return ""
    *row, column = wrong[0].tolist() or [0]
    return f"{int(ids[tuple(wrong[0])])} at {f'row {row[-1]}, ' if row else ''}position {column}"


def check_filled(batch: Batch, doing: str) -> None:
    """Every row must hold a token: there is nothing to go on from, or to pool, in an empty one."""
    ids, mask = batch.ids, batch.mask
    if batch.target is not None:
        ids, mask = batch.inputs, batch.source_mask
    if ids.dim() != 2:
        return
    count = torch.full((len(ids),), ids.shape[1]) if mask is None else mask.sum(-1)
    empty = (count == 0).nonzero()
    if len(empty):
        raise DataError(doing, f"row {int(empty[0])} has no tokens", "at least one in each row")


def like_lengths(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Numbers of rows of like length, at most so many tokens at a time, padding counted."""
    some = list[int]()
    for n in sorted(range(len(lengths)), key=lambda n: lengths[n]):
        if some and lengths[n] * (len(some) + 1) > tokens:
            yield some
            some = []
        some.append(n)
    if some:
        yield some
