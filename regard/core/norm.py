"""Normalisation by name: layer (Ba 2016), rms (Zhang and Sennrich 2019), none."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import UsageError

NormKernel = Callable[[Tensor, Tensor, Tensor, float], Tensor | None]


class RMSNorm(nn.Module):
    """x / sqrt(mean x² + eps) · weight, the mean taken in float32 or wider."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (self.weight * wide.to(x.dtype)).to(x.dtype)


class LayerNorm(nn.LayerNorm):
    """(x − mean) / sqrt(variance + eps) · weight + bias, the variance biased.

    Gives back the dtype it was given: autocast alone would make a bf16 residual stream float32.
    """

    kernel: NormKernel | None = None  # of the machine; its answer is None where it cannot

    def forward(self, input: Tensor) -> Tensor:
        """Normalise the last dimension."""
        out = None
        if self.kernel is not None:
            out = self.kernel(input, self.weight, self.bias, self.eps)
        if out is None:
            out = F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
        return out if out.dtype == input.dtype else out.to(input.dtype)


def build_norm(kind: str, dim: int, eps: float) -> nn.Module:
    """The norm called `kind`."""
    if kind == "layer":
        return LayerNorm(dim, eps)
    if kind == "rms":
        return RMSNorm(dim, eps)
    if kind == "none":
        return nn.Identity()
    raise UsageError("building a norm", f"norm = {kind!r}", "layer, rms or none")
