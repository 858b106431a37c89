"""Masking for masked language models: 15 % chosen, of these 80 % hidden, 10 % random, 10 % left.

Dynamic (RoBERTa) and counted: what happens to a token depends on the seed, the epoch and its place
in the store, so that batches of any shape, and a resumed run, see the same masks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.order import Counts, key, uniform
from regard.errors import UsageError

IGNORED = -100
"""The label of a position that carries no loss."""


class Masker:
    """Chooses tokens to hide and what stands in their stead."""

    def __init__(
        self, vocab: int, mask: int, never: Iterable[int] = (), share: float = 0.15, seed: int = 0
    ) -> None:
        if not 0 < share <= 1:
            raise UsageError("masking", f"a share of {share}", "above 0, at most 1")
        self.mask, self.share, self.seed = mask, share, seed
        self.never = np.unique([mask, *never])  # control tokens: neither chosen nor put in
        self.others = np.setdiff1d(np.arange(vocab), self.never)

    def __call__(self, ids: Counts, places: NDArray[Any], epoch: int) -> tuple[Counts, Counts]:
        """(ids with some hidden, labels at those) from ids and their places in the store."""
        draws = (uniform(key(self.seed, epoch, n, 1), places) for n in range(3))
        chance, fate, other = draws
        chosen = (chance < self.share) & ~np.isin(ids, self.never)
        labels = np.where(chosen, ids, IGNORED)
        random = self.others[(other * len(self.others)).astype(np.int64)]
        put = np.where(fate < 0.8, self.mask, np.where(fate < 0.9, random, ids))
        return np.where(chosen, put, ids), labels
