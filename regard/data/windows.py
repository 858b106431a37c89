"""Batches as pure functions of (seed, epoch, index): resuming is asking for the next index.

`Windows` cuts a text for language models, `Streams` does so in its order, `Packed` (packing.py)
puts whole documents side by side, `Buckets` (bucket.py) groups sentence pairs of like length. Each
has `count(epoch)` and `batch(epoch, index)`; a seed of None reads in the order of the store, for
validation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.order import Counts, key, shuffled, uniform
from regard.data.token_store import Store
from regard.errors import DataError

IGNORED = -100
"""The label of a position that carries no loss."""


@dataclass(frozen=True)
class Examples:
    """One batch: the tensors of `regard.model.batch.Batch` under the same names, and labels."""

    inputs: Tensor
    """Ids (B, T), or (B, S) where there is a target."""
    labels: Tensor
    """The right answers, −100 where there is no loss: ids (B, T), classes (B,), several labels of a
    row as 0 and 1 (B, C), or numbers (B,)."""
    tokens: int
    """How many labels carry a loss; of a share, those of the whole batch."""
    target: Tensor | None = None
    """Ids (B, T) that the decoder reads: the start token and the target but its last."""
    mask: Tensor | None = None
    """(B, T): real tokens; None when all are."""
    documents: Tensor | None = None
    """(B, T): number of the document within its row, −1 at the leftover."""
    source_mask: Tensor | None = None
    """(B, S): real tokens of the source; None when all are."""
    paths: Tensor | None = None
    """(B, T, T, 1 + kinds): shortest paths between the nodes of graphs."""
    follows: bool = False
    """Each row goes on where it ended in the batch before."""
    extra: dict[str, Tensor] = field(default_factory=dict)
    """What else an objective needs of each row, such as its log-probability before (B, …)."""

    def parts(self) -> dict[str, Tensor]:
        """The tensors a Batch takes: `Batch(**examples.parts())`."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return {n: t for n, t in held.items() if isinstance(t, Tensor) and n != "labels"}

    def share(self, rank: int, size: int) -> Examples:
        """The rows of one of `size` processes; where it has none, a row without labels.

        So every process takes part in every step, and `tokens` still weighs the whole batch.
        """
        if size == 1:
            return self
        rows = slice(rank, None, size) if rank < len(self.labels) else slice(1)
        held: dict[str, Any] = {name: tensor[rows] for name, tensor in self.parts().items()}
        held["extra"] = {name: tensor[rows] for name, tensor in self.extra.items()}
        labels = self.labels[rows]
        if rank >= len(self.labels):
            labels = torch.full_like(labels, IGNORED)
        return replace(self, labels=labels, **held)

    def pin(self) -> Examples:
        """The batch in page-locked memory, from where copies to a GPU run beside its work."""
        pinned: dict[str, Any] = {n: t.pin_memory() for n, t in self.parts().items()}
        pinned["extra"] = {n: t.pin_memory() for n, t in self.extra.items()}
        return replace(self, labels=self.labels.pin_memory(), **pinned)


class Source(Protocol):
    """What a loader reads: numbered batches in each epoch.

    One whose batches differ in shape has an attribute `varying` that is true. One whose batches
    come from the model has `tensors()` for a checkpoint and `restore(tensors)`.
    """

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""

    def batch(self, epoch: int, index: int) -> Examples:
        """One of them."""


class Windows:
    """Language modelling: the stream in windows of one length, each with the tokens that follow.

    With a seed, for training, they come shuffled, and each begins somewhere in its own stretch, so
    that each token is predicted once per epoch on average, and lines of one length are met from all
    their places; `whole` leaves out a last batch of fewer rows. Without, for validation, they lie
    end to end, the last one shorter, and each token is predicted once.
    """

    def __init__(
        self, store: Store, length: int, rows: int, seed: int | None = 0, whole: bool = False
    ) -> None:
        if store.tokens < length + 1:
            doing = f"cutting {store.path} into windows"
            expected = f"at least {length + 1:,}: a context of {length:,} and the token after it"
            fix = "give more text, or a shorter context (--length)"
            raise DataError(doing, f"{store.tokens:,} tokens", expected, fix)
        self.store, self.length, self.rows = store, length, rows
        self.seed, self.whole, self.answers = seed, whole, store.tokens - 1
        full, rest = divmod(self.answers, length)
        self.windows = full + (seed is None and rest > 0)

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        full, rest = divmod(self.windows, self.rows)
        return max(1, full) if self.whole else full + (rest > 0)

    def batch(self, epoch: int, index: int) -> Examples:
        """Inputs (B, T) and the tokens that follow each."""
        starts = self.length * batch_rows(index, self.rows, self.windows, self.seed, epoch)
        if self.seed is not None:
            room = np.minimum(self.length, self.answers - self.length - starts + 1)
            starts = starts + (room * uniform(key(self.seed, epoch, 2), starts)).astype(np.int64)
        sizes = np.minimum(self.length, self.answers - starts)
        inputs, labels, real = next_tokens(self.store, starts, sizes)
        return Examples(inputs, labels, int(sizes.sum()), mask=mask_of(real))


class Streams:
    """Language modelling: the text cut into `rows` stretches, read side by side by windows.

    Batch n holds window n of each stretch, so each row goes on where it ended in batch n − 1; each
    token is predicted once per epoch, in the same order in every epoch. The last stretch may be
    shorter: its row ends in padding, after which nothing of it is read.
    """

    def __init__(self, store: Store, length: int, rows: int) -> None:
        if store.tokens < 2:
            fault = f"{store.tokens} tokens"
            raise DataError(f"cutting {store.path} into streams", fault, "2 or more")
        self.store, self.length, answers = store, length, store.tokens - 1
        self.stretch = -(-answers // min(rows, answers))  # predictions of a row
        self.starts = np.arange(0, answers, self.stretch)
        self.stops = np.minimum(self.starts + self.stretch, answers)

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        return -(-self.stretch // self.length)

    def batch(self, epoch: int, index: int) -> Examples:
        """Inputs (B, T) and the tokens that follow each."""
        check_index(index, self.count(epoch))
        starts = self.starts + index * self.length
        sizes = np.clip(self.stops - starts, 0, self.length)
        inputs, labels, _ = next_tokens(self.store, starts, sizes)
        return Examples(inputs, labels, int(sizes.sum()), follows=index > 0)


def next_tokens(store: Store, starts: Counts, sizes: Counts) -> tuple[Tensor, Tensor, np.ndarray]:
    """Stretches of a text as padded rows: inputs, the tokens that follow each, and what is real."""
    ids = store.gather(starts, sizes + 1, int(sizes.max()) + 1)
    real = np.arange(ids.shape[1] - 1) < sizes[:, None]
    labels = np.where(real, ids[:, 1:], IGNORED)
    return tensor(np.where(real, ids[:, :-1], 0)), tensor(labels), real


def tensor(array: Counts) -> Tensor:
    """A tensor of int64."""
    return torch.from_numpy(np.ascontiguousarray(array, np.int64))


def mask_of(real: np.ndarray) -> Tensor | None:
    """A mask, or None when all is real."""
    return None if real.all() else torch.from_numpy(real)


def check_index(index: int, count: int) -> None:
    """Stop at an index that the epoch does not have."""
    if not 0 <= index < count:
        raise IndexError(f"batch {index} of {count}")


def batch_rows(
    index: int, rows: int, total: int, seed: int | None, epoch: int, stream: int = 0
) -> Counts:
    """Which of `total` rows are in a batch of an epoch; shuffled where there is a seed."""
    check_index(index, -(-total // rows))
    places = np.arange(index * rows, min((index + 1) * rows, total))
    return shuffled(places, total, seed, epoch, stream)
