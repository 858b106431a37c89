"""Attention: each position asks (q), is asked (k) and answers (v) (Vaswani 2017, eq. 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core import mask as masks
from regard.core.cache import Cache
from regard.core.config import BlockConfig
from regard.core.norm import RMSNorm, build_norm
from regard.core.position import rotate
from regard.core.similarity import similarity
from regard.core.tap import Taps

Joint = Callable[[Tensor], list[Tensor]]  # several linear maps of one input
Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool, float], Tensor | None]


@dataclass(frozen=True)
class View:
    """What the queries of one forward pass may see; the same for every block."""

    mask: Tensor | None = None
    """(B or 1, H or 1, T, S): boolean, True = may attend, or a bias to add, −inf = may not."""
    live: Tensor | None = None
    """(B or 1, 1, T, 1): queries that see at least one key; None when all do."""
    causal: bool = False
    """A plain causal mask, left to the kernel; `mask` is None then."""
    rotation: tuple[Tensor, Tensor] | None = None
    """Cosine and sine for rotary positions, each (B, T, 1, K)."""
    cache: Cache | None = None
    """Earlier keys and values."""

    def repeat(self, count: int) -> View:
        """This view for each of `count` neighbouring rows."""
        mask = self.mask
        if mask is not None:  # one for all, or, where the rows ask together, one for each
            one = mask.shape[2] == 1
            mask = mask.repeat_interleave(count, 0) if one else unfold(mask, count)
        live = None if self.live is None else self.live.repeat_interleave(count, 0)
        return replace(self, mask=mask, live=live)


class Attention(nn.Module):
    """Queries from `x`, keys and values from `source` or from `x` itself.

    Multi-head, grouped-query and multi-query by the number of key-value heads. Runs fused unless
    somebody listens to the scores or the pattern: a request to look is never ignored.
    """

    def __init__(self, config: BlockConfig, layer: int, cross: bool = False) -> None:
        super().__init__()
        heads, groups, width = config.heads, config.groups, config.width
        self.norm = build_norm(config.norm, config.dim, config.eps)
        self.q = nn.Linear(config.dim, heads * width, bias="q" in config.bias)
        self.k = nn.Linear(config.dim, groups * width, bias="k" in config.bias)
        self.v = nn.Linear(config.dim, groups * width, bias="v" in config.bias)
        self.o = nn.Linear(heads * width, config.dim, bias="o" in config.bias)
        self.q_norm = RMSNorm(width, config.eps) if config.qk_norm else None
        self.k_norm = RMSNorm(width, config.eps) if config.qk_norm else None
        self.heads, self.groups, self.width = heads, groups, width
        self.layer, self.cross = layer, cross
        self.scale = width**-0.5 if config.scale is None else config.scale
        self.similarity = similarity(config.similarity)
        self.fusible = config.similarity == "dot"
        self.joint: Joint | None = None  # q, k and v packed as one product (model/precision.py)
        self.kernel: Kernel | None = None  # of the machine; its answer is None where it cannot
        self.recordable = True  # whether steps may run at fixed shapes (decode/cuda_graph.py)
        self.at = Taps("q", "k", "v", "scores", "pattern", "z", "out")

    def forward(self, x: Tensor, ctx: View, source: Tensor | None = None) -> Tensor:
        """x (B, T, D), source (B, S, D) → (B, T, D)."""
        fresh = self.project(x, source, ctx)
        q = fresh[0].unflatten(-1, (self.heads, self.width))  # (B, T, H, K)
        q = q if self.q_norm is None else self.q_norm(q)
        q = q if ctx.rotation is None else rotate(q, ctx.rotation)
        k, v = self.keys_values(fresh[1:], ctx)  # (B, G, S, K)
        z = self.look(self.at.q(q).transpose(1, 2), k, v, ctx)  # (B, H, T, K)
        z = self.at.z(z.transpose(1, 2))  # (B, T, H, K)
        return self.at.out(self.o(z.flatten(-2)))

    def project(self, x: Tensor, source: Tensor | None, ctx: View) -> list[Tensor]:
        """Queries of `x`, keys and values of the source; nothing but queries for a known memory.

        In training, maps of one input are one product: larger products run nearer to the speed of
        the machine, and their weights are read for the gradient anyway.
        """
        if self.cross and ctx.cache is not None and self.layer in ctx.cache.memory:
            return [self.q(x)]
        if self.joint is not None and source is None:
            return self.joint(x)
        if not self.training:
            read = x if source is None else source
            return [self.q(x), self.k(read), self.v(read)]
        if source is None:
            return joined(x, self.q, self.k, self.v)
        return [self.q(x), *joined(source, self.k, self.v)]

    def keys_values(self, fresh: list[Tensor], ctx: View) -> tuple[Tensor, Tensor]:
        """Keys and values, new and cached, each (B, G, S, K); a memory is projected once."""
        if not fresh:
            assert ctx.cache is not None
            return ctx.cache.memory[self.layer]
        k, v = (part.unflatten(-1, (self.groups, self.width)) for part in fresh)  # (B, S, G, K)
        k = k if self.k_norm is None else self.k_norm(k)
        k = k if ctx.rotation is None else rotate(k, ctx.rotation)
        k, v = self.at.k(k), self.at.v(v)
        if ctx.cache is None:
            return k.transpose(1, 2), v.transpose(1, 2)
        if self.cross:
            return ctx.cache.memory.setdefault(self.layer, (per_head_copy(k), per_head_copy(v)))
        return ctx.cache.append(self.layer, k, v)

    def look(self, q: Tensor, k: Tensor, v: Tensor, ctx: View) -> Tensor:
        """Average the values by similarity of query and key, fused when nobody listens."""
        beams = len(q) // len(k) if len(k) else 1  # neighbouring rows that share a source
        if self.fusible and self.at.scores.fn is None and self.at.pattern.fn is None:
            z = None
            if self.kernel is not None:
                z = self.kernel(q, k, v, ctx.mask, ctx.causal, self.scale)
            if z is not None:
                return z if ctx.live is None else z * ctx.live.repeat_interleave(beams, 0)
            return unfold(self.fused(fold(q, beams), k, v, ctx), beams)
        if beams > 1:
            k, v = k.repeat_interleave(beams, 0), v.repeat_interleave(beams, 0)
            ctx = ctx.repeat(beams)
        return self.at.pattern(self.pattern(q, k, ctx)) @ self.per_head(v)

    def fused(self, q: Tensor, k: Tensor, v: Tensor, ctx: View) -> Tensor:
        """Attention in one kernel, which keeps scores and pattern to itself."""
        grouped = self.groups != self.heads
        z = F.scaled_dot_product_attention(
            q, k, v, ctx.mask, is_causal=ctx.causal, scale=self.scale, enable_gqa=grouped
        )
        return z if ctx.live is None else z * ctx.live

    def pattern(self, q: Tensor, k: Tensor, ctx: View) -> Tensor:
        """Attention weights (B, H, T, S): rows are non-negative and sum to one."""
        weights = self.at.scores(self.masked_scores(q, k, ctx)).softmax(-1)
        return weights if ctx.live is None else weights * ctx.live

    def masked_scores(self, q: Tensor, k: Tensor, ctx: View) -> Tensor:
        """Similarity of each query and key (B, H, T, S), −inf where it may not look."""
        scores = self.similarity(q, self.per_head(k), self.scale)
        mask = masks.causal(q.shape[-2], k.shape[-2], q.device) if ctx.causal else ctx.mask
        if mask is not None and mask.dtype == torch.bool:
            return scores.masked_fill(~mask, -torch.inf)
        return scores if mask is None else scores + mask

    def per_head(self, x: Tensor) -> Tensor:
        """Give each query head its group's keys or values: (B, G, S, K) → (B, H, S, K)."""
        return x if self.groups == self.heads else x.repeat_interleave(self.heads // self.groups, 1)


def per_head_copy(x: Tensor) -> Tensor:
    """(B, S, G, K) → (B, G, S, K) of its own: a cache may move its rows in place."""
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format)


def fold(q: Tensor, beams: int) -> Tensor:
    """Rows that share a source as more queries of one row: (B, H, T, K) → (B/n, H, n·T, K)."""
    return q if beams == 1 else q.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)


def unfold(z: Tensor, beams: int) -> Tensor:
    """The inverse of `fold`."""
    return z if beams == 1 else z.unflatten(2, (beams, -1)).transpose(1, 2).flatten(0, 1)


def joined(x: Tensor, *maps: nn.Linear) -> list[Tensor]:
    """Several linear maps of one input as one product; maps that do more are called one by one.

    A class of maps that only computes its product in another way has it as `product`.
    """
    kinds, biased = {type(linear) for linear in maps}, {linear.bias is None for linear in maps}
    kind = kinds.pop()
    product = F.linear if kind is nn.Linear else getattr(kind, "product", None)
    if kinds or len(biased) > 1 or product is None:
        return [linear(x) for linear in maps]
    weight = torch.cat([linear.weight for linear in maps])
    bias = None if biased.pop() else torch.cat([linear.bias for linear in maps])
    return list(product(x, weight, bias).split([linear.out_features for linear in maps], -1))
