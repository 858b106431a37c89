"""Ablation: what a part of a model does is what is missing without it. Zero, mean or another run.

Each kind asks another question: `zero` takes the part away, `mean` what is particular to a prompt,
`resample` what the prompt and its corrupted twin do not share (Wang 2022; Chan 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.look.capture import Board
from regard.look.sites import Fills, Site, taps_of
from regard.model.batch import Batch

Kind = Literal["resample", "mean", "zero"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@torch.no_grad()
def fill(board: Board, sites: Sequence[Site], kind: Kind, reference: Batch) -> Fills:
    """What an ablation of each tap puts in its place.

    `reference` holds the corrupted prompts: row by row for `resample`; `mean` takes their mean
    at each position, over rows that are real there.
    """
    if kind not in KINDS:
        raise UsageError("ablating", f"{kind!r}", f"one of {', '.join(KINDS)}")
    _, seen = board.run(reference, taps_of(sites))
    if kind == "resample":
        return seen
    if kind == "zero":
        return {tap: torch.zeros_like(x[:1]) for tap, x in seen.items()}
    return {tap: mean_of(x, tap, reference) for tap, x in seen.items()}


def mean_of(x: Tensor, tap: str, batch: Batch) -> Tensor:
    """The mean (1, T, …) over the rows of a batch, padding left out."""
    real = (
        batch.mask if batch.target is None or not tap.startswith("encoder.") else batch.source_mask
    )
    if real is None:
        return x.mean(0, keepdim=True)
    weight = real.to(x.device).view(*real.shape, *[1] * (x.dim() - 2)).to(x.dtype)
    return (x * weight).sum(0, keepdim=True) / weight.sum(0, keepdim=True).clamp_min(1)
