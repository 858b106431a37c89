"""Optimizers with decay on matrices only, learning rates by step, a running mean of weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.block import Block
from regard.core.position import Learned
from regard.train.config import TrainConfig
from regard.train.distributed import whole


def build_optimizer(
    model: nn.Module, config: TrainConfig, rates: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """Fused AdamW (Loshchilov and Hutter 2019), or Muon for the matrices of the blocks.

    Norms, biases and embeddings are not decayed. `rates` are factors on the learning rate by the
    name of a parameter; each group holds its own as `rate`.
    """
    matrices, decayed, plain = group_parameters(model, config)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups: list[dict[str, Any]] = []
    for some, decay in ((decayed, config.weight_decay), (plain, 0.0)):
        alike: dict[float, list[nn.Parameter]] = defaultdict(list)
        for parameter in some:
            alike[(rates or {}).get(names[id(parameter)], 1.0)].append(parameter)
        groups += [{"params": p, "weight_decay": decay, "rate": r} for r, p in alike.items()]
    how: dict[str, Any] = {"lr": config.lr, "betas": (config.beta1, config.beta2)}
    how |= {"eps": config.eps, "fused": True}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, **how)
    return Muon(matrices, config.weight_decay, groups, **how)


def group_parameters(model: nn.Module, config: TrainConfig) -> list[list[nn.Parameter]]:
    """Matrices that Muon moves, other weights that are decayed, those that are not; frozen: none.

    Of a matrix that it moves Muon keeps one mean, AdamW of everything two.
    """
    tables = (nn.Embedding, Learned)
    spared = {id(p) for m in model.modules() if isinstance(m, tables) for p in m.parameters()}
    blocks = [m for m in model.modules() if isinstance(m, Block) and config.optimizer == "muon"]
    inside = {id(p) for block in blocks for p in block.parameters()}
    groups: list[list[nn.Parameter]] = [[], [], []]
    for parameter in (p for p in model.parameters() if p.requires_grad):
        small = parameter.dim() < 2 or id(parameter) in spared
        groups[2 if small else 0 if id(parameter) in inside else 1].append(parameter)
    return groups


# Muon -------------------------------------------------------------------------------------------

MOMENTUM = 0.95
POLYNOMIAL = 3.4445, -4.7750, 2.0315
"""Of Newton and Schulz's iteration: five rounds bring singular values from 0.01 to 1 near one."""
ROUNDS = 5
RMS = 0.2
"""Size of a step, as AdamW's usually is, so that both have one learning rate (Liu 2025)."""


class Muon(torch.optim.Optimizer):
    """Muon (Jordan 2024) for the matrices, AdamW for `groups`; one state for both.

    A matrix is moved by its mean gradient with all singular values made one. AdamW moves each
    weight by itself and finds the same few directions again and again; made orthogonal, a step has
    all of them in equal strength. Matrices of one shape are worked on together: torch.optim.Muon
    takes them one by one, 25 small kernels each.
    """

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


# Learning rates ---------------------------------------------------------------------------------


def rate_at(schedule: str, step: int, warm_up: int, steps: int, floor: float = 0.1) -> float:
    """The factor on the peak rate at a step, counted from 1: a linear warm-up, then …

    constant: the peak; inverse_sqrt: ∝ 1 / sqrt(step) (Vaswani 2017, 5.3); cosine: half a cosine
    down to `floor` at the last step.
    """
    if step <= warm_up or schedule == "constant":
        return min(1.0, step / max(warm_up, 1))
    if schedule == "inverse_sqrt":
        return float((max(warm_up, 1) / step) ** 0.5)
    done = min(1.0, (step - warm_up) / max(steps - warm_up, 1))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))


# Weights and gradients --------------------------------------------------------------------------


class Mean:
    """Exponential running mean of the weights, frozen ones left out; evaluated and saved if on."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.step = decay, 0
        numbered = enumerate(model.parameters())
        self.weights = {n: p.detach().clone() for n, p in numbered if p.requires_grad}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take one more step in; early steps weigh more, so that the start is forgotten."""
        self.step += 1
        decay = min(self.decay, (1 + self.step) / (10 + self.step))
        now: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        torch._foreach_lerp_(list(self.weights.values()), now, 1 - decay)

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Exchange the model's weights and the mean; called twice, all is as before."""
        for number, parameter in enumerate(model.parameters()):
            if number in self.weights:
                kept = parameter.detach().clone()
                parameter.copy_(self.weights[number])
                self.weights[number].copy_(kept)


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
    bad: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def look(module: nn.Module, given: object, out: object) -> None:
            if isinstance(out, Tensor) and not bool(torch.isfinite(out).all()):
                bad.append(name)

        return look

    hooks = [m.register_forward_hook(watch(name)) for name, m in model.named_modules() if name]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return f"output of {bad[0]}" if bad else None


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
