"""The largest of many, of equals the first: what a search ranks by must not depend on chance."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.core.kernel import runs_kernels
from regard.model import native

CHUNK = 64
SHORT = 1024  # so many numbers are sorted on a CPU before their keys were made
BLOCK = 4096  # scores that a GPU's kernel reads at once


class Scored:
    """Scores (N, V) of the next tokens, as a search looks at them.

    A kernel, where there is one, reads them once for all that is asked of them; `log` are
    log-probabilities where they are known, or were changed.
    """

    def __init__(self, logits: Tensor, log: Tensor | None = None) -> None:
        self.logits, self.log = logits, log
        self.norm: Tensor | None = None
        summary = None if log is not None else summarise(logits)
        if summary is not None:
            self.norm, self.first, self.maxima = summary

    def part(self, prefixes: int, own: slice) -> Scored:
        """Some of each `prefixes` neighbouring rows."""
        some = copy(self)
        for name, held in vars(self).items():
            if held is not None:
                setattr(some, name, held.unflatten(0, (-1, prefixes))[:, own].flatten(0, 1))
        return some

    def best(self) -> Tensor:
        """The token of highest score (N,), of equals the lowest id."""
        return best_token(self.logits) if self.norm is None else self.first

    def top(self, count: int) -> Tensor:
        """The `count` tokens of highest score (N, count), best first, of equals the lowest id."""
        return best_tokens(self.logits, count, None if self.norm is None else self.maxima)

    def continuations(self, logprob: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """The best `count` for prefixes (A, w) of so much log-probability, by a kernel if it can.

        Log-probability, prefix and token, each (A, count), best first, equals in order.
        """
        if self.norm is None or self.logits.is_cuda:
            return None
        return native.continuations(self.logits, self.norm, self.maxima, logprob, CHUNK, count)

    def logprob(self, token: Tensor) -> Tensor:
        """Log-probabilities of tokens (N, C), in float32."""
        if self.norm is not None:
            return self.logits.gather(-1, token).float() - self.norm[:, None]
        if self.log is None:
            self.log = self.logits.log_softmax(-1, dtype=torch.float32)
        return self.log.gather(-1, token)


def summarise(logits: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Log-sum-exp (N,), best token (N,) and chunk maxima (N, C) of logits (N, V), by a kernel."""
    if not runs_kernels(logits):
        return None if torch.compiler.is_compiling() else native.row_summary(logits, CHUNK)
    rows, vocab = logits.shape
    chunks = -(-vocab // CHUNK)
    norm = torch.empty(rows, dtype=torch.float32, device=logits.device)
    best = torch.empty(rows, dtype=torch.long, device=logits.device)
    maxima = torch.empty(rows, chunks, dtype=logits.dtype, device=logits.device)
    shape = (vocab, logits.stride(0), chunks)
    sizes = {"block": BLOCK, "chunk": CHUNK, "num_warps": 8}
    summary_kernel()[(rows,)](logits, norm, best, maxima, *shape, **sizes)
    return norm, best, maxima


@cache
def summary_kernel() -> Any:
    """The GPU kernel of `summarise`, in Triton, which comes with torch on CUDA.

    A row of scores is read once; of equals the lowest id is the best.
    """
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def row_summary(  # type: ignore[no-untyped-def]
        logits, norm, best, maxima, vocab, stride, chunks, block: tl.constexpr, chunk: tl.constexpr
    ):
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

    return row_summary


def leading(x: Tensor, count: int) -> Tensor:
    """Indices (…, count) of the largest in the last dimension, largest first, equals in order.

    Fewer where there are no more.
    """
    # Short rows are sorted in one kernel; a top-k of floats leaves equals to chance.
    if x.is_cuda or x.numel() <= SHORT:
        return x.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return order_keys(x).topk(min(count, x.shape[-1]), -1).indices


def order_keys(x: Tensor) -> Tensor:
    """Whole numbers in the order of x, none equal: the bits of a float, then minus its place."""
    bits = (x.float() + 0.0).contiguous().view(torch.int32).long()  # + 0.0: no negative zero
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits << 32) - torch.arange(x.shape[-1], device=x.device)


def best_token(logits: Tensor) -> Tensor:
    """The token of highest score (…), of equals the lowest id: a faster argmax on a CPU."""
    vocab = logits.shape[-1]
    if logits.is_cuda or vocab <= CHUNK:
        return logits.argmax(-1)
    chunk = chunk_maxima(logits).argmax(-1, keepdim=True)
    token = chunk * CHUNK + torch.arange(CHUNK, device=logits.device)
    value = logits.gather(-1, token.clamp_(max=vocab - 1))  # the last token again loses to itself
    return token.gather(-1, value.argmax(-1, keepdim=True))[..., 0]


def best_tokens(logits: Tensor, count: int, maxima: Tensor | None = None) -> Tensor:
    """The `count` tokens of highest score (…, count), best first, of equals the lowest id.

    The vocabulary is read once, for the maximum of each chunk (…, C): the best tokens lie in the
    chunks with the best maxima, so only those are ranked.
    """
    vocab = logits.shape[-1]
    if vocab <= CHUNK * count:
        return leading(logits, count)
    maxima = chunk_maxima(logits) if maxima is None else maxima
    chunks = leading(maxima, count).sort(-1).values  # so that equals are met in the order of ids
    token = chunks[..., None] * CHUNK + torch.arange(CHUNK, device=logits.device)
    token = token.flatten(-2)  # (…, count · CHUNK)
    value = logits.gather(-1, token.clamp(max=vocab - 1)).masked_fill(token >= vocab, -torch.inf)
    return token.gather(-1, leading(value, count))


def chunk_maxima(logits: Tensor) -> Tensor:
    """The largest score of each chunk of the vocabulary: (…, V) → (…, C)."""
    vocab = logits.shape[-1]
    whole = vocab - vocab % CHUNK
    maxima: Tensor = logits[..., :whole].unflatten(-1, (whole // CHUNK, CHUNK)).amax(-1)
    if whole == vocab:
        return maxima
    rest: Tensor = logits[..., whole:].amax(-1, keepdim=True)
    return torch.cat((maxima, rest), -1)
