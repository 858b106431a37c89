"""Masks: who may look at whom. One meaning everywhere: True = may attend, or real token.

Allow-masks have shape (B or 1, 1, T, S) and combine by `&`; token masks have shape (B, T).
"""

from __future__ import annotations

import torch
from torch import Tensor


def causal(queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
    """Query i sees key j ≤ i; with fewer queries than keys, the queries are the last ones."""
    order = torch.arange(keys, device=device)
    return (order <= order[keys - queries :, None])[None, None]


def padding(real: Tensor) -> Tensor:
    """Keys that are real tokens: (B, S) → (B, 1, 1, S)."""
    return real[:, None, None, :]


def window(query_positions: Tensor, key_positions: Tensor, width: int) -> Tensor:
    """Keys less than `width` behind the query: (B, T), (B, S) → (B, 1, T, S).

    In a graph, where positions are paths (B, T, T, …), nodes less than `width` edges away.
    """
    if query_positions.dim() == 4:
        return (query_positions[..., 0] < width)[:, None]
    return ((query_positions[:, :, None] - key_positions[:, None, :]) < width)[:, None]


def prefix(lengths: Tensor, queries: int, keys: int) -> Tensor:
    """Full attention inside each row's prefix, causal after it: (B,) → (B, 1, T, S)."""
    inside = torch.arange(keys, device=lengths.device) < lengths[:, None]  # (B, S)
    return causal(queries, keys, lengths.device) | inside[:, None, None, :]


def documents(query_documents: Tensor, key_documents: Tensor) -> Tensor:
    """Only within one document of a packed row: (B, T), (B, S) → (B, 1, T, S)."""
    return (query_documents[:, :, None] == key_documents[:, None, :])[:, None]


def positions(real: Tensor, document: Tensor | None = None) -> Tensor:
    """Position of each token in its own sequence: padding is not counted, documents restart.

    Padding left or right of a sequence thus changes no position. (B, T) → (B, T).
    """
    if document is None:
        return (real.cumsum(-1) - 1).clamp(min=0)
    earlier = (document[:, :, None] == document[:, None, :]) & real[:, None, :]  # (B, T, T)
    return (earlier.tril().sum(-1) - 1).clamp(min=0)


def live_rows(allow: Tensor) -> tuple[Tensor, Tensor | None]:
    """(mask in which dead rows see everything, the rows that see at least one key; None is all).

    Softmax over nothing is NaN. A dead row is computed on open keys and its output set to zero
    afterwards, so that values and gradients stay finite. To ask whether there is one costs a CPU
    less than to do so.
    """
    live = allow.any(-1, keepdim=True)
    if allow.device.type == "cpu" and not torch.compiler.is_compiling() and bool(live.all()):
        return allow, None
    return allow | ~live, live


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: 0 where a boolean mask allows, −inf elsewhere; a bias as it is."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)
