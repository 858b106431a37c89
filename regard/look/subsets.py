"""The value of a subset of tokens: what LIME, SHAP and deletion curves ask a model for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import RegardError, UsageError
from regard.look.goal import Goal
from regard.look.hooks import Board
from regard.look.inputs import (
    Baseline,
    Watch,
    baseline_vectors,
    check_one_row,
    check_token,
    chunk_rows,
    in_chunks,
    no_text,
    own_vectors,
    real_tokens,
    value_at,
    with_real,
)
from regard.model.batch import Batch
from regard.model.front_text import TextFront

Value = Callable[[Tensor], Tensor]
"""Kept tokens (N, M), True where a token is there → one number each (N,)."""


@dataclass
class Tokens:
    """A goal as a function of which tokens of one row are there: what every method explains.

    `players` are the M columns that may be absent, all real ones unless given; `baseline` says
    what an absent one is.
    """

    board: Board
    batch: Batch
    goal: Goal
    baseline: Baseline = "zero"
    players: Sequence[int] | None = None
    rows: int | None = None
    """Subsets run at once; None lets the length decide."""
    watch: Watch | None = None

    def __post_init__(self) -> None:
        check_one_row(self.batch)
        self.columns = torch.tensor(self.checked_players())
        front = self.board.model.front
        if not isinstance(front, TextFront) and self.baseline != "zero":
            raise no_text(self.baseline)
        if isinstance(self.baseline, int) and isinstance(front, TextFront):
            check_token(front, self.baseline)

    @cached_property
    def vectors(self) -> tuple[Tensor, Tensor]:
        """The input as vectors (S, D), and the same without the players."""
        own = own_vectors(self.board, self.batch)[0]
        base = baseline_vectors(self.board, self.batch, self.baseline)[0].to(own)
        gone = torch.zeros(len(own), 1, dtype=torch.bool, device=own.device)
        gone[self.columns.to(own.device)] = True
        return own, torch.where(gone, base, own)

    @cached_property
    def width(self) -> int:
        """Tokens, or patches, of the input."""
        shape = self.batch.inputs.shape
        return int(shape[1] if len(shape) == 2 else own_vectors(self.board, self.batch).shape[1])

    def checked_players(self) -> list[int]:
        """The columns that may be absent."""
        real, width = real_tokens(self.board, self.batch), self.width
        if self.players is None:
            return list(range(width)) if real is None else real[0].nonzero()[:, 0].tolist()
        wrong = [n for n in self.players if not 0 <= n < width]
        if wrong or len(set(self.players)) != len(self.players):
            found = f"players {list(self.players)}"
            raise UsageError("explaining", found, f"columns from 0 to {width - 1}, each once")
        return list(self.players)

    def __call__(self, kept: Tensor) -> Tensor:
        """kept (N, M) → the goal of each subset (N,) in float64; batched."""
        found = in_chunks(kept, chunk_rows(self.batch, self.rows), self.run, self.watch)
        if not bool(found.isfinite().all()):
            fix = "check the weights of the model"
            raise RegardError("explaining", "a goal that is infinite or NaN", "numbers", fix)
        return found

    @torch.no_grad()
    def run(self, kept: Tensor) -> Tensor:
        """One chunk of subsets."""
        device = self.batch.inputs.device
        there = torch.ones(len(kept), self.width, dtype=torch.bool)
        there[:, self.columns] = kept
        there = there.to(device)  # (R, S)
        if self.baseline == "zero":
            mixed = torch.where(there[..., None], *self.vectors)
            return value_at(self.board, self.batch, self.goal, mixed).double().cpu()
        many = self.batch.tile(len(kept))
        if self.baseline == "drop":
            real = real_tokens(self.board, many)
            real = there if real is None else there & real
            if not bool(real.any(1).all()):
                found = "a subset in which no token is left"
                fix = "keep a token of every subset out of `players`, or replace tokens"
                raise UsageError("leaving tokens out", found, "at least one", fix)
            many = with_real(self.board, many, real)
        else:
            many = replace(many, inputs=torch.where(there, many.inputs, self.baseline))
        logits, _ = self.board.run(many)
        return self.goal.rows(len(kept))(logits, many).double().cpu()
