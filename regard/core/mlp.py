"""MLP: think about each position alone. Plain or gated, activation by name."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.config import BlockConfig
from regard.core.norm import build_norm
from regard.core.tap import Taps
from regard.errors import check_known


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh approximation (Hendrycks and Gimpel 2016), as GPT-2 uses.

    (1 + tanh u) / 2 is the logistic function of 2u, which compiles to far fewer instructions.
    """
    if torch.compiler.is_compiling():
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        u = (2 / math.pi) ** 0.5 * (wide + 0.044715 * wide**3)
        return (wide * torch.sigmoid(2 * u)).to(x.dtype)
    return F.gelu(x, approximate="tanh")


def gelu_sigmoid(x: Tensor) -> Tensor:
    """GELU by its sigmoid approximation (Hendrycks and Gimpel 2016)."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "gelu_sigmoid": gelu_sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation function called `name`."""
    check_known(name, ACTIVATIONS, "choosing an activation")
    return ACTIVATIONS[name]


class MLP(nn.Module):
    """down(act(up x)), or down(act(gate x) · up x) when gated (Shazeer 2020)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        bias = "mlp" in config.bias
        self.norm = build_norm(config.norm, config.dim, config.eps)
        self.up = nn.Linear(config.dim, config.hidden, bias=bias)
        self.gate = nn.Linear(config.dim, config.hidden, bias=bias) if config.gated else None
        self.down = nn.Linear(config.hidden, config.dim, bias=bias)
        self.act = activation(config.act)
        self.at = Taps("pre", "post", "out")  # each neuron before and after its activation

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        if self.gate is None:
            hidden = self.activate(self.at.pre(self.up(x)))
        else:
            hidden = self.activate(self.at.pre(self.gate(x))) * self.up(x)
        return self.at.out(self.down(self.at.post(hidden)))

    def activate(self, x: Tensor) -> Tensor:
        """Each neuron by itself."""
        return self.act(x)
