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
        self.biases: dict[int, Tensor] = {}  # (B, size + 1), of layers whose keys have one
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
            doing = "appending to the cache"
            fault = f"{int(self.lengths[row])} tokens held and {int(added[row])} new ones"
            raise UsageError(doing, fault, f"at most {self.size} in all", "make the cache larger")
        self.used = used

    def _place_documents(self, document: Tensor | None) -> Tensor:
        """Positions of new tokens in packed rows: they restart with each document."""
        if document is None or (not self.packed and self.plain):
            fault = "no documents" if document is None else "documents"
            other = "with" if document is None else "without"
            raise UsageError(
                "appending to the cache", f"{fault}, after tokens {other} them", "one or the other"
            )
        self.packed = True
        self.documents.scatter_(1, self.slots, document)
        self.documents[:, self.size] = -1
        slot = torch.arange(self.size + 1, device=self.slots.device)
        same = self.documents[:, None, :] == document[:, :, None]
        return (same & (slot < self.slots[:, :, None])).sum(-1)

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

    def append_bias(self, layer: int, bias: Tensor) -> Tensor:
        """Write a number to add to scores of each new key (B, T); returns all (B, span)."""
        if layer not in self.biases:
            self.biases[layer] = bias.new_zeros(self.batch, self.size + 1)
        return self.biases[layer].scatter_(1, self.slots, bias)[:, : self.span]

    @property
    def span(self) -> int:
        """Number of slots that attention runs over."""
        return min(-(-self.used // self.tile) * self.tile, self.size)

    def allow(self) -> Tensor | None:
        """Which slots each new token may see, (B, 1, T, span), or a bias; None if plain causal."""
        if self.even and self.slots.shape[1] in (1, self.used):
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
        self.biases = {layer: bias[rows] for layer, bias in self.biases.items()}
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

    def shorten(self, count: int) -> None:
        """Hold only the first `count` tokens of each row; rows that are all as long."""
        self.used, self.lengths = count, torch.full_like(self.lengths, count)

    def copy(self) -> Cache:
        """An independent cache with the same contents."""
        self.move = None  # the copy shares what was read of the source
        twin = copy(self)
        twin.keys = [held.clone() for held in self.keys]
        twin.values = [held.clone() for held in self.values]
        twin.documents, twin.memory = self.documents.clone(), dict(self.memory)
        twin.biases = {layer: bias.clone() for layer, bias in self.biases.items()}
        return twin


class FixedCache(Cache):
    """Keys and values of `batch` sources: a prompt, then one token at a time in `width` rows each.

    Shapes and addresses do not change from step to step, so that a step can be recorded once and
    replayed. Nothing is moved when a beam goes on from another prefix: the keys of all rows of a
    source lie side by side, the rows ask together, and `bias` says which keys are a row's own past.
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
        self.memory, self.biases = {}, {}
        self.source, self.packed, self.tile = None, False, 1
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

    def append_bias(self, layer: int, bias: Tensor) -> Tensor:
        """Write a number to add to scores of each new key; all of them (A, span)."""
        if layer not in self.biases:
            self.biases[layer] = bias.new_zeros(self.batch, self.size)
        held = self.biases[layer]
        if self.stepping:
            held.index_copy_(1, self.index, bias.view(self.batch, self.width))
        else:
            held[:, : self.open] = bias
        return held[:, : self.open]

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
        for layer, bias in other.biases.items():
            self.biases.setdefault(layer, torch.zeros_like(self.place_of, dtype=bias.dtype))
            self.biases[layer][:, : self.filled] = bias[kept, : self.filled]
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
