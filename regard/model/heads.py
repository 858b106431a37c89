"""Output heads: vectors → logits, classes, tags or one pooled vector, all by one module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.core.mlp import activation
from regard.core.norm import build_norm
from regard.model.config import HeadConfig


class Head(nn.Module):
    """Take positions, transform them (dense, activation, norm), score them; each step optional."""

    def __init__(self, config: HeadConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.dense = nn.Linear(dim, dim) if config.transform else None
        self.act = activation(config.transform) if config.transform else None
        self.norm = build_norm("layer" if config.norm else "none", dim, config.eps)
        self.out = nn.Linear(dim, config.size, bias=config.bias) if config.size else None

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, T, size), or (B, size) when only the first position is taken."""
        x = self.prepare(x, real)
        return x if self.out is None else self.out(x)

    def prepare(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """All but the scores; training computes those in chunks (`train/cross_entropy.py`).

        The first token of a row is not its first column when padding `real` (B, T) is on the left.
        """
        if self.config.take == "first":
            x = x[:, 0] if real is None else x[torch.arange(len(x)), real.int().argmax(-1)]
        if self.dense is not None and self.act is not None:
            x = self.norm(self.act(self.dense(x)))
        return x if self.config.scale is None else x * self.config.scale
