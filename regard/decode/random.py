"""Counter-based random numbers: a draw depends on seed, row and step, on nothing else.

So a row's sample does not change with its neighbours, with the batch, the device or the order of
work, and a resumed decode draws the same numbers. The mixer is SplitMix64 (Steele 2014).
"""

from __future__ import annotations

import torch
from torch import Tensor

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number


def mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64; multiplication wraps around."""
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        x = (x ^ logical_shift(x, shift)) * factor
    return x ^ logical_shift(x, 31)


def logical_shift(x: Tensor, count: int) -> Tensor:
    """Shift right and fill with zeros; torch's own keeps the sign."""
    return (x >> count) & ((1 << (64 - count)) - 1)


def uniform(seed: int, rows: Tensor, step: int | Tensor) -> Tensor:
    """One float64 in [0, 1) per row number (B,); seed and row number count as one, their sum."""
    key = mix((rows.to(torch.int64) + 1 + seed) * GOLDEN)  # wraps around, as do all below
    count = (torch.as_tensor(step, dtype=torch.int64) + 1) * GOLDEN
    bits = logical_shift(mix(key + count), 11)  # 53 bits
    return bits.double() * 2.0**-53


def draw(logits: Tensor, number: Tensor) -> Tensor:
    """The token that a uniform number (B,) falls on, tokens laid out in the order of their ids."""
    p = logits.double().softmax(-1)
    edges = p.cumsum(-1)
    total = edges[..., -1:]
    chosen = torch.searchsorted(edges, (number.to(p.device)[:, None] * total), right=True)[:, 0]
    last = p.shape[-1] - 1 - (p.flip(-1) > 0).int().argmax(-1)  # never a token of probability 0
    return torch.minimum(chosen, last)
