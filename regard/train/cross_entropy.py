"""Linear map and cross-entropy in one, in chunks: the logits of a batch are never in memory.

A vocabulary of 50,000 makes the logits the largest tensor of a step by far. Here each chunk of
rows is scored, its loss and its gradients are taken at once, and its logits are dropped. Since the
loss is a sum, the gradient of a chunk does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

IGNORE = -100
"""Label of a position that carries no loss."""


def chunk_loss(
    logits: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(smoothed loss, plain loss, gradient of the smoothed loss by the logits), sums over rows.

    logits (N, V) without their bias, labels (N,). The target is (1 − ε) one-hot + ε / V. Sums are
    taken in float32 or wider; the gradient has the dtype of the logits. In one function, so that
    a compiler makes one pass of it.
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
    gradient = ((wide - norm).exp() - target) * kept[:, None]
    return loss.sum(), plain.sum(), gradient.to(logits.dtype)


@cache
def compiled_chunk_loss() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """The same, compiled; made when first asked for, since the compiler is slow to import."""
    made: Callable[..., tuple[Tensor, Tensor, Tensor]] = torch.compile(chunk_loss, dynamic=False)
    return made


class LinearCrossEntropy(torch.autograd.Function):
    """Forward takes the gradients too; backward only scales them."""

    @staticmethod
    def forward(  # noqa: PLR0913 (autograd passes its inputs one by one)
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        rows: int,
        compiled: bool,
    ) -> tuple[Tensor, Tensor]:
        """x (N, D), weight (V, D), bias (V,), labels (N,) → sums of smoothed and plain loss."""
        low = (
            torch.get_autocast_dtype(x.device.type)
            if torch.is_autocast_enabled(x.device.type)
            else x.dtype
        )
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        w = weight.to(low)
        needs = ctx.needs_input_grad
        dx = torch.empty_like(x) if needs[0] else None
        dw = torch.zeros_like(weight, dtype=wide) if needs[1] else None
        db = torch.zeros_like(bias, dtype=wide) if bias is not None and needs[2] else None
        total, plain = x.new_zeros((), dtype=wide), x.new_zeros((), dtype=wide)
        own = compiled and not torch.compiler.is_compiling()  # inside a compiled step it is inlined
        part = compiled_chunk_loss() if own else chunk_loss
        with torch.autocast(x.device.type, enabled=False):
            for begin in range(0, len(x), rows):
                piece = x[begin : begin + rows].to(low)
                loss, bare, gradient = part(
                    piece @ w.T, bias, labels[begin : begin + rows], smoothing
                )
                total, plain = total + loss, plain + bare
                if dx is not None:
                    dx[begin : begin + rows] = gradient @ w
                if dw is not None:
                    dw += gradient.T @ piece
                if db is not None:
                    db += gradient.sum(0, dtype=wide)
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
) -> tuple[Tensor, Tensor]:
    """Sums of the smoothed and the plain cross-entropy of x (N, D) scored by weight (V, D)."""
    rows = rows or chunk_rows(len(x), len(weight))
    total, plain = LinearCrossEntropy.apply(x, weight, bias, labels, smoothing, rows, compiled)
    return total, plain


def chunk_rows(count: int, vocab: int, most: int = 1 << 30) -> int:
    """Rows per chunk, a power of two, so that its float32 logits stay below `most` bytes."""
    rows = max(1, most // (4 * vocab))
    return min(count, 1 << (rows.bit_length() - 1)) or 1
