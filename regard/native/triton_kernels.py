"""GPU kernels that a compiler does not find: a row's cross-entropy, a transpose of bytes, and
what a search wants to know of each row of scores, from reading it once.

Written in Triton, which comes with torch on CUDA; imported only there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

IGNORE = -100  # as in cross_entropy.py; a kernel reads constants of its own file only
LANES = 512  # threads of a row
BLOCK = 4096  # scores of a row that are read at a time


@triton.jit  # type: ignore[untyped-decorator]
def _cross_entropy_rows(  # type: ignore[no-untyped-def]
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
        pull = (tl.exp(value - norm) - target) * weight
        tl.store(gradient + at, pull.to(gradient.dtype.element_ty), mask=at < vocab)


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
    tl.store(target + column[:, None] * rows + row[None, :], tl.trans(held), mask=tl.trans(inside))


@triton_op("regard::transpose_bytes", mutates_args={})
def transpose_bytes(x: Tensor) -> Tensor:
    """x (N, M) of one-byte elements → (M, N), contiguous."""
    rows, columns = x.shape
    turned = torch.empty(columns, rows, dtype=torch.uint8, device=x.device)
    grid = (triton.cdiv(rows, 128), triton.cdiv(columns, 128))
    wrap_triton(_transpose_bytes)[grid](x.view(torch.uint8), turned, rows, columns, 128)
    return turned.view(x.dtype)


@triton.jit  # type: ignore[untyped-decorator]
def _row_summary(  # type: ignore[no-untyped-def]
    logits, norm, best, maxima, vocab, stride, chunks, block: tl.constexpr, chunk: tl.constexpr
):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    maxima += row * chunks
    most = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    place = tl.zeros((), tl.int64)
    for begin in range(0, vocab, block):
        at = begin + tl.arange(0, block)
        value = tl.load(logits + at, mask=at < vocab, other=-float("inf")).to(tl.float32)
        each = tl.max(tl.reshape(value, (block // chunk, chunk)), 1)
        number = begin // chunk + tl.arange(0, block // chunk)
        tl.store(maxima + number, each.to(maxima.dtype.element_ty), mask=number < chunks)
        here = tl.max(value)
        first = begin + tl.argmax(value, 0, tie_break_left=True)
        place = tl.where(here > most, first, place)
        above = tl.maximum(most, here)
        safe = tl.where(above == -float("inf"), 0.0, above)  # a row without any score so far
        total = total * tl.exp(most - safe) + tl.sum(tl.exp(value - safe))
        most = above
    tl.store(norm + row, most + tl.log(total))
    tl.store(best + row, place)


def row_summary(logits: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor]:
    """logits (N, V) → their log-sum-exp (N,) in float32, the best token (N,), chunk maxima (N, C).

    Of equals the lowest id is the best.
    """
    rows, vocab = logits.shape
    chunks = -(-vocab // chunk)
    norm = torch.empty(rows, dtype=torch.float32, device=logits.device)
    best = torch.empty(rows, dtype=torch.long, device=logits.device)
    maxima = torch.empty(rows, chunks, dtype=logits.dtype, device=logits.device)
    _row_summary[(rows,)](
        logits,
        norm,
        best,
        maxima,
        vocab,
        logits.stride(0),
        chunks,
        block=BLOCK,
        chunk=chunk,
        num_warps=8,
    )
    return norm, best, maxima
