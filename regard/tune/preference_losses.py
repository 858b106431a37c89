"""Losses of learning from preferences and rewards, as functions of log-probabilities and scores.

DPO (Rafailov 2023), IPO (Azar 2023), cDPO (Mitchell 2023), Bradley–Terry over rankings (Ouyang
2022), PPO (Schulman 2017) with GAE (Schulman 2015), GRPO (Shao 2024). Nothing here knows a model.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Comparison = Literal["dpo", "ipo"]


def comparison_loss(
    policy: Tensor, reference: Tensor, beta: float, kind: Comparison = "dpo", flipped: float = 0.0
) -> Tensor:
    """Loss (P,) of pairs from log-probabilities (P, 2) of the chosen and the rejected answer.

    dpo: −log σ(β m), m being how much more than the reference the policy prefers the chosen one;
    `flipped` is the share of pairs whose label is thought wrong (cDPO). ipo: (m − 1 / 2β)².
    """
    chosen, rejected = (policy - reference).unbind(-1)
    margin = chosen - rejected
    if kind == "ipo":
        return (margin - 1 / (2 * beta)) ** 2
    right, wrong = F.logsigmoid(beta * margin), F.logsigmoid(-beta * margin)
    return -right if not flipped else -(1 - flipped) * right - flipped * wrong


def ranking_loss(scores: Tensor, real: Tensor) -> Tensor:
    """Loss (P,) of answers ranked best first: −log σ(rᵢ − rⱼ), the mean over all pairs i < j.

    scores (P, K); `real` (P, K) is False where a prompt has fewer answers (Bradley–Terry).
    """
    above = torch.ones(scores.shape[1:] * 2, dtype=torch.bool, device=scores.device).triu(1)
    pairs = above & real[:, :, None] & real[:, None, :]
    each = -F.logsigmoid(scores[:, :, None] - scores[:, None, :])
    return (each * pairs).sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)


def clipped_policy_loss(ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO: −min(ρ A, clip(ρ, 1 − ε, 1 + ε) A), elementwise."""
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def clipped_value_loss(values: Tensor, before: Tensor, returns: Tensor, clip: float) -> Tensor:
    """½ max((V − R)², (V clipped to `before` ± ε − R)²), elementwise."""
    near = before + (values - before).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2)


def generalized_advantages(
    rewards: Tensor, values: Tensor, real: Tensor, gamma: float = 1.0, decay: float = 0.95
) -> Tensor:
    """GAE (B, T): Σₖ (γλ)ᵏ δₜ₊ₖ with δₜ = rₜ + γ Vₜ₊₁ − Vₜ; all (B, T), V = 0 after the last token.

    `real` (B, T) marks the tokens of the answers, each row's in one stretch.
    """
    values = values * real
    after = F.pad(values, (0, 1))[:, 1:]
    errors = (rewards + gamma * after - values) * real
    total, sums = torch.zeros_like(errors[:, 0]), []
    for error in reversed(errors.unbind(1)):
        total = error + gamma * decay * total
        sums.append(total)
    return torch.stack(sums[::-1], 1) * real


def group_advantages(rewards: Tensor, scale: bool = True) -> Tensor:
    """GRPO (P, n): what each of n answers to a prompt has above their mean, in deviations.

    Without `scale` not divided by the standard deviation (Dr. GRPO, Liu 2025).
    """
    above = rewards - rewards.mean(1, keepdim=True)
    return above / (rewards.std(1, keepdim=True) + 1e-6) if scale else above


def whiten(values: Tensor, real: Tensor) -> Tensor:
    """Values of mean 0 and deviation 1 over the real ones; 0 elsewhere."""
    some = values[real]
    spread = (some - some.mean()).square().mean().sqrt()
    return (values - some.mean()) / (spread + 1e-8) * real


def adapt_beta(beta: float, before: float, now: float, target: float) -> float:
    """β moved towards a wanted divergence, given that of the rollout before and of this one.

    A controller with a proportional and an integral part, in logarithms: log β moves by 2 (e − e′)
    + e / 20 with e = log(KL / target), at most by a fifth. The integral part alone (Ziegler 2019)
    swings, from no price at all to millions: the policy follows β by many rollouts.
    """
    last, error = (math.log(max(nats / target, 0.5)) for nats in (before, now))
    return beta * math.exp(min(max(2 * (error - last) + 0.05 * error, -0.2), 0.2))
