"""All weight initialisation in one place.

| parameter                        | start                                                        |
|----------------------------------|--------------------------------------------------------------|
| linear, embedding, learned table | normal, standard deviation 0.02 (GPT-2, BERT)                |
| attn.o, cross.o, mlp.down        | the same / sqrt(2 · depth): the stream's variance stays flat |
| norm weight / bias, linear bias  | 1 / 0                                                        |
| relative bias table              | 0: the model starts blind to distance                        |
| convolution                      | torch's own (fan-in uniform)                                 |
"""

from __future__ import annotations

import torch
from torch import nn

from regard.core.position import Learned
from regard.core.stack import Stack

DEVIATION = 0.02


@torch.no_grad()
def initialise(model: nn.Module, seed: int = 0) -> None:
    """Fill every parameter as the table says; the same seed gives the same weights."""
    generator = torch.Generator().manual_seed(seed)

    def normal(weight: torch.Tensor, deviation: float = DEVIATION) -> None:
        weight.copy_(torch.randn(weight.shape, generator=generator) * deviation)

    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | Learned):
            normal(module.weight)
        elif isinstance(module, nn.Conv1d | nn.Conv2d):
            spread = torch.rand(module.weight.shape, generator=generator) * 2 - 1
            module.weight.copy_(spread * module.weight[0].numel() ** -0.5)
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d) and module.bias is not None:
            module.bias.zero_()
    for stack in (module for module in model.modules() if isinstance(module, Stack)):
        for name, weight in stack.named_parameters():
            if name.endswith(("attn.o.weight", "cross.o.weight", "mlp.down.weight")):
                weight.mul_((2 * stack.config.depth) ** -0.5)
