"""Effects: each head switched off by itself (its `z` set to zero), and what is predicted then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.look.capture import Board, Edits
from regard.look.edit import patch, zero
from regard.look.view import SCORES, TOP, Effects, Tell, View, attention_taps, count_heads
from regard.model.batch import Batch
from regard.model.model import Model

TOKENS = 4096  # that are run together
KEPT = 50_000  # forecasts that are kept: heads × positions; of long texts the last positions


class Off(NamedTuple):
    """What is predicted without each of some heads: (heads, P) and (heads, P, 5) twice."""

    changes: Tensor
    tokens: Tensor
    probabilities: Tensor


@torch.no_grad()
def with_effects(board: Board, batch: Batch, view: View, tell: Tell = lambda where: None) -> View:
    """The view with what each head does to the forecast of the last positions.

    Before a block nothing differs from the plain run, so that one batch switches off all heads of
    a block: row h goes on with what the plain run had there, head h of it zero.
    """
    if view.forecast is None:
        return view
    sites = {
        stack: [switch(board, name) for name in names]
        for stack, names in attention_taps(board).items()
    }
    every = [site for listed in sites.values() for site in listed]
    total = sum(count_heads(board.model, site) for site in every)
    with board.reading(every) as stations:
        x = board.model.hidden(batch)
        plain = {name: s.seen for name, s in stations.items() if s.seen is not None}
    size = board.model.config.head.size
    assert size is not None
    first = max(0, len(view.forecast.tokens) - max(1, min(KEPT // total, SCORES // size)))
    best = torch.from_numpy(view.forecast.tokens[first:, 0]).to(x.device)  # (P,)
    start = last_scores(board.model, x, first).log_softmax(-1)[0]  # (P, V)
    goal = start.gather(-1, best[:, None])[:, 0]  # (P,)
    effects: dict[str, Effects] = {}
    done = 0
    for stack, listed in sites.items():
        found: list[Off] = []
        for site in listed:
            tell(f"{done:,} of {total:,} heads switched off")
            found.append(block_off(board, batch, site, plain[site], first, best, goal))
            done += count_heads(board.model, site)
        effects[stack] = Effects(
            first, *(torch.stack(parts).numpy() for parts in zip(*found, strict=True))
        )
    return replace(view, effects=effects)


def switch(board: Board, pattern: str) -> str:
    """Where the heads that a pattern belongs to are switched off: at `z`, or the pattern itself."""
    z = pattern.removesuffix("pattern") + "z"
    return z if z in board.taps else pattern


def block_off(
    board: Board, batch: Batch, site: str, plain: Tensor, first: int, best: Tensor, goal: Tensor
) -> Off:
    """Each head of a block switched off, in batches."""
    rows = max(1, TOKENS // plain.shape[1]) if site.endswith(".z") else 1
    heads = list(range(count_heads(board.model, site)))
    found: list[Off] = []
    for start in range(0, len(heads), rows):
        chosen = heads[start : start + rows]
        edits: Edits = {site: zero(head=chosen[0])}
        if len(chosen) > 1:
            edits = {site: patch(each_without(plain, chosen))}
        with board.editing(edits):
            x = board.model.hidden(batch.tile(len(chosen)))
        found += predicted(board.model, x, first, best, goal)
    return Off(*(torch.cat(parts).cpu() for parts in zip(*found, strict=True)))


def each_without(z: Tensor, heads: list[int]) -> Tensor:
    """z (1, T, H, K) → one copy for each head, in which that head is zero."""
    made = z.repeat(len(heads), 1, 1, 1)
    for row, head in enumerate(heads):
        made[row, :, head] = 0
    return made


def last_scores(model: Model, x: Tensor, first: int) -> Tensor:
    """Scores (B, P, V) from a position on, or of the whole text as one position (B, 1, V)."""
    if model.config.head.take == "all":
        return model.score(x[:, first:]).float()
    return model.score(x).float()[:, None]


def predicted(model: Model, x: Tensor, first: int, best: Tensor, goal: Tensor) -> Iterator[Off]:
    """For each row of x (B, T, D) what becomes of the goal, and the likeliest tokens."""
    for row in x.split(1):
        log = last_scores(model, row, first).log_softmax(-1)  # (1, P, V)
        now = log.gather(-1, best[None, :, None])[..., 0]
        top = log.topk(min(TOP, log.shape[-1]))
        yield Off(now - goal, top.indices, top.values.exp())
