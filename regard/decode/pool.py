"""Pool: the finished hypotheses of a beam search, on tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decode.top import leading


@dataclass
class Pool:
    """The best finished hypotheses of each source, best first."""

    tokens: Tensor  # (A, W, limit); zeros after the end
    length: Tensor  # (A, W)
    logprob: Tensor  # (A, W)
    score: Tensor  # (A, W); −inf where there is none

    @classmethod
    def empty(cls, tokens: Tensor, width: int) -> Pool:
        """Nothing yet, for as many sources and as long as `tokens` (A, …, limit)."""
        sources, nothing = len(tokens), -torch.inf
        return cls(
            tokens.new_zeros(sources, width, tokens.shape[-1]),
            tokens.new_zeros(sources, width),
            torch.full((sources, width), nothing, device=tokens.device),
            torch.full((sources, width), nothing, device=tokens.device),
        )

    def add(self, other: Pool, unique: bool = True) -> Pool:
        """The best `W` of both; each words once, unless they are known to differ (`unique`)."""
        joined = [torch.cat(pair, 1) for pair in zip(self.parts(), other.parts(), strict=True)]
        if not unique:
            joined[3] = joined[3].masked_fill(repeated(*joined), -torch.inf)
        best = leading(joined[3], self.score.shape[1])
        return Pool(*(take(part, best) for part in joined))

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All fields."""
        return self.tokens, self.length, self.logprob, self.score

    def rows(self, kept: Tensor) -> Pool:
        """Only these sources."""
        return Pool(*(part[kept] for part in self.parts()))


def repeated(tokens: Tensor, length: Tensor, logprob: Tensor, score: Tensor) -> Tensor:
    """Hypotheses (A, N) whose words an earlier one has."""
    same = (tokens[:, :, None] == tokens[:, None]).all(-1)  # (A, N, N)
    same &= (length[:, :, None] == length[:, None]) & (score > -torch.inf)[:, None]
    return same.tril(-1).any(-1)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Choose along the second dimension, whatever follows it: (A, N, …), (A, M) → (A, M, …)."""
    return x.gather(1, index.view(*index.shape, *[1] * (x.dim() - 2)).expand(-1, -1, *x.shape[2:]))
