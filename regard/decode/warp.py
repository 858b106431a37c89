"""Warps: reshape next-token scores before choosing. Each takes and returns logits (B, V).

What is cut gets −inf, so any chain of warps stays a distribution. Order as usual: penalties,
temperature, then the cuts. Equal scores are ordered by id, lowest first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import UsageError


def temperature(logits: Tensor, value: float) -> Tensor:
    """p ∝ exp(logit / T); T = inf is uniform over what is left, T = 0 keeps the best token."""
    if not value >= 0:
        raise UsageError("sampling", f"temperature = {value}", "0 or more")
    if value == 0:
        return top_k(logits, 1)
    if value == float("inf"):
        return torch.where(logits == -torch.inf, logits, 0.0)
    below = (logits - logits.amax(-1, keepdim=True)).double()  # so that a small T overflows no top
    return (below / value).to(logits)


def top_k(logits: Tensor, count: int) -> Tensor:
    """Keep the `count` largest."""
    if count < 1:
        raise UsageError("sampling", f"top-k = {count}", "1 or more")
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return keep(logits, order, torch.arange(logits.shape[-1], device=logits.device) < count)


def top_p(logits: Tensor, mass: float) -> Tensor:
    """Keep the smallest set of likeliest tokens that reaches probability `mass` (Holtzman 2020)."""
    check_mass("top-p", mass)
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return keep(logits, order, within(logits.softmax(-1).gather(-1, order), mass))


def min_p(logits: Tensor, share: float) -> Tensor:
    """Keep tokens at least `share` times as likely as the best one."""
    if not 0 <= share <= 1:
        raise UsageError("sampling", f"min-p = {share}", "0 to 1")
    p = logits.softmax(-1)
    return logits.masked_fill(p < share * p.amax(-1, keepdim=True), -torch.inf)


def typical(logits: Tensor, mass: float) -> Tensor:
    """Keep tokens whose surprise is nearest to the entropy, up to `mass` (Meister 2023)."""
    check_mass("typical-p", mass)
    log = logits.log_softmax(-1)
    p = log.exp()
    entropy = -(p * log.masked_fill(p == 0, 0)).sum(-1, keepdim=True)
    order = (-log - entropy).abs().argsort(dim=-1, stable=True)
    return keep(logits, order, within(p.gather(-1, order), mass))


def check_mass(name: str, mass: float) -> None:
    """A share of probability lies in (0, 1]."""
    if not 0 < mass <= 1:
        raise UsageError("sampling", f"{name} = {mass}", "more than 0 and at most 1")


def within(p: Tensor, mass: float) -> Tensor:
    """Tokens in their order up to and including the one that reaches `mass`; at least one."""
    before = p.double().cumsum(-1) - p
    inside = (before < mass) | (mass == 1)  # all of it, whatever rounding makes of the sum
    inside[..., 0] = True
    return inside


def keep(logits: Tensor, order: Tensor, inside: Tensor) -> Tensor:
    """Cut what is not `inside`, which speaks of tokens in the order `order`."""
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, inside.expand_as(order))
    return logits.masked_fill(~kept, -torch.inf)


def repetition(logits: Tensor, history: Tensor, penalty: float) -> Tensor:
    """Make tokens of the history (B, t) less likely, whatever their sign (Keskar 2019)."""
    if not penalty > 0:
        raise UsageError("sampling", f"repetition penalty = {penalty}", "more than 0")
    seen = count_tokens(history, logits) > 0
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def frequency(logits: Tensor, history: Tensor, each: float, once: float = 0.0) -> Tensor:
    """Subtract `each` per earlier occurrence and `once` for having occurred at all."""
    count = count_tokens(history, logits)
    return logits - each * count - once * (count > 0)


def count_tokens(history: Tensor, logits: Tensor) -> Tensor:
    """How often each token occurs in the history: (B, t) → (B, V)."""
    count = torch.zeros_like(logits)
    return count.scatter_add(-1, history, torch.ones_like(history, dtype=logits.dtype))
