"""One GPU kernel: what a search wants to know of each row of scores, from reading it once.

Written in Triton, which comes with torch on CUDA; imported only there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit  # type: ignore[untyped-decorator]
def _row_summary(  # type: ignore[no-untyped-def] # noqa: PLR0913
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
