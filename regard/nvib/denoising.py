"""Denoising attention: a query is a vector of the source with noise, the answer its expectation.

q is read as u = q W_K, a vector of the source plus Normal(0, s), s = √K. Of points z with weights π
the expectation is attention with scores q · k / s − |z|² / 2s + log π. Of Gaussians with means μ
and variances σ² it is attention over μ s / (σ² + s) by how likely u is under each of them, and as
far as what is looked at is uncertain, u itself: σ² / (σ² + s) of it. Both run in the fused kernel.
How likely leaves out −u² / 2(σ² + s), as the paper does: it is the same for all points, which is
what training draws, so that nothing keeps queries as short as a vector with noise would be; with it
the widest component, the prior's, has all of the attention of long ones.

`attach` puts it on attentions of any model in place, with a bottleneck before each: the object
stays and gets another class, so that names, taps and checkpoints see the model that they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core import mask as masks
from regard.core.attention import Attention, View
from regard.core.stack import Stack
from regard.errors import DataError, UsageError, did_you_mean
from regard.model.precision import PackedLinear
from regard.nvib.bottleneck import Bottleneck, Reading
from regard.nvib.config import NVIBConfig
from regard.nvib.results import Attached

DOING = "attaching a bottleneck"
LINEAR = "no linear maps of what is read"
ROOM = "fewer key-value heads: its cache has no room for vectors"
NOTED = "nvib"  # the key of config.json


class Denoising(Attention):
    """Attention whose keys and values are the components of a mixture, that of the prior first."""

    bottleneck: Bottleneck

    def forward(self, x: Tensor, ctx: View, source: Tensor | None = None) -> Tensor:
        """x (B, T, D), source (B, S, D) → (B, T, D)."""
        q = self.at.q(self.q(x).unflatten(-1, (self.heads, self.width))).transpose(1, 2)
        if self.cross and ctx.cache is not None:
            if self.layer not in ctx.cache.memory:
                assert source is not None
                ctx.cache.memory[self.layer] = self.components(source, ctx)
            k, v = ctx.cache.memory[self.layer]
        else:
            read = x if source is None else source
            if ctx.cache is not None:  # it holds what the mixture is made of: that is read anew
                room = x.unflatten(-1, (self.groups, self.width))
                read = ctx.cache.append(self.layer, room, room)[0].transpose(1, 2).flatten(2)
            k, v = self.components(read, ctx)
        bias, k, v = k[:, :1, None, :, -1], k[..., :-1].to(q.dtype), v.to(q.dtype)
        ctx = replace(ctx, mask=self.widen(ctx, q, k) + bias, causal=False)
        z = self.look(q, k, v, ctx)  # (B, H, T, K), or with the shares of D after it
        if z.shape[-1] > self.width:
            u = q @ self.of_head(self.k)  # (B, H, T, D)
            own = (z[..., self.width :] * u) @ self.of_head(self.v).transpose(1, 2)
            z = z[..., : self.width] + own
        z = self.at.z(z.transpose(1, 2))  # (B, T, H, K)
        return self.at.out(self.o(z.flatten(-2)))

    def components(self, source: Tensor, ctx: View) -> tuple[Tensor, Tensor]:
        """Keys with their bias after them, values with the share of the query: (B, G, N, K + …)."""
        vectors, bias, share = self.read(source, ctx)
        bias = bias - bias.detach().amax(-1, keepdim=True)  # softmax does not see it, bf16 does
        k, v = (part(vectors).unflatten(-1, (self.groups, self.width)) for part in (self.k, self.v))
        k, v = self.at.k(k).transpose(1, 2), self.at.v(v).transpose(1, 2)  # (B, G, N, K)
        k = torch.cat([k, bias[:, None, :, None].expand(-1, self.groups, -1, -1)], -1)
        if share is not None:
            v = torch.cat([v, share[:, None].expand(-1, self.groups, -1, -1)], -1)
        return k, v

    def read(self, source: Tensor, ctx: View) -> Reading:
        """The mixture that the bottleneck makes of the vectors that are seen."""
        return self.bottleneck.read(self.bottleneck(source, seen(source, ctx)), 1 / self.scale)

    def widen(self, ctx: View, q: Tensor, k: Tensor) -> Tensor:
        """The mask as a bias on scores (B or 1, 1, T or 1, N): the prior is seen by all."""
        mask = masks.causal(q.shape[-2], q.shape[-2], q.device) if ctx.causal else ctx.mask
        if mask is None:
            return q.new_zeros(1, 1, 1, 1)
        mask = masks.as_bias(mask, q.dtype)
        return F.pad(mask, (1, 0)).repeat_interleave(k.shape[2] // (mask.shape[-1] + 1), -1)

    def of_head(self, linear: nn.Linear) -> Tensor:
        """The weight of a map for each head: (H, K, D)."""
        merged = getattr(linear, "merged", None)  # of one with adapters
        weight: Tensor = linear.weight if merged is None else merged()
        return self.per_head(weight.unflatten(0, (self.groups, self.width))[None])[0]


def seen(x: Tensor, ctx: View) -> Tensor:
    """Which vectors of a source (B, S, D) any query looks at: (B, S)."""
    if ctx.mask is None:
        return x.new_ones(x.shape[:2], dtype=torch.bool)
    allow = ctx.mask if ctx.mask.dtype == torch.bool else ctx.mask > -torch.inf
    allow = allow if ctx.live is None else allow & ctx.live
    return allow.any(1).any(1).expand(x.shape[:2])


# Putting on and taking off ------------------------------------------------------------------------


def attach(model: nn.Module, pattern: str = "*", config: NVIBConfig | None = None) -> Attached:
    """Put a bottleneck before each attention that a pattern names, where it can denoise.

    A pattern such as `encoder.blocks.*`, `*.attn` or `decoder.blocks.3.cross` names an attention or
    what holds it. Self-attentions of a stack pass their pseudo-counts on to the next one.
    """
    faults = unfit(model)
    chosen = [n for n in faults if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.*")]
    if not chosen:
        fix = did_you_mean(pattern, faults, 1, f"there are {', '.join(faults) or 'none'}")
        raise UsageError(DOING, f"no attention named {pattern!r}", "one", fix)
    names = [name for name in chosen if not faults[name]]
    for name in names:
        put_on(model, name, config or NVIBConfig())
    return Attached(names, {name: why for name in chosen if (why := faults[name])})


def unfit(model: nn.Module) -> dict[str, str]:
    """The attentions of a model, each with what keeps it from denoising, or with nothing."""
    faults: dict[str, str] = {}
    for path, stack in model.named_modules():
        if not isinstance(stack, Stack):
            continue
        for name, part in stack.named_modules(prefix=path):
            if not isinstance(part, Attention):
                continue
            narrow = part.groups * part.width != part.q.in_features
            reasons = (
                (isinstance(part, Denoising), "a bottleneck already"),
                (hasattr(part, "prior"), "regularised: `regard.nvib.restore` first"),
                (reason := not_bilinear(part), reason),
                (stack.rotary and not part.cross, f"rotary positions: {LINEAR}"),
                (narrow and stack.config.block.causal and not part.cross, ROOM),
                (isinstance(part.k, PackedLinear), "int8 products: open it in fp32"),
            )
            faults[name] = next((text for holds, text in reasons if holds), "")
    return faults


def not_bilinear(part: Attention) -> str:
    """Why the scores of an attention are no dot products of linear maps, or nothing."""
    if part.fusible:
        return f"its keys are normalised: {LINEAR}" if part.k_norm is not None else ""
    return "its scores are no dot products"


def put_on(model: nn.Module, name: str, config: NVIBConfig) -> None:
    """Let one attention denoise."""
    part: Any = model.get_submodule(name)
    bottleneck = Bottleneck(part.k.in_features, config).train(part.training)
    part.bottleneck, part.__class__ = bottleneck.to(part.q.weight), Denoising
    tie(model)


def tie(model: nn.Module) -> None:
    """Let each self-attention of a stack know the bottleneck below it."""
    for stack in (m for m in model.modules() if isinstance(m, Stack)):
        parts = [getattr(block.attn, "bottleneck", None) for block in stack.blocks]
        held = [part for part in parts if part is not None]
        for number, part in enumerate(held):
            part.below = tuple(held[:number][-1:])


def detach(model: nn.Module) -> None:
    """Take all bottlenecks off: the attentions are what they were."""
    for name in describe(model):
        part: Any = model.get_submodule(name)
        del part.bottleneck
        part.__class__ = Attention


def bottlenecks(model: nn.Module) -> dict[str, Bottleneck]:
    """Those of a model by the names of their attentions, from the input on."""
    parts = {name: part for name, part in model.named_modules() if isinstance(part, Bottleneck)}
    return {name.removesuffix(".bottleneck"): part for name, part in parts.items()}


def describe(model: nn.Module) -> dict[str, Any]:
    """{name of an attention: settings of its bottleneck}, as config.json holds them."""
    return {name: asdict(part.config) for name, part in bottlenecks(model).items()}


def restore(model: nn.Module, described: Mapping[str, Any]) -> None:
    """Put on a model the bottlenecks that the config.json beside it describes."""
    noted = described.get(NOTED, {})
    try:
        for name, values in noted.items():
            put_on(model, name, NVIBConfig(**values))
    except (TypeError, AttributeError, UsageError) as error:
        fault = f"{NOTED} = {noted!r}: {error}"
        raise DataError("reading config.json", fault, "what regard wrote") from None
