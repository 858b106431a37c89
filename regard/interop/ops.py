"""Operations between their tensors and ours, each with its inverse, so a table works both ways."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Op(Protocol):
    """A step from the tensors of one table row in their layout to ours, and back."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        """Theirs → ours."""

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        """Ours → theirs."""


class Transpose:
    """Matrices stored as (in, out), as GPT-2 does; vectors pass."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        """(in, out) → (out, in)."""
        return [t.t() if t.dim() == 2 else t for t in tensors]

    save = load


class Split:
    """One tensor that holds several of ours, one after the other along the first dimension."""

    def load(self, tensors: list[Tensor], count: int = 3) -> list[Tensor]:
        """One → `count` of equal size."""
        return list(tensors[0].chunk(count))

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        """Several → one."""
        return [torch.cat(tensors)]


class Unsqueeze:
    """A leading dimension of size one that we do not keep."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        """(1, …) → (…)."""
        return [t[0] for t in tensors]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        """(…) → (1, …)."""
        return [t[None] for t in tensors]


class Duplicate:
    """One tensor of ours that they store under two names."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        """The first of the two is the one their model computes with."""
        return tensors[:1]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        """The same tensor twice."""
        return tensors * 2
