"""Cache: keys and values so far, passed in by the caller, never stored on a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import torch
from torch import Tensor

from regard.core import mask as masks
from regard.core.config import StackConfig
from regard.errors import UsageError

Move = Callable[[Sequence[Tensor], Tensor, int, int], bool]


class Cache:
    """Keys and values of a decoder for `batch` rows of at most `size` tokens each.

    Rows are kept compact: the n-th real token of a row lies in slot n, whatever padding came with
    it. Left-padded, right-padded and unequally long rows therefore hold the same numbers.
    With `tile` > 1 attention runs over a multiple of that many slots (strict mode).
    """

    def __init__(
        self,
        config: StackConfig,
        batch: int,
        size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        tile: int = 1,
    ) -> None:
        block = config.block
        shape = (batch, size + 1, block.groups, block.width)  # a row's past is one piece of memory
        # The last slot takes padding.
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.depth)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.memory: dict[int, tuple[Tensor, Tensor]] = {}  # cross-attention, once per source
        self.source: tuple[Tensor, Tensor | None, Tensor | None] | None = None  # encoder's output
        self.documents = torch.full((batch, size + 1), -1, dtype=torch.long, device=device)
        self.lengths = torch.zeros(batch, dtype=torch.long, device=device)
        self.batch, self.size, self.tile = batch, size, tile
        self.move: Move | None = None  # a kernel that re-orders rows in place, if it can
        self.group = 1  # neighbouring rows that share a source: the beams of one sentence
        self.used = 0  # no row is longer; kept on the host, so that asking costs no device sync
        self.even = tile == 1  # all rows have the length `used`, so no key needs a mask
        self.packed = False  # rows hold documents
        self.plain = False  # rows hold tokens without document
        self.slots = torch.zeros(batch, 0, dtype=torch.long, device=device)  # (B, T) of this call

    def place(self, real: Tensor | None, document: Tensor | None, count: int) -> Tensor:
        """Reserve slots for `count` new columns; returns the new tokens' positions (B, T)."""
        added = torch.full_like(self.lengths, count) if real is None else real.sum(-1)
        before = self.used
        self.reserve(added, count if real is None else int(added.max()))
        start = self.lengths[:, None]
        if real is None:
            self.slots = start + torch.arange(count, device=start.device)
        else:
            self.slots = torch.where(real, start + real.cumsum(-1) - 1, self.size)
            if self.even and not bool(real.all()):
                self._read_under_masks(before)
        self.lengths = self.lengths + added
        if document is None and not self.packed:
            self.plain = True
            return self.slots if real is None else self.slots.masked_fill(~real, 0)
        if self.even:
            self._read_under_masks(before)
        positions = self._place_documents(document)
        return positions if real is None else positions.masked_fill(~real, 0)

    def _read_under_masks(self, first: int) -> None:
        """Rows are alike no more: slots that some leave empty are read, and must be finite."""
        self.even = False
        for held in (*self.keys, *self.values):
            held[:, first:] = 0.0

    def reserve(self, added: Tensor, most: int) -> None:
        """Room for `added` (B,) new tokens, `most` of them in one row; fails if a row has none."""
        used = self.used + most
        if used > self.size:  # the sum of bounds; rows of unequal length may still have room
            used = int((self.lengths + added).max())
        if used > self.size:
            row = int((self.lengths + added).argmax())
            raise UsageError(
                "appending to the cache",
                f"{int(self.lengths[row])} tokens held and {int(added[row])} new ones",
                f"at most {self.size} in all",
                "make the cache larger",
            )
        self.used = used

    def _place_documents(self, document: Tensor | None) -> Tensor:
        """Positions of new tokens in packed rows: they restart with each document."""
        if document is None or (not self.packed and self.plain):
            found = "no documents" if document is None else "documents"
            other = "with" if document is None else "without"
            raise UsageError(
                "appending to the cache", f"{found}, after tokens {other} them", "one or the other"
            )
        self.packed = True
        self.documents.scatter_(1, self.slots, document)
        self.documents[:, self.size] = -1
        slot = torch.arange(self.size + 1, device=self.slots.device)
        same = self.documents[:, None, :] == document[:, :, None]
        earlier = same & (slot < self.slots[:, :, None])
        return earlier.sum(-1)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write (B, T, G, K) into the reserved slots; returns all (B, G, span, K)."""
        keys, values = self.keys[layer], self.values[layer]
        if self.even:
            new = slice(self.used - k.shape[1], self.used)
            keys[:, new], values[:, new] = k, v
        else:
            row = torch.arange(self.batch, device=k.device)[:, None]
            keys[row, self.slots], values[row, self.slots] = k, v
        held = slice(self.span)
        return keys[:, held].transpose(1, 2), values[:, held].transpose(1, 2)

    @property
    def span(self) -> int:
        """Number of slots that attention runs over."""
        return min(-(-self.used // self.tile) * self.tile, self.size)

    def allow(self) -> Tensor | None:
        """Which slots each new token may see, (B, 1, T, span), or a bias; None if plain causal."""
        count = self.slots.shape[1]
        if self.even and count in (1, self.used):
            return None
        slot = torch.arange(self.span, device=self.slots.device)
        allowed = (slot <= self.slots[:, :, None])[:, None]
        if self.packed:
            new = self.documents.gather(1, self.slots)
            allowed = allowed & masks.documents(new, self.documents[:, : self.span])
        return allowed

    def positions(self) -> Tensor:
        """Positions of the held keys, (B or 1, span); slots and positions agree unless packed."""
        slot = torch.arange(self.span, device=self.slots.device)[None]
        if not self.packed:
            return slot
        held = self.documents[:, : self.span]
        return masks.positions(held >= 0, held)

    def asking(self, positions: Tensor) -> Tensor:
        """Positions of the queries, row by row of the keys."""
        return positions

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows (N,): repeated, dropped or re-ordered; only used slots are moved.

        Rows come in groups of `group` that share a source, whose keys and values are held once.
        """
        used, same = self.used, len(rows) == self.batch
        done = group == self.group and self._move([*self.keys, *self.values], rows, group, used)
        if done:
            self.keys = [held[: len(rows)] for held in self.keys]
            self.values = [held[: len(rows)] for held in self.values]
        for held in () if done else (self.keys, self.values):
            for layer, old in enumerate(held):
                make = old.new_empty if self.even else old.new_zeros
                new = old if same else make((len(rows), *old.shape[1:]))
                new[:, :used] = old[:, :used].index_select(0, rows)
                held[layer] = new
        self._select_sources(rows[::group] // self.group, self.batch // self.group)
        self.documents, self.lengths = self.documents[rows], self.lengths[rows]
        self.batch, self.group = len(rows), group

    def _select_sources(self, kept: Tensor, count: int) -> None:
        """Go on with these of `count` sources; beams that change places leave theirs alone."""
        if self.source is None or kept.tolist() == list(range(count)):
            return
        held = [part for pair in self.memory.values() for part in pair]
        if held and self._move(held, kept, 1, held[0].shape[1]):
            kept_rows = slice(len(kept))
            self.memory = {n: (k[kept_rows], v[kept_rows]) for n, (k, v) in self.memory.items()}
        else:
            self.memory = {n: (k[kept], v[kept]) for n, (k, v) in self.memory.items()}
        x, real, document = (None if t is None else t[kept] for t in self.source)
        assert x is not None
        self.source = x, real, document

    def _move(self, tensors: list[Tensor], rows: Tensor, group: int, used: int) -> bool:
        """Re-order rows in place by the machine's kernel, if there is one that can."""
        return self.move is not None and self.move(tensors, rows, group, used)

    def copy(self) -> Cache:
        """An independent cache with the same contents."""
        self.move = None  # the copy shares what was read of the source
        made = copy(self)
        made.keys = [held.clone() for held in self.keys]
        made.values = [held.clone() for held in self.values]
        made.documents, made.memory = self.documents.clone(), dict(self.memory)
        return made
