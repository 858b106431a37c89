"""Extraction: the activations of a corpus, at the speed of a plain forward pass, into a folder.

Texts of like length run together; each row of numbers lands where its text stands in the corpus,
so the batching is not to be seen. Copies from a GPU run beside the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from regard.errors import DataError
from regard.look.activation_store import DOING, INDEX
from regard.look.activations import Selection, TextIds, fill_rows, read_batch
from regard.look.hooks import Board

WINDOW = 1 << 16  # tokens among which texts of like length are sought


class Shards:
    """Rows of a corpus as they are read, given away in shards of bounded size, in order."""

    def __init__(
        self,
        board: Board,
        selection: Selection,
        size: int,
        write: Callable[[dict[str, Tensor]], None],
    ) -> None:
        self.board, self.selection, self.write = board, selection, write
        with torch.inference_mode():  # a run of one token tells how many numbers each tap has
            probe = TextIds(0, [0], [0] if selection.target else None)
            seen = read_batch(board, [probe], selection, [[0]])
        self.widths = {name: x.shape[-1] for name, x in seen.items()}
        self.row_bytes = sum(self.widths.values()) * selection.dtype.itemsize + 8 * len(INDEX)
        self.size, self.capacity = size, max(1, size // self.row_bytes)
        self.held = self.empty()
        self.used = 0  # rows of the present shard

    def empty(self) -> dict[str, Tensor]:
        """The tensors of an empty shard; memory is taken as they fill."""
        rows, dtype = self.capacity, self.selection.dtype
        index = {name: torch.empty(rows, dtype=torch.long) for name in INDEX}
        return index | {n: torch.empty(rows, d, dtype=dtype) for n, d in self.widths.items()}

    def count_rows(self, text: TextIds) -> int:
        """The rows of a text, if a shard can hold them."""
        rows = len(self.selection.columns(len(self.selection.tokens(text))))
        if rows > self.capacity:
            found = f"{rows:,} rows of {self.row_bytes:,} bytes in text {text.number + 1}"
            expected = f"at most {self.capacity:,}, a shard of {self.size:,} bytes"
            fix = "a larger --shard-mb, fewer taps, --position last, or shorter lines"
            raise DataError(DOING, found, expected, fix)
        return rows

    def read(
        self, texts: Iterable[TextIds], tokens: int, tell: Callable[[int], None] = lambda done: None
    ) -> None:
        """Read texts, each of which must fit into a shard."""
        window, rows, length = list[TextIds](), 0, 0

        def fill() -> int:
            return fill_rows(
                self.board, window, self.selection, self.held, self.used, tokens, tell
            )

        for text in texts:
            count = self.count_rows(text)
            full = self.used + rows + count > self.capacity
            if window and (full or length > WINDOW):
                self.used = fill()
                window, rows, length = [], 0, 0
            if full:
                self.flush()
            window.append(text)
            rows, length = rows + count, length + len(text.ids) + len(text.target or ())
        self.used = fill()

    def flush(self) -> None:
        """Give the present shard away, if it has rows."""
        if self.used:
            self.write({name: x[: self.used] for name, x in self.held.items()})
            self.held, self.used = self.empty(), 0
