"""Optimizers with decay on matrices only, and a running mean of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.block import Block
from regard.core.position import Learned
from regard.train.config import TrainConfig
from regard.train.muon import Muon
from regard.train.world import whole


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Fused AdamW (Loshchilov and Hutter 2019), or Muon for the matrices of the blocks.

    Norms, biases and embeddings are not decayed.
    """
    tables = (nn.Embedding, Learned)
    spared = {id(p) for m in model.modules() if isinstance(m, tables) for p in m.parameters()}
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for parameter in model.parameters():
        small = parameter.dim() < 2 or id(parameter) in spared
        (plain if small else decayed).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    how: dict[str, Any] = {"lr": config.lr, "betas": (config.beta1, config.beta2)}
    how |= {"eps": config.eps, "fused": True}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, **how)
    inside = {id(p) for m in model.modules() if isinstance(m, Block) for p in m.parameters()}
    matrices = [p for p in decayed if id(p) in inside]
    groups[0]["params"] = [p for p in decayed if id(p) not in inside]
    return Muon(matrices, config.weight_decay, [g for g in groups if g["params"]], **how)


class Mean:
    """Exponential running mean of the weights; what is evaluated and saved when it is on."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.step = decay, 0
        self.weights = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take one more step in; early steps weigh more, so that the start is forgotten."""
        self.step += 1
        decay = min(self.decay, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(self.weights, list(model.parameters()), 1 - decay)

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Exchange the model's weights and the mean; called twice, all is as before."""
        for held, parameter in zip(self.weights, model.parameters(), strict=True):
            kept = parameter.detach().clone()
            parameter.copy_(held)
            held.copy_(kept)


def first_bad(model: nn.Module) -> str | None:
    """Name of the first parameter whose value or gradient is not finite."""
    for name, parameter in model.named_parameters():
        for what, tensor in (("weight", parameter.detach()), ("gradient", parameter.grad)):
            if tensor is not None and not bool(torch.isfinite(whole(tensor)).all()):
                return f"{what} of {name}"
    return None


@torch.no_grad()
def first_bad_output(model: nn.Module, run: Callable[[], object]) -> str | None:
    """Name of the first part of a model whose output is not finite when `run` is called."""
    found: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def look(module: nn.Module, given: object, out: object) -> None:
            if isinstance(out, Tensor) and not bool(torch.isfinite(out).all()):
                found.append(name)

        return look

    hooks = [m.register_forward_hook(watch(name)) for name, m in model.named_modules() if name]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return f"output of {found[0]}" if found else None


def clip(model: nn.Module, most: float) -> Tensor:
    """Scale the gradient down to norm `most` (0: leave it); returns its norm before.

    A norm that is not finite scales nothing: it would spread over all gradients, and the tensor
    that it came from could not be told any more. The host does not wait for the norm.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = whole(nn.utils.get_total_norm(gradients, foreach=True))
    if most:
        usable = norm.nan_to_num(0.0, posinf=0.0)
        nn.utils.clip_grads_with_norm_(model.parameters(), most, usable, foreach=True)
    return norm
