"""From tokens of the last layer back to the input: attention rollout and flow.

Both (Abnar and Zuidema 2020) take each layer as the mean of its heads, mixed with the shortcut.
Rollout multiplies the layers. Flow asks how much could pass from a token of the top to a token of
the input if each weight were the capacity of a pipe: a maximum flow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.look.inputs import Watch

SHORTCUT = 0.5  # share of the stream that passes a layer beside its attention
TINY = 1e-12  # a way through the pipes that carries less is none

Capacities = NDArray[np.float64]


def mixed(patterns: Sequence[Tensor], shortcut: float = SHORTCUT) -> list[Tensor]:
    """Of each pattern (B, H, T, T) its mean over heads with the shortcut, rows summing to 1."""
    if not patterns:
        raise UsageError("following attention", "no patterns", "those of each block, first to last")
    if not 0 <= shortcut <= 1:
        raise UsageError("following attention", f"a shortcut of {shortcut}", "0 to 1")
    shape = patterns[0].shape
    for pattern in patterns:
        if pattern.dim() != 4 or (pattern.shape[0], *pattern.shape[2:]) != (shape[0], *shape[-2:]):
            found = f"shapes {tuple(shape)} and {tuple(pattern.shape)}"
            raise DataError("following attention", found, "(B, H, T, T), of one B and T")
        if pattern.shape[2] != pattern.shape[3]:
            found = f"a pattern of shape {tuple(pattern.shape)}"
            raise DataError("following attention", found, "self-attention, (B, H, T, T)")
    made = []
    for pattern in patterns:
        mean = pattern.mean(1)
        whole = (1 - shortcut) * mean + shortcut * torch.eye(shape[-1]).to(mean)
        made.append(whole / whole.sum(-1, keepdim=True).clamp(min=TINY))
    return made


def rollout(patterns: Sequence[Tensor], shortcut: float = SHORTCUT) -> Tensor:
    """How much of each input token is in each token of the top (B, T, T); rows sum to 1."""
    return multiply(mixed(patterns, shortcut))


def multiply(layers: Sequence[Tensor]) -> Tensor:
    """The product of layers (B, T, T), the last on the left."""
    made, *rest = layers
    for layer in rest:
        made = layer @ made
    return made


def flow(patterns: Sequence[Tensor], query: int = -1, shortcut: float = SHORTCUT) -> Tensor:
    """The maximum flow from one token of the top to each token of the input (B, T)."""
    return pour(mixed(patterns, shortcut), query)


def pour(layers: Sequence[Tensor], query: int, watch: Watch | None = None) -> Tensor:
    """The same through layers (B, T, T): a flow for each token, 17 s for 100 in 12 layers."""
    count = layers[0].shape[-1]
    if not -count <= query < count:
        raise UsageError("following attention", f"query {query}", f"{-count} to {count - 1}")
    stacked = torch.stack(list(layers)[::-1], 1).double().cpu().numpy()  # (B, L, T, T), top first
    found = []
    for token in range(count):
        if watch is not None:
            watch(token, count)
        found.append([maximum_flow(c, query % count, token) for c in stacked])
    return torch.tensor(found).T.to(layers[0])


def maximum_flow(capacities: Capacities, source: int, sink: int) -> float:
    """From a node of the first level to one of the last through capacities (L, T, T).

    Sends as much as fits through the widest way, again and again (Edmonds and Karp 1972). What was
    sent may be taken back, so a way may lead back to an earlier level.
    """
    room, sent, total = capacities.copy(), np.zeros_like(capacities), 0.0
    while True:
        width, came = widest(room, sent, source)
        amount = float(width[-1, sink])
        if amount <= TINY:
            return total
        total += amount
        level, node = len(capacities), sink
        while (level, node) != (0, source):
            before, other = came[level, node]
            if before < level:
                room[before, other, node] -= amount
                sent[before, other, node] += amount
            else:
                sent[level, node, other] -= amount
                room[level, node, other] += amount
            level, node = before, other


def widest(room: Capacities, sent: Capacities, source: int) -> tuple[Capacities, NDArray[np.int64]]:
    """How much could still reach each node (L + 1, T), and from which (level, place) it comes."""
    levels, count, _ = room.shape
    width, came = np.zeros((levels + 1, count)), np.zeros((levels + 1, count, 2), np.int64)
    width[0, source] = np.inf
    changed = True
    while changed:
        changed = False
        for n in range(levels):  # down
            changed |= widen(width, came, n, n + 1, room[n])
        for n in reversed(range(levels)):  # and back up, against what was sent
            changed |= widen(width, came, n + 1, n, sent[n].T)
    return width, came


def widen(
    width: Capacities, came: NDArray[np.int64], start: int, end: int, pipes: Capacities
) -> bool:
    """Take wider ways from one level to the next; whether there was one."""
    through = np.minimum(width[start][:, None], pipes)  # (from, to)
    best = through.argmax(0)
    value = through[best, np.arange(len(best))]
    better = value > width[end]
    width[end][better] = value[better]
    came[end][better] = np.stack([np.full_like(best, start), best], 1)[better]
    return bool(better.any())
