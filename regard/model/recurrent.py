"""Recurrent models: what was before the Transformer, as other parts of the same `Model`.

`encoder` and `decoder` are recurrent layers instead of stacks of blocks, so the training loop, the
searches, the taps and the commands serve both. A recurrent model's cache is its state: of one size
however long the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.core.cache import Cache
from regard.core.tap import Taps
from regard.errors import UsageError
from regard.model.bahdanau import Decoder, Encoder
from regard.model.cells import CELL_TYPES, LSTMCell, State, compact, take
from regard.model.config import ModelConfig, RecurrentConfig
from regard.model.fronts import Sequence as Embedded
from regard.model.model import Memory, Model


class Past(Cache):
    """What a recurrent decoder remembers of each row; stands where a Transformer's cache does."""

    def __init__(self, states: Sequence[State], batch: int) -> None:
        self.states = list(states)  # of each layer
        self.source, self.memory, self.move = None, {}, None
        self.batch, self.group, self.used, self.packed = batch, 1, 0, False
        self.lengths = torch.zeros(batch, 1, dtype=torch.long)

    def place(self, real: Tensor | None, document: Tensor | None, count: int) -> Tensor:
        """Positions (B, T) of new tokens: only edits ask for them, the order is that of reading."""
        real = torch.ones(self.batch, count, dtype=torch.bool) if real is None else real
        lengths = self.lengths.to(real.device)
        self.lengths = lengths + real.sum(1, keepdim=True)
        return lengths + (real.cumsum(1) - 1).clamp(min=0)

    def select(self, rows: Tensor, group: int = 1) -> None:
        """Go on with these rows (N,)."""
        self.states = [tuple(part[rows] for part in state) for state in self.states]
        self.lengths = self.lengths[rows.to(self.lengths.device)]
        self._select_sources(rows[::group] // self.group, self.batch // self.group)
        self.batch, self.group = len(rows), group

    def detach(self) -> None:
        """Let no gradient into what was read before (truncated BPTT)."""
        self.states = [tuple(part.detach() for part in state) for state in self.states]

    def copy(self) -> Past:
        """An independent one with the same contents: states are replaced, never changed."""
        twin = copy(self)
        twin.states, twin.memory = list(self.states), dict(self.memory)
        return twin


class Layers(nn.Module):
    """Cells one above the other: the decoder of a language model."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        make, hidden = CELL_TYPES[config.cell], config.hidden
        self.cells: Any = nn.ModuleList(
            make(config.front.dim if n == 0 else hidden, hidden) for n in range(config.depth)
        )
        self.dropout, self.at = nn.Dropout(0.0), Taps("embed")

    def start(self, rows: int) -> list[State]:
        """The state of each layer before anything is read."""
        return [cell.start(rows) for cell in self.cells]

    def forward(
        self, x: Tensor, states: Sequence[State], real: Tensor | None = None
    ) -> tuple[Tensor, list[State]]:
        """x (B, T, D) after `states` → (B, T, n), the last layer's states, and all after x."""
        x, lengths, back = compact(self.at.embed(x), real)
        after = []
        for cell, state in zip(self.cells, states, strict=True):
            x, new = cell.read(x, state, lengths)
            x = self.dropout(x)
            after.append(new)
        return (x if back is None else take(x, back)), after


class Recurrent(Model):
    """A recurrent language model, or an encoder-decoder where the config has a target."""

    config: RecurrentConfig

    def build_part(self, name: str) -> Any:
        """Layers for a language model; encoder and decoder of sentence pairs."""
        if self.config.target is None:
            return Layers(self.config) if name == "decoder" else None
        return Encoder(self.config) if name == "encoder" else Decoder(self.config)

    @classmethod
    def fresh(cls, config: ModelConfig, seed: int = 0) -> Model:
        """Newly drawn weights: cells uniform in ±1/√n as torch's, all else so that size is kept.

        An LSTM's forget gates begin open (bias 1, Gers 2000).
        """
        model = super().fresh(config, seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.RNNBase):
                    for name, weight in module.named_parameters():
                        drawn = torch.rand(weight.shape, generator=generator) * 2 - 1
                        scale = module.hidden_size**-0.5 if name.startswith("weight") else 0
                        weight.copy_(drawn * scale)
                    if isinstance(module, LSTMCell):
                        module.bias_ih_l0[module.hidden_size : 2 * module.hidden_size] = 1.0
                elif isinstance(module, nn.Linear | nn.Embedding) and module is not model.head.out:
                    nn.init.normal_(module.weight, 0.0, module.weight.shape[1] ** -0.5, generator)
        return model

    def tie(self) -> None:
        """Make shared weights one parameter, and the cells' one piece of memory on a GPU."""
        super().tie()
        for module in self.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()

    def cache(self, batch: int, size: int = 0, tile: int = 1) -> Past:
        """The state before anything is read, of a pair before its source; `size` is no matter."""
        return Past(self.decoder.start(batch) if isinstance(self.decoder, Layers) else [], batch)

    def carry(self, rows: int) -> Past | None:
        """A state to be taken from one batch to the next; each pair is a text of its own."""
        return self.cache(rows) if self.config.target is None else None

    def read(self, source: Embedded) -> Memory:
        """Vectors (B, S, D) → states (B, S, 2 n), or z* (B, 1, n), which has no padding."""
        refuse_packing(source)
        assert isinstance(self.encoder, Encoder)
        x = self.encoder(source.x, source.real)
        return Memory(x, None if self.config.attention == "none" else source.real)

    def write(self, target: Embedded, memory: Memory | None, cache: Cache | None) -> Tensor:
        """Vectors (B, T, D) → those that predict the tokens after, after what `cache` has read.

        The cache has read them then. Gradients flow into its old states, unless detached.
        """
        refuse_packing(target)
        past = self.cache(len(target.x)) if cache is None else cache
        assert isinstance(past, Past)
        if memory is None:
            x, past.states = cast(Layers, self.decoder)(target.x, past.states, target.real)
            return cast(Tensor, x)
        assert isinstance(self.decoder, Decoder)
        if not past.states:
            past.states = self.decoder.start(memory.x, memory.real)
            if self.decoder.cross is not None:  # U h_j, once per source
                past.memory = {0: (self.decoder.cross.k(memory.x), memory.x)}
        keys = past.memory[0][0] if past.memory else None
        x, past.states = self.decoder(target.x, past.states, target.real, *memory[:2], keys)
        return cast(Tensor, x)


def refuse_packing(text: Embedded) -> None:
    """One text to a row, read from left to right."""
    if text.document is not None:
        fault = "several documents packed in a row"
        raise UsageError("running a recurrent model", fault, "one text in each row")


def model_class(config: ModelConfig) -> type[Model]:
    """The class of a model by its shape."""
    return Recurrent if isinstance(config, RecurrentConfig) else Model
