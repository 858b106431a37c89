"""The largest of many, of equals the first: what a search ranks by must not depend on chance."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.native import inference
from regard.native.gpu import runs_kernels

CHUNK = 64


class Scored:
    """Scores (N, V) of the next tokens, as a search looks at them.

    A kernel, where there is one, reads them once for all that is asked of them; `log` are
    log-probabilities where they are known, or were changed.
    """

    def __init__(self, logits: Tensor, log: Tensor | None = None) -> None:
        self.logits, self.log = logits, log
        self.norm: Tensor | None = None
        summary: tuple[Tensor, Tensor, Tensor] | None = None
        if log is None and runs_kernels(logits):
            from regard.native.triton_kernels import row_summary

            summary = row_summary(logits, CHUNK)
        elif log is None and not torch.compiler.is_compiling():
            summary = inference.row_summary(logits, CHUNK)
        if summary is not None:  # log-sum-exp (N,), best token (N,), chunk maxima (N, C)
            self.norm, self.first, self.maxima = summary

    def best(self) -> Tensor:
        """The token of highest score (N,), of equals the lowest id."""
        return self.logits.argmax(-1) if self.norm is None else self.first

    def top(self, count: int) -> Tensor:
        """The `count` tokens of highest score (N, count), best first, of equals the lowest id."""
        return best_tokens(self.logits, count, None if self.norm is None else self.maxima)

    def continuations(self, logprob: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """The best `count` for prefixes (A, w) of so much log-probability, by a kernel if it can.

        Log-probability, prefix and token, each (A, count), best first, equals in order.
        """
        if self.norm is None or self.logits.is_cuda:
            return None
        return inference.continuations(self.logits, self.norm, self.maxima, logprob, CHUNK, count)

    def logprob(self, token: Tensor) -> Tensor:
        """Log-probabilities of tokens (N, C), in float32."""
        if self.norm is not None:
            return self.logits.gather(-1, token).float() - self.norm[:, None]
        if self.log is None:
            self.log = self.logits.log_softmax(-1, dtype=torch.float32)
        return self.log.gather(-1, token)


def leading(x: Tensor, count: int) -> Tensor:
    """Indices (…, count) of the largest in the last dimension, largest first, equals in order.

    Fewer where there are no more.
    """
    # A top-k of floats would leave equals to chance.
    return x.sort(dim=-1, descending=True, stable=True).indices[..., :count]


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
