"""Greedy decoding: always the likeliest next token. Deterministic."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

Step = Callable[[Tensor], Tensor]


def greedy(
    step: Step, start: Tensor, count: int, stop: Collection[int] = (), pad: int = 0
) -> Tensor:
    """At most `count` new ids (B, n) after `start` (B, T); rows that met a stop id hold `pad`.

    step(ids) gives the logits (B, V) of the token after `ids`, which are new ones only: the
    prompt first, then one column at a time; the caller keeps the cache.
    """
    stops = torch.tensor(sorted(stop), dtype=torch.long, device=start.device)
    done = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    made: list[Tensor] = []
    column = start
    for _ in range(count):
        best = step(column).argmax(-1)
        best = torch.where(done, pad, best)
        made.append(best)
        done = done | torch.isin(best, stops)
        if bool(done.all()):
            break
        column = best[:, None]
    return torch.stack(made, 1) if made else start.new_zeros(len(start), 0)
