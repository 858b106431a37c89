"""Text front: token, position and segment embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.core import mask as masks
from regard.core.cache import Cache
from regard.core.norm import build_norm
from regard.core.position import Learned, Sinusoidal
from regard.errors import DataError, UsageError
from regard.model.config import TextConfig
from regard.model.front import Sequence


class TextFront(nn.Module):
    """Token ids (B, T) → vectors; positions follow the mask, so padding needs nothing else."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.dim)
        self.positions: Learned | Sinusoidal | None = None
        if config.position == "learned":
            self.positions = Learned(config.length or 512, config.dim, config.offset)
        elif config.position != "none":
            self.positions = Sinusoidal(config.dim, halves=config.position == "halves")
        self.segments = nn.Embedding(config.segments, config.dim) if config.segments else None
        self.norm = build_norm(config.norm, config.dim, config.eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        ids: Tensor,
        real: Tensor | None = None,
        document: Tensor | None = None,
        segment: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Sequence:
        """ids, real, document, segment (B, T) → vectors (B, T, D) with their positions."""
        positions = self.place(ids, real, document, cache)
        x = self.tokens(ids)
        if self.config.scale:
            x = x * self.config.dim**0.5
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segment is None else segment)
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)
        return Sequence(self.dropout(self.norm(x)), positions, real, document)

    def place(
        self, ids: Tensor, real: Tensor | None, document: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """Position of each token in its own sequence, (B or 1, T)."""
        if cache is not None:
            if self.config.spread:  # how far apart they are depends on the length
                raise UsageError("decoding", "positions that are spread", "an encoder for them")
            self.check_length(ids, real, cache)
            return cache.place(real, document, ids.shape[1])
        if real is None and document is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        else:
            real_or_all = torch.ones_like(ids, dtype=torch.bool) if real is None else real
            positions = masks.positions(real_or_all, document)
        if self.config.spread:
            return self.spread(positions)
        size = None if self.positions is None else self.positions.size
        if size is not None and ids.shape[1] > size and int(positions.max()) >= size:
            raise too_long(int(positions.max()) + 1, size)
        return positions

    def spread(self, positions: Tensor) -> Tensor:
        """Positions (B or 1, T) in the same order among `spread`: drawn in training, else even.

        So a model has seen all positions that longer sequences have (Ruoss et al. 2023).
        """
        count, width = self.config.spread, positions.shape[1]
        if width > count:
            raise too_long(width, count)
        if not self.training:
            size = positions.amax(1, keepdim=True) + 1
            return positions * count // size
        drawn = torch.rand(len(positions), count, device=positions.device)
        ordered = drawn.topk(width, dim=1).indices.sort(1).values  # (B, T)
        return ordered.gather(1, positions)

    def check_length(self, ids: Tensor, real: Tensor | None, cache: Cache) -> None:
        """Fail before the cache is touched when a row would grow past a learned table."""
        size = None if self.positions is None else self.positions.size
        if size is None or cache.packed or cache.used + ids.shape[1] <= size:
            return
        longest = cache.lengths + (ids.shape[1] if real is None else real.sum(-1))
        if int(longest.max()) > size:
            raise too_long(int(longest.max()), size)


def too_long(count: int, size: int) -> DataError:
    """The error for a sequence past a learned position table."""
    return DataError(
        "embedding positions",
        f"a sequence of {count} tokens",
        f"at most {size}, the rows of this model's learned position table",
        "shorten or split the input, or use a model with rotary, relative, ALiBi or "
        "sinusoidal positions, which have no table",
    )
