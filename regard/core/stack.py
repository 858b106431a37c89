"""Stack: blocks one after the other. An encoder and a decoder are both a Stack."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn

from regard.core import mask as masks
from regard.core.attention import View
from regard.core.block import Block, Context
from regard.core.cache import Cache
from regard.core.config import StackConfig
from regard.core.norm import build_norm
from regard.core.position import Alibi, GraphBias, RelativeBias, Rotary
from regard.core.tap import Taps


class Stack(nn.Module):
    """An encoder when its blocks are not causal, a decoder when they are."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config, block = config, config.block
        self.blocks = nn.ModuleList(Block(block, layer) for layer in range(config.depth))
        self.norm = build_norm(block.norm if config.final_norm else "none", block.dim, block.eps)
        self.rotary: Rotary | None = None
        self.bias: RelativeBias | Alibi | GraphBias | None = None
        if config.position == "rotary":
            self.rotary = Rotary(block.width, config.rotary_base, config.rotary_scaling)
        elif config.position == "relative":
            self.bias = RelativeBias(block.heads, config.buckets, config.distance, block.causal)
        elif config.position == "alibi":
            self.bias = Alibi(block.heads)
        elif config.position == "graph":
            self.bias = GraphBias(block.heads, config.buckets, config.distance)
        self.bridge = None if config.bridge is None else nn.Linear(block.dim, config.bridge)
        self.at = Taps("embed", "final", *(() if self.bridge is None else ("bridge",)))

    def forward(self, x: Tensor, ctx: Context, memory: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, T, D), or as wide as the bridge.

        Under autocast to bf16 the residual stream is bf16 too: half the memory and traffic.
        """
        kind = x.device.type
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            x = x.to(torch.bfloat16)
        x = self.at.embed(x)
        for block in self.blocks:
            x = block(x, ctx, memory)
        x = self.at.final(self.norm(x))
        return x if self.bridge is None else self.at.bridge(self.bridge(x))

    def view(
        self,
        x: Tensor,
        positions: Tensor,
        real: Tensor | None = None,
        document: Tensor | None = None,
        cache: Cache | None = None,
    ) -> View:
        """What each token may see of its own sequence; `cache.place` must have come before.

        x (B, T, D); positions, real (True = token, not padding), document (B, T). In a graph,
        positions are paths (B, T, T, 1 + kinds) between its nodes.
        """
        block, count = self.config.block, x.shape[1]
        parts: list[Tensor] = []  # masks and biases
        asking, keys, ordered = positions, positions, not block.causal
        if cache is not None:
            asking, keys, held = cache.asking(positions), cache.positions(), cache.allow()
            parts, ordered = ([], ordered) if held is None else ([held], True)
        else:
            parts += [] if real is None else [masks.padding(real)]
            parts += [] if document is None else [masks.documents(document, document)]
        if block.window is not None:
            parts.append(masks.window(asking, keys, block.window))
        if self.bias is not None:
            parts.append(self.bias(asking, keys).to(x.dtype))
        plain = not ordered and not parts  # the kernel's own causal mask will do
        if not ordered and not plain:
            parts.append(masks.causal(count, keys.shape[1], x.device))
        if count == 1:  # one query is the last one and sees every key
            plain = False
        return join_view(
            *parts,
            dead=real is not None and (cache is None or cache.packed),
            causal=plain,
            rotation=None if self.rotary is None else self.rotary(positions, x),
            cache=cache,
        )


def cross_view(
    real: Tensor | None = None,
    documents: tuple[Tensor, Tensor] | None = None,
    cache: Cache | None = None,
) -> View:
    """What a decoder may see of its memory: real (B, S); documents of the queries and the keys."""
    parts = [] if real is None else [masks.padding(real)]
    parts += [] if documents is None else [masks.documents(*documents)]
    return join_view(*parts, cache=cache)


def join_view(
    *parts: Tensor,
    dead: bool = True,
    causal: bool = False,
    rotation: tuple[Tensor, Tensor] | None = None,
    cache: Cache | None = None,
) -> View:
    """Fold allow-masks and biases into one mask; `dead`: a query may see no key at all."""
    allows = [part for part in parts if part.dtype == torch.bool]
    biases = [part for part in parts if part.dtype != torch.bool]
    mask, live = reduce(torch.add, biases) if biases else None, None
    if allows:
        allow = reduce(torch.logical_and, allows)
        if dead:
            allow, live = masks.live_rows(allow)
        mask = allow if mask is None else mask.masked_fill(~allow, -torch.inf)
    return View(mask, live, causal, rotation, cache)
