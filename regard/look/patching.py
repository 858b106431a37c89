"""Patching: put an activation of one run into another and see what comes back (Meng 2022).

- `patch_sites`: each site alone, from the clean run into the corrupted one or the other way.
- `attribute_sites`: the same to first order: two passes forward and one back (Nanda 2023).
- `patch_paths`: what a head does through certain receivers alone (Wang 2022): all other heads
  are held at what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.core.stack import Stack
from regard.errors import UsageError
from regard.look.edits import Edit, Edits, patch
from regard.look.goal import Goal
from regard.look.hooks import Board
from regard.look.sites import ROWS, Fills, Site, head_sites, masks, measure, mlp_sites, taps_of
from regard.model.batch import Batch, tile_rows

Direction = Literal["denoise", "noise"]


class Pairs(NamedTuple):
    """Prompts with corrupted twins, token by token of the same length, and what is asked."""

    clean: Batch
    corrupt: Batch
    goal: Goal
    templates: Tensor | None = None
    """(B,): which of them are alike, position by position; None: all."""


class Effects(NamedTuple):
    """What each site does to the goal."""

    effect: Tensor
    """(N, B): 0 is the run that was patched, 1 the run that the values are from."""
    clean: Tensor
    """(B,): the goal of the clean run."""
    corrupt: Tensor
    """(B,): and of the corrupted one."""

    @property
    def mean(self) -> Tensor:
        """(N,): over pairs."""
        return self.effect.mean(1)


@torch.no_grad()
def ends(board: Board, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """The goal (B,) of the clean and of the corrupted run."""
    clean, _ = board.run(pairs.clean)
    corrupt, _ = board.run(pairs.corrupt)
    return pairs.goal(clean, pairs.clean).cpu(), pairs.goal(corrupt, pairs.corrupt).cpu()


def spread(clean: Tensor, corrupt: Tensor) -> Tensor:
    """By how much the goal differs on average; refuses pairs that do not differ."""
    gap = (clean - corrupt).mean()
    if gap.abs() < 1e-6 * max(1.0, float(clean.abs().max())):
        found = f"the goal is {float(clean.mean()):.4g} in clean and corrupted prompts alike"
        raise UsageError("patching", found, "pairs whose goals differ")
    return gap


def check_places(sites: Sequence[Site]) -> None:
    """A recurrent model has no heads and no MLPs; its states are taps like others."""
    if not sites:
        expected = "heads or MLPs of a Transformer, or Site(tap) for other taps"
        raise UsageError("patching", "no places to patch", expected)


def patch_sites(
    board: Board,
    pairs: Pairs,
    sites: Sequence[Site],
    direction: Direction = "denoise",
    rows: int = ROWS,
) -> Effects:
    """Patch each site alone: `denoise` puts clean values into corrupted runs, `noise` the reverse.

    Effects are shares of the difference that the corruption makes.
    """
    check_places(sites)
    clean, corrupt = ends(board, pairs)
    gap = spread(clean, corrupt)
    into, given, start = pairs.corrupt, pairs.clean, corrupt
    if direction == "noise":
        into, given, start, gap = pairs.clean, pairs.corrupt, clean, -gap
    with torch.no_grad():
        _, fills = board.run(given, taps_of(sites))
    each = torch.eye(len(sites), dtype=torch.bool)
    found = measure(board, into, pairs.goal, sites, each, fills, rows)
    return Effects((found - start) / gap, clean, corrupt)


def attribute_sites(board: Board, pairs: Pairs, sites: Sequence[Site]) -> Effects:
    """`patch_sites(direction="noise")` to first order: (corrupted − clean) · slope, all at once."""
    last_stream(board, "patching to first order")  # a recurrence has no slope of all its steps
    taps = taps_of(sites)
    with torch.no_grad():
        logits, other = board.run(pairs.corrupt, taps)
        corrupt = pairs.goal(logits, pairs.corrupt)
    clean, own, slopes = slopes_at(board, pairs.clean, pairs.goal, taps)
    gap = spread(clean, corrupt)
    total = {tap: (other[tap] - own[tap]) * slopes[tap] for tap in taps}
    made = []
    for site in sites:
        part = total[site.tap]
        part = part if site.position is None else part[:, site.position : site.position + 1]
        part = part if site.head is None else part[:, :, site.head]
        made.append(part.flatten(1).sum(1))
    return Effects((torch.stack(made) / -gap).cpu(), clean.cpu(), corrupt.cpu())


def slopes_at(
    board: Board, batch: Batch, goal: Goal, taps: Sequence[str], edits: Edits | None = None
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """The goal (B,), activations, and the goal's gradient at each of them."""
    with torch.enable_grad():
        logits, seen = board.run(batch, taps, edits)
        value = goal(logits, batch)
        if not all(x.requires_grad for x in seen.values()):
            raise UsageError(
                "attributing", "weights without gradients", "parameters that have them"
            )
        slopes = torch.autograd.grad(value.sum(), [seen[tap] for tap in taps], allow_unused=True)
    found = {
        tap: torch.zeros_like(seen[tap]) if slope is None else slope
        for tap, slope in zip(taps, slopes, strict=True)
    }
    return value.detach(), {tap: x.detach() for tap, x in seen.items()}, found


# Paths ------------------------------------------------------------------------------------------


def last_stream(board: Board, doing: str = "patching paths") -> str:
    """The tap at the end of the residual stream: what all parts write into."""
    stack = board.model.decoder or board.model.encoder
    if not isinstance(stack, Stack):
        raise UsageError(doing, "a recurrent model", "a Transformer")
    name = "encoder" if board.model.decoder is None else "decoder"
    return f"{name}.blocks.{len(stack.blocks) - 1}.resid_post"


def send(
    board: Board, batch: Batch, held: Fills, sent: Mapping[str, Edit], receivers: Sequence[Site]
) -> Tensor:
    """Logits of a run whose receivers alone hear what is sent; the end of the stream where none.

    Until they do, all else is held at what it was.
    """
    edits = {tap: [patch(value)] for tap, value in held.items()}
    for tap, edit in sent.items():
        edits.setdefault(tap, []).append(edit)
    logits, heard = board.run(batch, taps_of(receivers), edits)
    if receivers:  # else the end has heard all, and spoken
        all_of = torch.ones(1, len(receivers), dtype=torch.bool)
        told = {
            tap: patch(heard[tap], mask=m) for tap, m in masks(receivers, all_of, heard).items()
        }
        logits, _ = board.run(batch, (), told)
    return logits


@torch.no_grad()
def patch_paths(
    board: Board,
    pairs: Pairs,
    senders: Sequence[Site],
    receivers: Sequence[Site] = (),
    freeze_mlps: bool = False,
    rows: int = ROWS,
) -> Effects:
    """Send corrupted values of each sender to the receivers alone, in clean runs.

    Receivers are heads at `q`, `k` or `v`; none is the end of the stream, the direct effect.
    Effects are shares of the difference that the corruption makes: 1 is all of it.
    """
    clean, corrupt = ends(board, pairs)
    gap = spread(clean, corrupt)
    if not receivers:
        last_stream(board)  # says so where there is none
    frozen = [*head_sites(board), *(mlp_sites(board) if freeze_mlps else [])]
    _, old = board.run(pairs.clean, taps_of([*frozen, *senders]))
    _, new = board.run(pairs.corrupt, taps_of(senders))
    made, count = [], len(pairs.clean.ids)
    for part in torch.eye(len(senders), dtype=torch.bool).split(max(1, rows // count)):
        sets = len(part)
        tiled = pairs.clean.tile(sets)
        held = {tap: tile_rows(old[tap], sets) for tap in taps_of(frozen)}
        sent = {
            tap: patch(tile_rows(new[tap], sets), mask=mask.repeat_interleave(count, 0))
            for tap, mask in masks(senders, part, new).items()
        }
        logits = send(board, tiled, held, sent, receivers)
        made.append(pairs.goal.rows(sets)(logits, tiled).view(sets, count).cpu())
    return Effects((torch.cat(made) - clean) / -gap, clean, corrupt)
