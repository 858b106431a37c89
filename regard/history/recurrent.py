"""Recurrent models: what was before the Transformer, behind the same calls as `Model`.

`encode`, `decode` and `cache` are all that differs, so the loop, the searches, the taps and the
commands serve both. A recurrent model's cache is its state: of the same size however long the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor, nn

from regard.core.cache import Cache
from regard.core.init import initialise
from regard.core.tap import Taps
from regard.errors import UsageError
from regard.history.cells import KINDS, Cell, State, initialise_cell
from regard.history.config import RecurrentConfig
from regard.model.config import ModelConfig
from regard.model.front import build_front
from regard.model.heads import Head
from regard.model.model import Memory, Model


class Past(Cache):
    """What a recurrent decoder remembers of each row; stands where a Transformer's cache does."""

    def __init__(self, states: Sequence[State], batch: int) -> None:
        self.states = list(states)  # of each layer
        self.source = None
        self.memory = {}
        self.move = None
        self.batch, self.group, self.used = batch, 1, 0

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows (N,)."""
        self.states = [tuple(part[rows] for part in state) for state in self.states]
        self._select_sources(rows[::group] // self.group, self.batch // self.group)
        self.batch, self.group = len(rows), group

    def detach(self) -> None:
        """Let no gradient into what was read before (truncated BPTT)."""
        self.states = [tuple(part.detach() for part in state) for state in self.states]

    def copy(self) -> Past:
        """An independent one with the same contents: states are replaced, never changed."""
        made = copy(self)
        made.states, made.memory = list(self.states), dict(self.memory)
        return made


class Layers(nn.Module):
    """Cells one above the other."""

    def __init__(self, config: RecurrentConfig, dim: int) -> None:
        super().__init__()
        make, hidden = KINDS[config.cell], config.hidden
        self.cells = nn.ModuleList(
            make(dim if n == 0 else hidden, hidden) for n in range(config.depth)
        )
        self.dropout = nn.Dropout(0.0)
        self.at = Taps("embed")

    def start(self, rows: int) -> list[State]:
        """The state of each layer before anything is read."""
        return [cell.start(rows) for cell in self.each()]

    def each(self) -> list[Cell]:
        """The cells, from the input up."""
        return [cell for cell in self.cells if isinstance(cell, Cell)]

    def forward(
        self, x: Tensor, states: Sequence[State], real: Tensor | None = None
    ) -> tuple[Tensor, list[State]]:
        """x (B, T, D) after `states` → (B, T, n), the last layer's states, and all after x."""
        x, lengths, back = compact(self.at.embed(x), real)
        after = []
        for cell, state in zip(self.each(), states, strict=True):
            x, new = cell.read(x, state, lengths)
            x = self.dropout(x)
            after.append(new)
        return (x if back is None else take(x, back)), after


def compact(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Rows with their tokens first and padding last, their lengths, and the way back."""
    if real is None:
        return x, None, None
    order = (~real).long().argsort(dim=1, stable=True)  # (B, T)
    return take(x, order), real.sum(1), order.argsort(1)


def take(x: Tensor, order: Tensor) -> Tensor:
    """Columns of each row of (B, T, D) in another order."""
    return x.gather(1, order[:, :, None].expand(-1, -1, x.shape[2]))


class Recurrent(Model):
    """A recurrent language model."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.front = build_front(config.front)
        self.encoder = None
        self.target = None
        self.decoder = Layers(config, config.front.dim)  # type: ignore[assignment]
        self.head = Head(config.head, config.hidden)
        self.at = Taps("logits")
        self.tie()

    @classmethod
    def fresh(cls, config: ModelConfig, seed: int = 0) -> Model:
        """Newly drawn weights: cells as `initialise_cell` says, the rest keeps size."""
        assert isinstance(config, RecurrentConfig)
        model = cls(config)
        initialise(model, seed)
        generator = torch.Generator().manual_seed(seed)
        for module in model.modules():
            if isinstance(module, nn.RNNBase):
                initialise_cell(module, generator)
            elif isinstance(module, nn.Linear | nn.Embedding) and module is not model.head.out:
                spread = module.weight.shape[1] ** -0.5
                nn.init.normal_(module.weight, 0.0, spread, generator)
        return model.eval()

    def tie(self) -> None:
        """Make shared weights one parameter, and the cells' one piece of memory on a GPU."""
        super().tie()
        for module in self.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()

    def cache(self, batch: int, size: int = 0, tile: int = 1) -> Past:
        """The state before anything is read; `size` does not matter."""
        assert isinstance(self.decoder, Layers)
        return Past(self.decoder.start(batch), batch)

    def carry(self, rows: int) -> Past | None:
        """A state to be taken from one batch to the next."""
        return self.cache(rows)

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        mask: Tensor | None = None,
        documents: Tensor | None = None,
        cache: Cache | None = None,
        prefix: Tensor | None = None,
    ) -> Tensor:
        """Vectors that predict the token after each of `ids` (B, T), after what `cache` has read.

        The cache has read them then. Gradients flow into its old states, unless detached.
        """
        refuse_packing(documents, prefix)
        assert isinstance(self.decoder, Layers)
        past = self.cache(len(ids)) if cache is None else cache
        assert isinstance(past, Past)
        x = self.embed(self.front, ids, mask, None).x
        x, past.states = self.decoder(x, past.states, mask)
        return x


def refuse_packing(documents: Tensor | None, prefix: Tensor | None) -> None:
    """One text to a row, read from left to right."""
    if documents is not None or prefix is not None:
        found = "a prefix" if documents is None else "several documents packed in a row"
        raise UsageError("running a recurrent model", found, "one text in each row")
