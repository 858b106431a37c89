"""LoRA: trained products of low rank beside frozen linear maps, put on and taken off in place.

A map that has adapters is the same object with another class: its `weight` and `bias` keep their
names, so that checkpoints, taps and tables see the model that they know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.attention import Attention
from regard.errors import UsageError, check_known, did_you_mean
from regard.interop.table import braces
from regard.model.precision import PackedLinear, join
from regard.train.config import LoRA

HEAD = "head.out"
"""Its scores are computed in chunks, and for a few words only, from its weight: no adapter."""


Parts = tuple[Tensor, Tensor, Tensor | None]  # A (r, K), B (N, r), magnitude (N,)


class LowRank(nn.Module):
    """One adapter of one map: share · scale · B A; with a magnitude, DoRA's rows of that length."""

    magnitude: nn.Parameter | None

    def __init__(self, parts: Parts, scale: float, dropout: float, rslora: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(parts[0]), nn.Parameter(parts[1])
        self.magnitude = None if parts[2] is None else nn.Parameter(parts[2])
        self.scale, self.dropout, self.share = scale, dropout, 1.0
        self.rslora = rslora  # so is the scale: only whoever writes the adapter must know

    def ratio(self, weight: Tensor) -> Tensor:
        """DoRA: the length that each row shall have over the one it has, taken as a constant."""
        assert self.magnitude is not None
        with torch.no_grad(), torch.autocast(weight.device.type, enabled=False):
            norm = torch.linalg.norm(weight + self.scale * (self.b @ self.a), dim=1)
        ratio: Tensor = self.magnitude / norm  # (N,)
        return ratio

    def add(self, x: Tensor, out: Tensor, base: Tensor, linear: nn.Linear) -> Tensor:
        """out (…, N) and what the adapter says of x (…, K), which the map itself makes `base`."""
        low = F.linear(F.dropout(x, self.dropout, self.training), self.a)  # (…, r)
        if self.magnitude is None:
            rows = out.flatten(0, -2), low.flatten(0, -2), self.b.t()
            return torch.addmm(*rows, alpha=self.share * self.scale).view(out.shape)
        ratio = self.ratio(linear.weight)
        plain = base if linear.bias is None else base - linear.bias
        change = (ratio - 1) * plain + ratio * self.scale * F.linear(low, self.b)
        return out + self.share * change

    def delta(self, weight: Tensor) -> Tensor:
        """What the adapter adds to a weight (N, K)."""
        product = self.scale * (self.b.float() @ self.a.float())
        if self.magnitude is not None:
            product = self.ratio(weight)[:, None] * (weight + product) - weight
        return self.share * product


class LoRALinear(nn.Linear):
    """A linear map with adapters; those with a share of 0 are off and cost nothing."""

    adapters: nn.ModuleDict
    kind: type[nn.Linear]
    """What it was, and is without them."""
    product = None  # `joined` of core/attention.py calls it by itself

    def forward(self, x: Tensor) -> Tensor:
        """(…, K) → (…, N)."""
        out = base = self.kind.forward(self, x)
        for low in lows_of(self).values():
            out = low.add(x, out, base, self) if low.share else out
        return out

    @torch.no_grad()
    def merged(self) -> Tensor:
        """The weight with all adapters in it, each by its share."""
        deltas = (low.delta(self.weight) for low in lows_of(self).values() if low.share)
        return sum(deltas, self.weight.float()).to(self.weight.dtype)


def lows_of(linear: LoRALinear) -> dict[str, LowRank]:
    """The adapters of a map, in the order in which they were put on."""
    return cast(dict[str, LowRank], linear.adapters._modules)


def adapted(model: nn.Module) -> dict[str, LoRALinear]:
    """The maps that have adapters, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, LoRALinear)}


def attach(model: nn.Module, config: LoRA, name: str = "default", seed: int = 0) -> None:
    """Put a new adapter on every map that the config's patterns name; all other weights freeze.

    B is zero, so that the model answers as before, to the bit. Other adapters are switched off.
    """
    linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != HEAD}
    patterns = [pattern for target in config.targets for pattern in braces(target)]
    chosen = {n: m for n, m in linears.items() if any(fnmatchcase(n, p) for p in patterns)}
    for pattern in patterns:
        if not any(fnmatchcase(n, pattern) for n in chosen):
            there = sorted({re.sub(r"\.\d+\.", ".*.", n) for n in linears})
            fix = did_you_mean(pattern, there, 1, f"there are {', '.join(there)}")
            raise UsageError("attaching LoRA", f"no linear map named {pattern!r}", "one", fix)
    draw, lows = torch.Generator().manual_seed(seed), dict[str, LowRank]()
    for path, linear in chosen.items():
        rows, columns, like = linear.out_features, linear.in_features, linear.weight.detach()
        if config.r > min(rows, columns):
            fault = f"r = {config.r} for {path}, which is {rows} × {columns}"
            raise UsageError("attaching LoRA", fault, f"r of at most {min(rows, columns)}")
        a = torch.rand(config.r, columns, generator=draw) * 2 - 1
        a *= columns**-0.5  # as nn.Linear draws its own
        lengths = torch.linalg.norm(like, dim=1) if config.dora else None
        parts = a.to(like), like.new_zeros(rows, config.r), lengths
        lows[path] = LowRank(parts, config.scale, config.dropout, config.rslora)
    put_on(model, lows, name)


def put_on(model: nn.Module, lows: Mapping[str, LowRank], name: str) -> None:
    """Put an adapter on a model, given its part for each map; it is on, others are off."""
    if name in shares(model) or not name or "." in name:
        raise UsageError("attaching an adapter", f"the name {name!r}", "a new one without a dot")
    packed = any(isinstance(m, PackedLinear) for m in model.modules())
    model.requires_grad_(False)
    for path, low in lows.items():
        linear: Any = model.get_submodule(path)
        if not isinstance(linear, LoRALinear):
            linear.kind, linear.adapters = type(linear), nn.ModuleDict()
            linear.__class__ = LoRALinear
        linear.adapters[name] = low.train(linear.training)
        low.requires_grad_(not packed)  # packed kernels have no gradients
    settle_joints(model)
    switch(model, name)


def settle_joints(model: nn.Module) -> None:
    """Let packed queries, keys and values be one product exactly where none has an adapter."""
    for module in model.modules():
        if isinstance(module, Attention) and not module.cross:
            module.joint = join(module.q, module.k, module.v)


def detach(model: nn.Module) -> None:
    """Take all adapters off: the maps are what they were, and can be trained again."""
    for linear in adapted(model).values():
        kind = linear.kind
        del linear.adapters, linear.kind
        linear.__class__ = kind  # type: ignore[assignment]
    settle_joints(model)
    model.requires_grad_(not any(isinstance(m, PackedLinear) for m in model.modules()))


def merge(model: nn.Module) -> None:
    """Write the adapters, each by its share, into the weights of their maps, and take them off."""
    for path, linear in adapted(model).items():
        if linear.kind is PackedLinear:
            fault, fix = f"{path} in int8", "load it with precision=None"
            raise UsageError("merging adapters", fault, "plain linear maps", fix)
        with torch.no_grad():
            linear.weight.copy_(linear.merged())
    detach(model)


def shares(model: nn.Module) -> dict[str, float]:
    """The adapters of a model and the share that each has in its answers; 0 is off."""
    lows = [named for linear in adapted(model).values() for named in lows_of(linear).items()]
    return {name: low.share for name, low in lows}


def switch(model: nn.Module, mix: str | Mapping[str, float] | None) -> None:
    """Answer with one adapter, with several by their shares ({name: share}), or None: the base."""
    mix = {} if mix is None else {mix: 1.0} if isinstance(mix, str) else dict(mix)
    for name in mix:
        check_known(name, shares(model), "switching adapters")
    for linear in adapted(model).values():
        for name, low in lows_of(linear).items():
            low.share = float(mix.get(name, 0.0))


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Inside, the model answers as its base does: the reference of DPO and PPO."""
    before = shares(model)
    switch(model, None)
    try:
        yield
    finally:
        switch(model, before)


def train_beside(model: nn.Module, patterns: Sequence[str]) -> None:
    """Let weights be trained beside an adapter, such as those of a new output head."""
    for name, parameter in model.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(True)
