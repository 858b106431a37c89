"""Recurrent encoder-decoders behind the calls of `Model`: one vector z*, or additive attention."""

from __future__ import annotations

from torch import Tensor, nn

from regard.core.cache import Cache
from regard.core.tap import Taps
from regard.history.bahdanau import Decoder, Encoder
from regard.history.config import RecurrentConfig
from regard.history.recurrent import Past, Recurrent, refuse_packing
from regard.model.config import ModelConfig
from regard.model.front import build_front
from regard.model.heads import Head
from regard.model.model import Memory, Model


class RecurrentPair(Recurrent):
    """Reads a source, then writes a target."""

    def __init__(self, config: RecurrentConfig) -> None:
        nn.Module.__init__(self)
        assert config.target is not None
        self.config, dim = config, config.target.dim
        self.front = build_front(config.front)
        encoder = Encoder(config, config.front.dim)
        self.encoder = encoder  # type: ignore[assignment]
        self.target = build_front(config.target)
        self.decoder = Decoder(config, dim, encoder.width)  # type: ignore[assignment]
        self.head = Head(config.head, dim)
        self.at = Taps("logits")
        self.tie()

    def cache(self, batch: int, size: int = 0, tile: int = 1) -> Past:
        """The state of a decoder that has read no source yet."""
        return Past([], batch)

    def carry(self, rows: int) -> Past | None:
        """Nothing: each pair is a text of its own."""
        return None

    def encode(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        documents: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Memory:
        """Ids (B, S) → states (B, S, 2 n), or z* (B, 1, n), which has no padding."""
        refuse_packing(documents, None)
        assert self.encoder is not None
        x = self.encoder(self.embed(self.front, inputs, mask, None).x, mask)
        return Memory(x, None if self.config.attention == "none" else mask)

    def decode(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        mask: Tensor | None = None,
        documents: Tensor | None = None,
        cache: Cache | None = None,
        prefix: Tensor | None = None,
    ) -> Tensor:
        """Vectors that predict the token after each of `ids` (B, T)."""
        refuse_packing(documents, prefix)
        assert memory is not None and isinstance(self.decoder, Decoder)
        past = self.cache(len(ids)) if cache is None else cache
        assert isinstance(past, Past)
        if not past.states:
            past.states = [self.decoder.start(memory.x, memory.real)]
            if self.decoder.cross is not None:  # U h_j, once per source
                past.memory = {0: (self.decoder.cross.k(memory.x), memory.x)}
        keys = past.memory[0][0] if past.memory else None
        x, masks = self.embed(self.reader, ids, mask, None).x, (mask, memory.real)
        x, state = self.decoder(x, past.states[0], memory.x, keys, masks)
        past.states = [state]
        return x


def model_class(config: ModelConfig) -> type[Model]:
    """The class of a model by its shape."""
    if not isinstance(config, RecurrentConfig):
        return Model
    return Recurrent if config.target is None else RecurrentPair
