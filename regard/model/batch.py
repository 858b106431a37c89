"""Batch: what one forward pass reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from regard.errors import DataError
from regard.model.config import FrontConfig, ModelConfig, TextConfig


@dataclass(frozen=True)
class Batch:
    """Inputs with their padding and packing; masks are True at real tokens."""

    inputs: Tensor
    """Ids (B, T), pixels (B, C, height, width) or log-mel (B, mels, frames)."""
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

    @property
    def ids(self) -> Tensor:
        """The last stack's input."""
        return self.inputs if self.target is None else self.target

    def to(self, device: torch.device) -> Batch:
        """All tensors on one device."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: t.to(device) for name, t in held.items() if t is not None})


def pad_rows(rows: Sequence[Sequence[int]], pad: int = 0) -> tuple[Tensor, Tensor | None]:
    """Lists of ids → ids (B, T) padded on the right and their mask, None when all are as long."""
    width = max(map(len, rows), default=0)
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], dtype=torch.long)
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(width) < lengths[:, None]
    return ids.view(len(rows), width), None if mask.all() else mask


def check_batch(batch: Batch, config: ModelConfig) -> None:
    """Fail before any kernel runs: ids outside a vocabulary, masks that do not fit their ids."""
    target = config.target if batch.target is not None else None
    check_ids(batch.inputs, config.front, "input" if target is None else "source")
    if batch.target is not None and target is not None:
        check_ids(batch.target, target, "target")
        if len(batch.inputs) != len(batch.target):
            raise DataError(
                "reading a batch",
                f"{len(batch.inputs)} sources and {len(batch.target)} targets",
                "as many of one as of the other",
            )
    if batch.documents is not None and config.head.take == "first":
        raise DataError(
            "reading a batch",
            "several documents packed in a row, and an output head with one answer per row",
            "one document in each row",
            "pad the rows instead of packing them",
        )
    for name in ("mask", "documents", "segments", "source_mask", "source_documents"):
        given = getattr(batch, name)
        ids = batch.inputs if name.startswith("source") else batch.ids
        if given is not None and given.shape != ids.shape:
            raise DataError(
                "reading a batch",
                f"{name} of shape {tuple(given.shape)}",
                f"{tuple(ids.shape)}, the shape of its ids",
            )
        if given is not None and name.endswith("mask") and given.dtype != torch.bool:
            raise DataError(
                "reading a batch", f"{name} of {given.dtype}", "booleans, True at real tokens"
            )


def check_ids(ids: Tensor, front: FrontConfig, name: str) -> None:
    """Stop at the first id outside the vocabulary, naming its place."""
    if not isinstance(front, TextConfig):
        return
    if ids.dim() != 2 or ids.is_floating_point():
        found = f"{name} of shape {tuple(ids.shape)} and {ids.dtype}"
        raise DataError("reading ids", found, "integers of shape (batch, length)")
    wrong = ((ids < 0) | (ids >= front.vocab)).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise DataError(
            "reading ids",
            f"id {int(ids[row, column])} at row {row}, position {column} of the {name}",
            f"ids from 0 to {front.vocab - 1}, the vocabulary of this model",
            "use the tokenizer that belongs to the model",
        )
