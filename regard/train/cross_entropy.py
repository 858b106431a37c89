"""Linear map and cross-entropy in one, in chunks: the logits of a batch are never in memory.

A vocabulary of 50,000 makes the logits the largest tensor of a step by far. Here each chunk of
rows is scored, its loss and its gradients are taken at once, and its logits are dropped. Since the
loss is a sum, the gradient of a chunk does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.errors import DataError
from regard.model.batch import find_outside
from regard.native.gpu import runs_kernels

Call = TypeVar("Call", bound=Callable[..., Any])

IGNORE = -100
"""Label of a position that carries no loss."""


UNIT = 16
"""Sizes of products in fp8 are multiples of this."""

CPU_BYTES, GPU_BYTES = 1 << 24, 1 << 31
"""Of a chunk's logits: small ones stay on a CPU's heap and in its cache, a GPU likes large ones."""


def chunk_loss(
    logits: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, r_drop: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """(smoothed loss, plain loss, gradient of the smoothed loss by the logits), sums over rows.

    logits (N, V) without their bias, labels (N,). The target is (1 − ε) one-hot + ε / V. Sums are
    taken in float32 or wider; the gradient has the dtype of the logits. In one function, so that
    a compiler makes one pass of it.

    With `r_drop` two rows after each other are one position under two draws of dropout, and half
    of that times KL(p‖q) + KL(q‖p) of the two is added (R-Drop, Liang et al. 2021).
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    wide = wide if bias is None else wide + bias.to(wide.dtype)
    kept = labels != IGNORE
    index = labels.masked_fill(~kept, 0)[:, None]
    norm = wide.logsumexp(-1, keepdim=True)
    plain = (norm - wide.gather(-1, index))[:, 0] * kept
    loss = plain
    if smoothing:
        flat = (norm[:, 0] - wide.mean(-1)) * kept
        loss = (1 - smoothing) * plain + smoothing * flat
    right = torch.arange(wide.shape[-1], device=wide.device) == index
    target = right.to(wide.dtype) * (1 - smoothing) + smoothing / wide.shape[-1]
    p = (wide - norm).exp()
    pull = p - target
    if r_drop:
        apart = (wide - norm).view(-1, 2, wide.shape[-1])
        apart = (apart - apart.flip(1)).view_as(wide)  # log p − log q
        divergence = (p * apart).sum(-1)
        other = p.view(-1, 2, p.shape[-1]).flip(1).reshape(p.shape)
        pull = pull + r_drop / 2 * (p * (apart - divergence[:, None] + 1) - other)
        loss = loss + r_drop / 2 * divergence * kept
    return loss.sum(), plain.sum(), (pull * kept[:, None]).to(logits.dtype)


@cache
def compile_once(function: Call, dynamic: bool | None = None) -> Call:
    """A function, compiled when first asked for, since the compiler is slow to import."""
    compiled: Any = torch.compile(function, dynamic=dynamic)
    return compiled  # type: ignore[no-any-return]


class Scores:
    """The products with the weight (V, D): scores of a chunk, and what their gradient means."""

    def __init__(self, weight: Tensor, low: torch.dtype, compiled: bool) -> None:
        self.weight, self.low, self.compiled = weight.to(low), low, compiled

    def loss(
        self, x: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, r_drop: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`chunk_loss` of the scores of x (N, D), by a kernel of our own on a GPU."""
        logits = x.to(self.low) @ self.weight.T
        if not runs_kernels(logits):
            score = compile_once(chunk_loss) if self.compiled else chunk_loss
        elif r_drop:
            score = compile_once(chunk_loss, dynamic=True)
        else:
            from regard.native.triton_kernels import cross_entropy_rows

            return cross_entropy_rows(logits, bias, labels, smoothing)
        return score(logits, bias, labels, smoothing, r_drop)

    def to_input(self, gradient: Tensor) -> Tensor:
        """Gradient by x (N, D)."""
        return gradient @ self.weight

    def to_weight(self, gradient: Tensor, x: Tensor, into: Tensor | None) -> Tensor:
        """Gradient by the weight (V, D), added to `into`, in float32 or wider."""
        x = x.to(self.low)
        if gradient.is_cuda and self.low in (torch.bfloat16, torch.float16):
            if into is None:
                return torch.mm(gradient.T, x, out_dtype=torch.float32)
            return torch.addmm(into, gradient.T, x, out_dtype=torch.float32, out=into)
        product = gradient.T @ x
        wide = product if product.dtype == torch.float64 else product.float()
        return wide if into is None else into.add_(wide)

    def to_bias(self, gradient: Tensor, dtype: torch.dtype) -> Tensor:
        """Gradient by the bias (V,)."""
        return gradient.sum(0, dtype=dtype)


Chunks = tuple[Scores, int, float, float]
"""The products, the rows of a chunk, label smoothing, and the weight of R-Drop."""


class LinearCrossEntropy(torch.autograd.Function):
    """Forward takes the gradients too; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, how: Chunks
    ) -> tuple[Tensor, Tensor]:
        """x (N, D), weight (V, D), bias (V,), labels (N,) → sums of smoothed and plain loss."""
        scores, rows, smoothing, r_drop = how
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        needs = ctx.needs_input_grad
        dx = torch.empty_like(x) if needs[0] else None
        dw: Tensor | None = None
        db = torch.zeros_like(bias, dtype=wide) if bias is not None and needs[2] else None
        total, plain = x.new_zeros((), dtype=wide), x.new_zeros((), dtype=wide)
        with torch.autocast(x.device.type, enabled=False):
            for begin in range(0, len(x), rows):
                part = slice(begin, begin + rows)
                piece = x[part]
                loss, bare, grad = scores.loss(piece, bias, labels[part], smoothing, r_drop)
                total, plain = total + loss, plain + bare
                if dx is not None:
                    dx[part] = scores.to_input(grad)
                if needs[1]:
                    dw = scores.to_weight(grad, piece, dw)
                if db is not None:
                    db += scores.to_bias(grad, wide)
        ctx.save_for_backward(*(t for t in (dx, dw, db) if t is not None))
        ctx.held = dx is not None, dw is not None, db is not None
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what forward found."""
        scale, saved = gradients[0], list(ctx.saved_tensors)
        dx, dw, db = (saved.pop(0) if held else None for held in ctx.held)
        return (
            None if dx is None else dx * scale.to(dx.dtype),
            None if dw is None else (dw * scale).to(ctx.dtypes[0]),
            None if db is None else (db * scale).to(ctx.dtypes[1]),
            None,
            None,
        )


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float = 0.0,
    rows: int | None = None,
    compiled: bool = False,
    fp8: bool = False,
    r_drop: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Sums of the smoothed and the plain cross-entropy of x (N, D) scored by weight (V, D).

    Labels (N,) are checked where that costs no wait: on a CPU. With `r_drop` rows come in twos,
    which chunks of an even number of rows keep together.
    """
    if labels.shape != x.shape[:1] or labels.is_floating_point():
        fault = f"labels {tuple(labels.shape)} of {labels.dtype} for x {tuple(x.shape)}"
        raise DataError("taking the loss", fault, "a whole number for each row of x")
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        check_labels(labels, len(weight))
    rows = rows or chunk_rows(len(x), len(weight), x.device.type)
    rows += rows % 2 if r_drop else 0
    device, low = x.device.type, x.dtype
    if torch.is_autocast_enabled(device):
        low = torch.get_autocast_dtype(device)
    with torch.no_grad(), torch.autocast(device, enabled=False):
        scores = Scores(weight, low, compiled)
        if fp8 and not r_drop and not rows % UNIT and not len(x) % UNIT:
            from regard.train.fp8 import Fp8Scores, fits

            scores = Fp8Scores(x, weight, low) if fits(weight) else scores
    how = scores, rows, smoothing, r_drop
    total, plain = LinearCrossEntropy.apply(x, weight, bias, labels, how)
    return total, plain


def check_labels(labels: Tensor, vocab: int) -> None:
    """Stop at a label outside the vocabulary, before a kernel meets it."""
    if wrong := find_outside(labels if labels.dim() > 1 else labels[:, None], vocab, IGNORE):
        expected = f"0 to {vocab - 1}, or {IGNORE} for no loss"
        raise DataError("reading labels", f"label {wrong}", expected)


def chunk_rows(count: int, vocab: int, device: str) -> int:
    """Rows per chunk, a power of two, so that its float32 logits stay small for the device."""
    rows = max(1, (CPU_BYTES if device == "cpu" else GPU_BYTES) // (4 * vocab))
    return min(count, 1 << (rows.bit_length() - 1)) or 1
