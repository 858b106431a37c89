"""Sites: what is patched or ablated: a tap, a head of it, a position; and sets of them.

One forward pass tries many sets at once: the batch is repeated, and each copy has a mask of its
own at each tap (`measure`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.core.attention import Attention
from regard.look.edits import HEAD, Edit, patch
from regard.look.goal import Goal
from regard.look.hooks import Board
from regard.model.batch import Batch, tile_rows

ROWS = 256  # of one forward pass

Fills = Mapping[str, Tensor]
"""Tap → what stands there instead, broadcastable to the activation of the batch."""


class Site(NamedTuple):
    """A place: the whole of a tap, or one head or position of it."""

    tap: str
    head: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        head = "" if self.head is None else f" head {self.head}"
        return f"{self.tap}{head}" + ("" if self.position is None else f" at {self.position}")


def head_sites(board: Board) -> list[Site]:
    """Every attention head of a model, in its order."""
    found = []
    for path, module in board.model.named_modules():
        if isinstance(module, Attention):
            found += [Site(f"{path}.z", head) for head in range(module.heads)]
    return found


def mlp_sites(board: Board) -> list[Site]:
    """Every MLP of a model."""
    return [Site(name) for name in board.taps if name.endswith(".mlp.out")]


def taps_of(sites: Sequence[Site]) -> list[str]:
    """The taps of sites, each once."""
    return list(dict.fromkeys(site.tap for site in sites))


def masks(sites: Sequence[Site], chosen: Tensor, like: Fills) -> dict[str, Tensor]:
    """For sets of sites, chosen (sets, N): what each set replaces at each tap (sets, T, H, 1)."""
    made: dict[str, Tensor] = {}
    for number, site in enumerate(sites):
        column = chosen[:, number]
        if not column.any():
            continue
        shape = like[site.tap].shape
        dim = HEAD.get(site.tap.rpartition(".")[2])
        if site.tap not in made:
            long = (
                shape[1] if any(s.tap == site.tap and s.position is not None for s in sites) else 1
            )
            wide = [shape[2]] if dim == 2 else []
            made[site.tap] = torch.zeros(
                len(chosen), long, *wide, *[1] * (len(shape) - 2 - len(wide)), dtype=torch.bool
            )
        mask = made[site.tap]
        where = slice(None) if site.position is None else site.position
        if site.head is None:
            mask[column, where] = True
        else:
            mask[column, where, site.head] = True
    return made


def switched(sites: Sequence[Site], chosen: Tensor, fills: Fills, rows: int) -> dict[str, Edit]:
    """Edits that put the fills at the sites of each set, for a batch of `rows` tiled set by set."""
    edits = {}
    for tap, mask in masks(sites, chosen, fills).items():
        value = fills[tap]
        if len(value) > 1:
            value = tile_rows(value, len(chosen))
        edits[tap] = patch(value, mask=mask.repeat_interleave(rows, 0))
    return edits


@torch.no_grad()
def measure(
    board: Board,
    batch: Batch,
    goal: Goal,
    sites: Sequence[Site],
    chosen: Tensor,
    fills: Fills,
    rows: int = ROWS,
) -> Tensor:
    """The goal (sets, B) when the sites of each set, chosen (sets, N), hold the fills instead."""
    made, count = [], len(batch.ids)
    for part in chosen.split(max(1, rows // count)):
        tiled = batch.tile(len(part))
        logits, _ = board.run(tiled, (), switched(sites, part, fills, count))
        made.append(goal.rows(len(part))(logits, tiled).view(len(part), count).cpu())
    return torch.cat(made)
