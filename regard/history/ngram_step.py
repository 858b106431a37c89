"""N-grams as a search sees them, apart from their tables: nothing else here needs torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from regard.errors import UsageError
from regard.history.class_ngram import ClassNgrams
from regard.history.ngram import Ngrams


class NgramStep:
    """Rows and what each has read (`decode/step.py`); a sentence begins with its start id."""

    def __init__(self, tables: Ngrams | ClassNgrams, rows: int = 1) -> None:
        self.tables, self.rows = tables, [list[int]() for _ in range(rows)]

    def __call__(self, ids: Tensor) -> Tensor:
        """Read the next ids (N, t) of each row; log p (N, V) of the one after them."""
        if len(ids) != len(self.rows):
            raise UsageError("going on by n-grams", f"{len(ids)} rows", f"{len(self.rows)}")
        made = []
        for row, new in zip(self.rows, ids.tolist(), strict=True):
            row += new
            del row[: max(0, len(row) - self.tables.order)]
            made.append(self.tables.distribution(row))
        return torch.from_numpy(np.stack(made))

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows."""
        self.rows = [list(self.rows[row]) for row in rows.tolist()]
