"""Two GPU kernels that a compiler does not find: a row's cross-entropy, a transpose of bytes.

Written in Triton, which comes with torch on CUDA; imported only there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

IGNORE = -100  # as in cross_entropy.py; a kernel reads constants of its own file only
LANES = 512
"""Threads of a row."""


@triton.jit  # type: ignore[untyped-decorator]
def _cross_entropy_rows(  # type: ignore[no-untyped-def] # noqa: PLR0913
    logits,
    bias,
    labels,
    gradient,
    loss,
    plain,
    vocab,
    smoothing,
    scale,
    ignore: tl.constexpr,
    biased: tl.constexpr,
    smooth: tl.constexpr,
    lanes: tl.constexpr,
    each: tl.constexpr,
):
    """One program, one row: a first pass for its norm, a second, from cache, for its gradient.

    Each of `lanes` threads reads `each` neighbours at once and keeps a norm of its own; they meet
    once, at the end of the pass, since every meeting makes all of them wait.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * vocab
    gradient += row * vocab
    label = tl.load(labels + row)
    kept = label != ignore
    mine = tl.arange(0, lanes)[:, None] * each + tl.arange(0, each)[None, :]
    most = tl.full((lanes,), -1e38, tl.float32)  # finite: a lane may see no value at all
    total = tl.zeros((lanes,), tl.float32)
    summed = tl.zeros((lanes,), tl.float32)
    for begin in range(0, vocab, lanes * each):
        at = begin + mine
        value = tl.load(logits + at, mask=at < vocab, other=-float("inf")).to(tl.float32)
        if biased:
            value += tl.load(bias + at, mask=at < vocab, other=0.0).to(tl.float32)
        above = tl.maximum(most, tl.max(value, 1))
        total = total * tl.exp(most - above) + tl.sum(tl.exp(value - above[:, None]), 1)
        if smooth:
            summed += tl.sum(tl.where(at < vocab, value, 0.0), 1)
        most = above
    above = tl.max(most)
    total = tl.sum(total * tl.exp(most - above))
    norm = above + tl.log(total)
    right = tl.load(logits + tl.where(kept, label, 0)).to(tl.float32)
    if biased:
        right += tl.load(bias + tl.where(kept, label, 0)).to(tl.float32)
    bare = tl.where(kept, norm - right, 0.0)
    flat = tl.where(kept, norm - tl.sum(summed) / vocab, 0.0)
    tl.store(plain + row, bare)
    tl.store(loss + row, (1 - smoothing) * bare + smoothing * flat)
    tl.debug_barrier()  # `gradient` may be `logits`: no thread writes before all have read
    weight = tl.where(kept, scale, 0.0)
    for begin in range(0, vocab, lanes * each):
        at = begin + mine
        value = tl.load(logits + at, mask=at < vocab, other=-float("inf")).to(tl.float32)
        if biased:
            value += tl.load(bias + at, mask=at < vocab, other=0.0).to(tl.float32)
        target = tl.where(at == label, 1 - smoothing, 0.0) + smoothing / vocab
        made = (tl.exp(value - norm) - target) * weight
        tl.store(gradient + at, made.to(gradient.dtype.element_ty), mask=at < vocab)


def cross_entropy_rows(
    logits: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    low: torch.dtype | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """`chunk_loss` of cross_entropy.py in one kernel; the gradient, × scale, replaces the logits.

    With `low` the gradient is written to a new tensor of that dtype instead.
    """
    rows, vocab = logits.shape
    gradient = logits if low is None else torch.empty_like(logits, dtype=low)
    loss, plain = torch.empty(2, rows, dtype=torch.float32, device=logits.device)
    _cross_entropy_rows[(rows,)](
        logits,
        logits if bias is None else bias,
        labels,
        gradient,
        loss,
        plain,
        vocab,
        smoothing,
        scale,
        IGNORE,
        bias is not None,
        smoothing != 0,
        lanes=LANES,
        each=16 // logits.element_size(),
        num_warps=LANES // 32,
    )
    return loss.sum(), plain.sum(), gradient


@triton.jit  # type: ignore[untyped-decorator]
def _transpose_bytes(source, target, rows, columns, tile: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program, one square tile."""
    row = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    column = tl.program_id(1).to(tl.int64) * tile + tl.arange(0, tile)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    held = tl.load(source + row[:, None] * columns + column[None, :], mask=inside)
    where = target + column[:, None] * rows + row[None, :]
    tl.store(where, tl.trans(held), mask=tl.trans(inside))


@triton_op("regard::transpose_bytes", mutates_args={})
def transpose_bytes(x: Tensor) -> Tensor:
    """x (N, M) of one-byte elements → (M, N), contiguous."""
    rows, columns = x.shape
    made = torch.empty(columns, rows, dtype=torch.uint8, device=x.device)
    grid = (triton.cdiv(rows, 128), triton.cdiv(columns, 128))
    wrap_triton(_transpose_bytes)[grid](x.view(torch.uint8), made, rows, columns, 128)
    return made.view(x.dtype)
