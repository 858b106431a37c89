"""Goal: the one number per row whose cause is looked for, such as a difference of two logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.model.batch import Batch
from regard.model.model import Model


@dataclass(frozen=True)
class Goal:
    """How strongly a model prefers one answer, to all others or to a certain one."""

    good: Tensor
    """(B,): id of the token, or number of the class, that is asked for."""
    bad: Tensor | None = None
    """(B,): what it is compared with; None where it stands alone."""
    at: Tensor | None = None
    """(B,): column that predicts it; None is the last real one."""
    kind: Literal["logit", "logprob"] = "logit"

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Scores (B, T, V) or (B, classes) → one number a row (B,)."""
        rows = torch.arange(len(logits), device=logits.device)
        if logits.dim() == 3:
            at = last_columns(batch) if self.at is None else self.at
            logits = logits[rows, at.to(logits.device)]  # (B, V)
        if self.kind == "logprob":
            logits = logits.log_softmax(-1)
        good = logits[rows, self.good.to(logits.device)]
        return good if self.bad is None else good - logits[rows, self.bad.to(logits.device)]

    def rows(self, count: int) -> Goal:
        """The goal of one row for `count` copies of it."""
        repeated = (None if x is None else x.repeat(count) for x in (self.good, self.bad, self.at))
        good, bad, at = repeated
        assert good is not None
        return Goal(good, bad, at, self.kind)


def last_columns(batch: Batch) -> Tensor:
    """The column (B,) of each row's last real token, whichever side is padded."""
    width = batch.ids.shape[1]
    if batch.mask is None:
        return torch.full((len(batch.ids),), width - 1)
    columns = torch.arange(width, device=batch.mask.device)
    return torch.where(batch.mask, columns, -1).amax(1)


def goal_columns(model: Model, batch: Batch, goal: Goal) -> Tensor:
    """The column (B,) whose vector becomes the goal's scores."""
    if model.head.config.take == "first":
        rows = len(batch.ids)
        return torch.zeros(rows).long() if batch.mask is None else batch.mask.int().argmax(-1)
    return last_columns(batch) if goal.at is None else goal.at
