"""Streams: a text as rows that go on from batch to batch, for models that carry a state."""

from __future__ import annotations

import numpy as np

from regard.data.batch import Examples, check_index, tensor
from regard.data.mask import IGNORED
from regard.data.store import Store
from regard.errors import DataError, UsageError


class Streams:
    """Language modelling: the text cut into `rows` stretches, read side by side by windows.

    Batch n holds window n of each stretch, so each row goes on where it ended in batch n − 1; each
    token is predicted once per epoch, in the same order in every epoch. The last stretch may be
    shorter: its row ends in padding, after which nothing of it is read.
    """

    def __init__(self, store: Store, length: int, rows: int) -> None:
        if length < 1 or rows < 1:
            raise UsageError("cutting streams", f"length {length}, rows {rows}", "1 or more")
        if store.tokens < 2:
            found = f"{store.tokens} tokens"
            raise DataError(f"cutting {store.path} into streams", found, "2 or more")
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
        ids = self.store.gather(starts, sizes + 1, int(sizes.max()) + 1)
        real = np.arange(ids.shape[1] - 1) < sizes[:, None]
        inputs, labels = np.where(real, ids[:, :-1], 0), np.where(real, ids[:, 1:], IGNORED)
        return Examples(tensor(inputs), tensor(labels), int(sizes.sum()), follows=index > 0)
