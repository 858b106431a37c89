"""Matrix products in 8-bit floats (Micikevicius 2022): twice the speed of bf16 on recent GPUs.

Weights and activations have four exponent bits (e4m3), gradients five (e5m2). Each tensor is
divided by one scale before it is cast. The range of these numbers is so wide that the scale need
not be exact: it comes from a sample of the tensor with room above it, and what lies beyond is
clamped. No scale is remembered between steps, so a resumed run needs nothing more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.model.model import Model
from regard.train.cross_entropy import UNIT, Scores, compile_once

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2


def scale_of(sample: Tensor, dtype: torch.dtype, room: float) -> Tensor:
    """What to divide by, so that `room` times the largest sampled number still fits; 0-d."""
    return (sample.abs().amax().float() * (room / torch.finfo(dtype).max)).clamp(min=1e-30)


def some_rows(x: Tensor) -> Tensor:
    """A sample of activations (N, M): every 16th token."""
    return x[::16]


def some_columns(x: Tensor) -> Tensor:
    """A sample of gradients (N, M): 16 of each 128 columns, since whole rows may carry none."""
    wide = x.shape[1] // 128 * 128
    return x[:, :16] if wide == 0 else x[:, :wide].unflatten(1, (-1, 128))[:, :, :16]


def cast(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """x / scale, clamped to what the dtype holds."""
    most = torch.finfo(dtype).max
    return (x.float() * scale.reciprocal()).clamp(-most, most).to(dtype)


def transposed(x: Tensor) -> Tensor:
    """x (N, M) of one-byte elements → (M, N), contiguous."""
    from regard.native.triton_kernels import transpose_bytes  # needs Triton

    turned: Tensor = transpose_bytes(x)
    return turned


def scaled_product(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out: torch.dtype = torch.bfloat16
) -> Tensor:
    """a (N, K) · bᵀ for b (M, K), both contiguous in fp8 → (N, M), scales multiplied back."""
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    return torch._scaled_mm(a, b.t(), **scales, out_dtype=out, use_fast_accum=True)


class Fp8Product(torch.autograd.Function):
    """x wᵀ and both of its gradients in fp8; x (N, K), w (M, K), N a multiple of 16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """(N, M) in bf16; keeps what the gradients need, a byte per number."""
        scale_x = scale_of(some_rows(x), FORWARD, 4)
        scale_w = scale_of(weight, FORWARD, 1)
        x8, w8 = cast(x, scale_x, FORWARD), cast(weight, scale_w, FORWARD)
        ctx.save_for_backward(transposed(x8), transposed(w8), scale_x, scale_w)
        ctx.dtypes = x.dtype, weight.dtype
        return scaled_product(x8, w8, scale_x, scale_w)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and w."""
        (gradient,) = gradients
        x8, w8, scale_x, scale_w = ctx.saved_tensors  # (K, N), (K, M)
        scale = scale_of(some_columns(gradient), BACKWARD, 64)
        g8 = cast(gradient, scale, BACKWARD)
        dx = scaled_product(g8, w8, scale, scale_w)
        dw = scaled_product(transposed(g8), x8, scale, scale_x)
        return dx.to(ctx.dtypes[0]), dw.to(ctx.dtypes[1])


class Fp8Linear(nn.Linear):
    """A linear map whose products run in fp8; weights and bias stay as they are."""

    def forward(self, input: Tensor) -> Tensor:
        """x (…, K) → (…, M)."""
        return self.product(input, self.weight, self.bias)

    @staticmethod
    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The map itself; `joined` in core/attention.py calls it with weights of several maps."""
        flat = x.flatten(0, -2).to(torch.bfloat16)
        missing = -len(flat) % UNIT
        flat = nn.functional.pad(flat, (0, 0, 0, missing)) if missing else flat
        out: Tensor = Fp8Product.apply(flat, weight)
        out = out[: len(out) - missing] if missing else out
        out = out if bias is None else out + bias.to(out.dtype)
        return out.view(*x.shape[:-1], -1)


class Fp8Scores(Scores):
    """The products of the last layer and its loss, whose gradient lies in −1 … 1."""

    unit = 2.0**-15
    """What a gradient is divided by: 1 becomes 32768, the smallest number kept is 5e-10."""

    def __init__(self, x: Tensor, weight: Tensor, low: torch.dtype) -> None:
        super().__init__(weight, low, compiled=False)
        self.scale_x = scale_of(some_rows(x), FORWARD, 4)
        self.scale_w = scale_of(self.weight, FORWARD, 1)
        self.scale = torch.full((), self.unit, device=x.device)
        in_one_pass = compile_once(cast)  # no compiler is at work around it
        self.w8 = in_one_pass(self.weight, self.scale_w, FORWARD)
        self.turned = transposed(self.w8)  # (D, V)
        self.x8 = in_one_pass(x, self.scale_x, FORWARD)
        self.at = 0  # rows of x8 that were scored

    def loss(
        self, x: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, r_drop: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`chunk_loss` with the gradient in fp8; never asked for `r_drop`."""
        from regard.native.triton_kernels import cross_entropy_rows

        self.piece, self.at = self.x8[self.at : self.at + len(x)], self.at + len(x)
        logits = scaled_product(self.piece, self.w8, self.scale_x, self.scale_w)
        return cross_entropy_rows(logits, bias, labels, smoothing, BACKWARD, 1 / self.unit)

    def to_input(self, gradient: Tensor) -> Tensor:
        """Gradient by x (N, D)."""
        return scaled_product(gradient, self.turned, self.scale, self.scale_w)

    def to_weight(self, gradient: Tensor, x: Tensor, into: Tensor | None) -> Tensor:
        """Gradient by the weight (V, D), added to `into`."""
        g8, x8 = transposed(gradient), transposed(self.piece)
        product = scaled_product(g8, x8, self.scale, self.scale_x, torch.float32)
        return product if into is None else into.add_(product)

    def to_bias(self, gradient: Tensor, dtype: torch.dtype) -> Tensor:
        """Gradient by the bias (V,)."""
        return gradient.to(torch.bfloat16).sum(0, dtype=dtype) * self.unit


def fits(weight: Tensor) -> bool:
    """Whether the products of a weight can run in fp8."""
    return all(size % UNIT == 0 for size in weight.shape)


def use_fp8(model: Model) -> int:
    """Give the linear maps of all blocks fp8 products; returns how many fit. Weights stay put."""
    if model.device.type != "cuda" or torch.cuda.get_device_capability() < (8, 9):
        fix = "train with --precision bf16"
        raise UsageError("training in fp8", f"device {model.device}", "a GPU with fp8 (8.9+)", fix)
    count = 0
    for stack in model.stacks:
        for module in stack.blocks.modules():
            if type(module) is nn.Linear and fits(module.weight):
                module.__class__ = Fp8Linear
                count += 1
    return count
