"""Ablation: what a part of a model does is what is missing without it. Zero, mean or another run.

Each kind asks another question: `zero` takes the part away, `mean` what is particular to a prompt,
`resample` what the prompt and its corrupted twin do not share (Wang 2022; Chan 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from regard.errors import check_known
from regard.look.hooks import Board
from regard.look.sites import Fills, Site, taps_of
from regard.model.batch import Batch

Kind = Literal["resample", "mean", "zero"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@torch.no_grad()
def fill(
    board: Board,
    sites: Sequence[Site],
    kind: Kind,
    reference: Batch,
    templates: Tensor | None = None,
) -> Fills:
    """What an ablation of each tap puts in its place.

    `reference` holds the corrupted prompts: row by row for `resample`; `mean` takes their mean
    at each position, over rows that are real there and of the same template.
    """
    check_known(kind, KINDS, "ablating")
    _, seen = board.run(reference, taps_of(sites))
    if kind == "resample":
        return seen
    if kind == "zero":
        return {tap: torch.zeros_like(x[:1]) for tap, x in seen.items()}
    return {tap: mean_of(x, tap, reference, templates) for tap, x in seen.items()}


def mean_of(x: Tensor, tap: str, batch: Batch, templates: Tensor | None = None) -> Tensor:
    """The mean over the rows of a batch (1, T, …), or of each row's template (B, T, …).

    `templates` (B,) numbers them: positions mean the same only within one. Padding is left out.
    """
    source = batch.target is not None and tap.startswith("encoder.")
    real = batch.source_mask if source else batch.mask
    weight = x.new_ones(x.shape[:2]) if real is None else real.to(x)  # (B, T)
    alike = x.new_ones(1, len(x))
    if templates is not None:
        alike = (templates[:, None] == templates).to(x)  # (B, B), also to its device
    total = torch.einsum("ab,bt,bt...->at...", alike, weight, x)
    return total / (alike @ weight).clamp_min(1).view(*total.shape[:2], *[1] * (x.dim() - 2))
