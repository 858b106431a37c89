"""Output heads: vectors → logits, classes, tags or one pooled vector, all by one module."""

from __future__ import annotations

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

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, size), or (B, size) when only the first position is taken."""
        if self.config.take == "first":
            x = x[:, 0]
        if self.dense is not None and self.act is not None:
            x = self.norm(self.act(self.dense(x)))
        if self.config.scale is not None:
            x = x * self.config.scale
        return x if self.out is None else self.out(x)
