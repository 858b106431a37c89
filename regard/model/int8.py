"""int8 products whose rows do not know each other: whole numbers in, exact sums out.

Weights have one step per output, activations one per row, taken from that row alone (dynamic,
symmetric: x ≈ peak / 127 · n with whole n from −127 to 127). Sums of whole numbers do not depend on
their order, so the bits of a row are the same whatever stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.native import inference
from regard.native.inference import NativeMap, library

LEVELS = 127  # of a weight and of an activation
LANES = 16  # inputs come in so many: a kernel may round or add up a rest in another way

Product = Callable[[Tensor], Tensor]
"""(…, K) → (…, N)."""
Pack = Callable[[Tensor, Tensor, Tensor | None], Product]
"""Weight (N, K) in int8, its steps (N,), bias (N,) → linear map."""


def int8_map(weight: Tensor, bias: Tensor | None) -> Product:
    """The linear map of weight (N, K) and bias (N,) for float32 rows (M, K) → (M, N)."""
    return map_levels(*to_levels(weight.detach()), bias)


def map_levels(whole: Tensor, step: Tensor, bias: Tensor | None) -> Product:
    """The linear map of a weight in whole numbers (N, K) with the steps of its rows (N, 1)."""
    extra = -whole.shape[1] % LANES
    bias = None if bias is None else bias.detach().clone()
    run = find_kernel()(F.pad(whole, (0, extra)), step[:, 0], bias)
    return run if not extra else lambda x: run(F.pad(x, (0, extra)))


def to_levels(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (N, K) → whole numbers in int8, and the step of each row (N, 1)."""
    if (levels := inference.to_levels(weight)) is not None:
        return levels
    step = peaks(weight) / LEVELS
    whole = (weight / step).round_().nan_to_num_(0.0)  # a row of zeros has step 0
    return whole.clamp_(-LEVELS, LEVELS).to(torch.int8), step


def peaks(x: Tensor) -> Tensor:
    """The largest absolute value of each row: (M, K) → (M, 1).

    A row of zeros, or one with an inf or NaN, has NaNs when divided by it. As bytes these are any
    numbers, but finite ones; the row's zero, inf or NaN comes back when it is multiplied again.
    """
    return x.abs().amax(-1, keepdim=True)


def find_kernel() -> Pack:
    """Our kernel, or torch's product where it is not there."""
    return pack_plain if library() is None else NativeMap


def pack_plain(weight: Tensor, step: Tensor, bias: Tensor | None) -> Product:
    """Signed bytes into 32-bit sums: exact by its type, on every machine."""
    turned, scale = weight.t().contiguous(), step / LEVELS  # `_int_mm` fails at one input (LANES)

    def run(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        peak = peaks(rows)
        whole = (rows / peak * LEVELS).round_().to(torch.int8)
        # Product and sum round once each: fused, the last columns of a tensor may round otherwise.
        out = (torch._int_mm(whole, turned) * scale).mul_(peak)
        out = out if bias is None else out.add_(bias)
        return out.view(*x.shape[:-1], out.shape[-1])

    return run
