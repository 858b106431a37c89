"""Block: the one Transformer layer of the package."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.attention import Attention, View
from regard.core.config import BlockConfig
from regard.core.mlp import MLP
from regard.core.tap import Taps


class Context(NamedTuple):
    """What a forward pass sees of its own sequence and of the other one."""

    own: View
    other: View


class Block(nn.Module):
    """Self-attention, optional cross-attention, MLP, each added to the residual stream."""

    def __init__(self, config: BlockConfig, layer: int) -> None:
        super().__init__()
        self.attn = Attention(config, layer)
        self.cross = Attention(config, layer, cross=True) if config.cross else None
        self.mlp = MLP(config)
        self.dropout = nn.Dropout(config.dropout)
        self.drop_path = 0.0  # how often a row skips a part in training (Huang 2016)
        self.pre = config.norm_at == "pre"
        self.residual = True  # set to False on one block to see what the shortcut carries (#44)
        self.at = Taps("resid_pre", "resid_mid", "resid_post")

    def add(self, x: Tensor, part: Attention | MLP, **inputs: View | Tensor | None) -> Tensor:
        """One wiring for every part: norm before it (pre) or after the sum (post)."""
        out: Tensor = part(part.norm(x) if self.pre else x, **inputs)
        if self.training:
            out = self.dropout(out)
            if self.drop_path:
                out = out * F.dropout(out.new_ones(len(out), 1, 1), self.drop_path)
        out = x + out if self.residual else out
        return out if self.pre else cast(Tensor, part.norm(out))

    def forward(self, x: Tensor, ctx: Context, memory: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, T, D); `memory` (B, S, D) is the encoder's output."""
        x = self.add(self.at.resid_pre(x), self.attn, ctx=ctx.own)  # look at the sequence itself
        x = self.at.resid_mid(x)
        if self.cross is not None:
            x = self.add(x, self.cross, ctx=ctx.other, source=memory)  # look at the other one
        return self.at.resid_post(self.add(x, self.mlp))  # think about each position alone
