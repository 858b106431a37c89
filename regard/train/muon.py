"""Muon (Jordan 2024): a matrix is moved by its mean gradient with all singular values made one.

AdamW moves each weight by itself and finds the same few directions again and again; made
orthogonal, a step has all of them in equal strength. Other parameters have AdamW. Matrices of one
shape are worked on together: torch.optim.Muon takes them one by one, 25 small kernels each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
POLYNOMIAL = 3.4445, -4.7750, 2.0315
"""Of Newton and Schulz's iteration: five rounds bring singular values from 0.01 to 1 near one."""
ROUNDS = 5
RMS = 0.2
"""Size of a step, as AdamW's usually is, so that both have one learning rate (Liu 2025)."""


class Muon(torch.optim.Optimizer):
    """Muon for the matrices, AdamW for `groups`; one state and one list of groups for both."""

    def __init__(
        self, matrices: list[nn.Parameter], decay: float, groups: list[dict[str, Any]], **adamw: Any
    ) -> None:
        own = {"params": matrices, "weight_decay": decay}
        super().__init__([own, *groups], {"lr": adamw["lr"], "weight_decay": 0.0})
        self.adamw = torch.optim.AdamW(groups, **adamw)
        # The same groups and state, so that whoever sets a rate or saves the state sees them all.
        for group, shared in zip(self.adamw.param_groups, self.param_groups[1:], strict=True):
            shared.update(group)
        self.adamw.param_groups = self.param_groups[1:]
        self.adamw.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        group = self.param_groups[0]
        alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                alike[parameter.shape].append(parameter)
        for shape, weights in alike.items():
            for weight in weights:
                if "momentum" not in self.state[weight]:
                    self.state[weight]["momentum"] = torch.zeros_like(weight)
            means = [self.state[weight]["momentum"] for weight in weights]
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            torch._foreach_lerp_(means, gradients, 1 - MOMENTUM)
            ahead = torch.stack(torch._foreach_lerp(gradients, means, MOMENTUM))  # Nesterov
            moves = orthogonal(ahead).to(ahead.dtype) * (RMS * max(shape) ** 0.5)
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, list(moves), alpha=-group["lr"])
        self.adamw.step(closure)


def orthogonal(x: Tensor) -> Tensor:
    """Matrices (N, A, B) with their singular values made about one, by products alone."""
    a, b, c = POLYNOMIAL
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    if x.is_cuda:
        x = x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
