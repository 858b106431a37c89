"""int8 products whose rows do not know each other: whole numbers in, exact sums out.

Weights have one step per output, activations one per row, taken from that row alone (dynamic,
symmetric: x ≈ peak / 127 · n with whole n from −127 to 127). Sums of whole numbers do not depend on
their order, so the bits of a row are the same whatever stands beside it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.native import inference
from regard.native.inference import pack_native

LEVELS = 127  # of a weight and, where the machine adds up exactly, of an activation
SMALL = 63  # of an activation where two products of bytes overflow 16 bits (x86 without VNNI)
LANES = 16  # inputs come in so many: a kernel may round or add up a rest in another way

Product = Callable[[Tensor], Tensor]
"""(…, K) → (…, N)."""
Pack = Callable[[Tensor, Tensor, Tensor | None, int], Product]
"""Weight (N, K) in int8, its steps (N,), bias (N,), levels of the activations → linear map."""


class Kernel(NamedTuple):
    """A way to multiply, and how many levels of an activation it is exact for."""

    pack: Pack
    levels: int


def int8_map(weight: Tensor, bias: Tensor | None) -> Product:
    """The linear map of weight (N, K) and bias (N,) for float32 rows (M, K) → (M, N)."""
    return map_levels(*to_levels(weight.detach()), bias)


def map_levels(whole: Tensor, step: Tensor, bias: Tensor | None) -> Product:
    """The linear map of a weight in whole numbers (N, K) with the steps of its rows (N, 1)."""
    kernel, extra = find_kernel(), -whole.shape[1] % LANES
    bias = None if bias is None else bias.detach().clone()
    run = kernel.pack(F.pad(whole, (0, extra)), step[:, 0], bias, kernel.levels)
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


# Kernels, fastest first -------------------------------------------------------------------------


def scaled(product: Product, bias: Tensor | None) -> Product:
    """A product for rows within −1 and 1, made one for all rows: each has a scale of its own."""

    def run(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        peak = peaks(rows)
        # Product and sum round once each: fused, the last columns of a tensor may round otherwise.
        out = product(rows / peak).mul_(peak)
        out = out if bias is None else out.add_(bias)
        return out.view(*x.shape[:-1], out.shape[-1])

    return run


def pack_fbgemm(weight: Tensor, step: Tensor, bias: Tensor | None, levels: int) -> Product:
    """torch's own product of unsigned and signed bytes, which also rounds the activations."""
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    with warnings.catch_warnings():  # the constructor is deprecated; without it, the next kernel
        warnings.simplefilter("ignore")
        held = torch._make_per_channel_quantized_tensor(weight, step, zeros, 0)
        packed = torch.ops.quantized.linear_prepack(held, None)
    product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    return scaled(lambda x: product(x, 1 / levels, levels + 1, packed), bias)


def pack_plain(weight: Tensor, step: Tensor, bias: Tensor | None, levels: int) -> Product:
    """Signed bytes into 32-bit sums: exact by its type, on every machine."""
    turned, scale = weight.t().contiguous(), step / levels  # `_int_mm` fails at one input (LANES)

    def run(x: Tensor) -> Tensor:
        return torch._int_mm((x * levels).round_().to(torch.int8), turned) * scale

    return scaled(run, bias)


PLAIN = Kernel(pack_plain, LEVELS)
KERNELS = (
    Kernel(pack_native, LEVELS),
    Kernel(pack_fbgemm, LEVELS),
    Kernel(pack_fbgemm, SMALL),
    PLAIN,
)


@cache
def find_kernel() -> Kernel:
    """The first kernel that is there and exact on this machine."""
    return next(kernel for kernel in KERNELS if is_exact(kernel))


def is_exact(kernel: Kernel) -> bool:
    """Whether sums come out right at the largest values, and the same bits in any company.

    Beside noise there are rows of one sign, which overflow first.
    """
    draw = torch.Generator().manual_seed(0)
    count, inputs, outputs = 19, 20 * LANES, 37
    weight = torch.randint(-LEVELS, LEVELS + 1, (outputs, inputs), generator=draw)
    rows = torch.randint(-kernel.levels, kernel.levels + 1, (count, inputs), generator=draw)
    weight[0], weight[1], rows[0], rows[1] = LEVELS, -LEVELS, kernel.levels, -kernel.levels
    weight[2, ::2] = rows[2, ::2] = 0
    rows[:, 3] = kernel.levels  # the peak of each row, so that its numbers are whole
    step = torch.rand(outputs, generator=draw) + 0.01
    wanted = (rows @ weight.t()).double() * step.double() / kernel.levels
    x = rows.float() / kernel.levels
    try:
        product = kernel.pack(weight.to(torch.int8), step, None, kernel.levels)
        together, alone = product(x), torch.cat([product(row[None]) for row in x])
    except (RuntimeError, AttributeError):  # not in this build of torch
        return False
    near = torch.allclose(together.double(), wanted, rtol=1e-5, atol=1e-4)
    return near and torch.equal(together, alone)
