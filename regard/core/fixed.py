"""Fixed cache: keys and values whose shapes and addresses do not change from step to step.

So a step can be recorded once and replayed. Nothing is moved when a beam goes on from another
prefix: the keys of all rows of a source lie side by side, the rows ask together, and `bias` says
which of the keys are a row's own past.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.core import mask as masks
from regard.core.cache import Cache
from regard.core.config import StackConfig
from regard.errors import UsageError


class FixedCache(Cache):
    """Keys and values of `batch` sources: a prompt, then one token at a time in `width` rows each.

    Slots of a source: the columns of its prompt, then `width` for each step.
    """

    def __init__(
        self,
        config: StackConfig,
        batch: int,
        width: int,
        size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        block = config.block
        shape = (2, config.depth, batch, size, block.groups, block.width)
        self.held = torch.zeros(shape, dtype=dtype, device=device)
        self.keys, self.values = list(self.held[0]), list(self.held[1])
        self.batch, self.width, self.size = batch, width, size
        self.bias = torch.zeros(batch, width, size, dtype=dtype, device=device)  # 0 or −inf
        self.own = torch.zeros(batch, width, width, dtype=dtype, device=device)
        self.own.masked_fill_(~torch.eye(width, dtype=torch.bool, device=device), -torch.inf)
        self.place_of = torch.zeros(batch, size, dtype=torch.long, device=device)  # of each slot
        self.lengths = torch.zeros(batch * width, dtype=torch.long, device=device)
        self.index = torch.zeros(width, dtype=torch.long, device=device)  # slots of newest tokens
        self.memory = {}
        self.source = None
        self.packed, self.tile = False, 1
        self.reset()

    def reset(self) -> None:
        """Empty, ready for a prompt. Old values go too: nothing times NaN is NaN."""
        self.held.zero_()
        self.bias.fill_(-torch.inf)
        self.first = self.filled = self.open = 0  # slots: of the prompt, in use, attended to
        self.used = 0  # tokens of the prompt; whether there is room for more is asked before
        self.mask: Tensor | None = None  # (A, 1, T, T) of a padded prompt
        self.stepping = False

    @property
    def span(self) -> int:
        """Number of slots that attention runs over."""
        return self.open

    def place(self, real: Tensor | None, document: Tensor | None, count: int) -> Tensor:
        """Positions of new tokens: of a prompt (A, T), then of each row's next one (A · W, 1)."""
        if document is not None:
            raise UsageError("appending to a fixed cache", "documents", "rows of one text each")
        if self.stepping:
            self.lengths.add_(1)
            self.index.add_(self.width)
            self.bias.index_copy_(2, self.index, self.own)
            return self.lengths[:, None]
        self.first = self.open = count
        every = torch.arange(count, device=self.held.device)
        if real is None:
            self.place_of[:, :count] = every
            self.bias[:, :, :count] = 0.0
        else:
            seen = (every <= every[:, None]) & real[:, None]  # (A, T, T)
            self.mask = (seen | (every == every[:, None]))[:, None]  # padding sees itself
            self.place_of[:, :count] = masks.positions(real)
            self.bias[:, :, :count] = torch.where(real, 0.0, -torch.inf)[:, None]
        return self.place_of[:, :count]

    def start(self, real: Tensor | None) -> None:
        """The prompt, (A, T) with padding or none, is read; what follows are steps."""
        first, device = self.first, self.held.device
        lengths = torch.full((self.batch,), first, device=device)
        if real is not None:
            lengths = real.sum(-1)
        after = torch.arange(self.size - first, device=device) // self.width
        self.place_of[:, first:] = lengths[:, None] + after
        self.lengths.copy_((lengths - 1).repeat_interleave(self.width))
        self.index.copy_(torch.arange(self.width, device=device) + first - self.width)
        self.used, self.filled, self.stepping = first, first, True

    def grow(self, span: int) -> None:
        """Before each step: one more slot for each row, attention over the first `span`."""
        self.filled += self.width
        self.open = span

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the prompt's (A, T, G, K) or a step's (A · W, 1, G, K); all (A, G, span, K)."""
        keys, values = self.keys[layer], self.values[layer]
        if self.stepping:
            shape = (self.batch, self.width, *k.shape[2:])
            keys.index_copy_(1, self.index, k.reshape(shape))
            values.index_copy_(1, self.index, v.reshape(shape))
        else:
            keys[:, : self.open], values[:, : self.open] = k, v
        keys, values = keys[:, : self.open], values[:, : self.open]
        return keys.transpose(1, 2), values.transpose(1, 2)

    def allow(self) -> Tensor | None:
        """A prompt's mask, or the bias (A, 1, W, span) of rows that ask together."""
        return self.bias[:, None, :, : self.open] if self.stepping else self.mask

    def positions(self) -> Tensor:
        """Positions of the held keys, (A, span)."""
        return self.place_of[:, : self.open]

    def asking(self, positions: Tensor) -> Tensor:
        """Rows of a source ask together: (A · W, 1) → (A, W)."""
        return positions.view(self.batch, -1)

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Each row (A · W,) goes on from the past of another one of its source."""
        self.bias.copy_(self.bias.flatten(0, 1).index_select(0, rows).view_as(self.bias))

    def take(self, other: FixedCache, rows: Tensor) -> None:
        """Hold what these rows of another cache held, of as many slots."""
        self.reset()
        self.used, self.filled, self.first = other.used, other.filled, other.first
        self.stepping = True
        kept = rows[:: self.width] // self.width
        for own, old in ((self.keys, other.keys), (self.values, other.values)):
            for new, held in zip(own, old, strict=True):
                new[:, : self.filled] = held[kept, : self.filled]
        self.bias.copy_(other.bias.flatten(0, 1)[rows].view_as(self.bias))
        self.place_of.copy_(other.place_of[kept])
        self.lengths.copy_(other.lengths[rows])
        self.index.copy_(other.index)
        if other.source is not None:
            real = other.source[1]
            memory = {n: (k[kept], v[kept]) for n, (k, v) in other.memory.items()}
            self.remember(memory, None if real is None else real[kept])

    def remember(self, memory: dict[int, tuple[Tensor, Tensor]], real: Tensor | None) -> None:
        """Hold keys and values of a source for each layer, and which of it is real (A, S)."""
        if self.source is None:  # the first one brings the buffers
            self.memory = {n: (k.clone(), v.clone()) for n, (k, v) in memory.items()}
            nothing = self.held.new_zeros(self.batch, 0, 0)  # the source itself is not read again
            self.source = nothing, None if real is None else real.clone(), None
            return
        for layer, pair in memory.items():
            for held, new in zip(self.memory[layer], pair, strict=True):
                held.copy_(new)
        if real is not None and self.source[1] is not None:
            self.source[1].copy_(real)
