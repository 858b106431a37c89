"""Float32 training on a CPU: matrix products through oneDNN, the rest by kernels of our own.

oneDNN orders a weight into blocks that fit the vector units and adds the bias in the same pass,
where `F.linear` first fills the result with it. The gradient by the weight is no faster there and
stays with BLAS. What is computed is the same to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.core.attention import Attention, View
from regard.core.mlp import MLP, gelu_tanh
from regard.model.model import Model
from regard.native import training as native


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (…, K) · weightᵀ + bias for weight (M, K), of any strides → (…, M); no gradient."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


class Product(torch.autograd.Function):
    """x wᵀ + b with its gradients; x (…, K), w (M, K), b (M,)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(…, M)."""
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of those inputs that need one."""
        x, weight = ctx.saved_tensors
        gradient = gradients[0].flatten(0, -2)  # (N, M)
        needs = ctx.needs_input_grad
        return (
            multiply(gradient, weight.T).view(x.shape) if needs[0] else None,
            gradient.T @ x.flatten(0, -2) if needs[1] else None,
            gradient.sum(0) if needs[2] else None,
        )


class OneDNNLinear(nn.Linear):
    """A linear map whose products run in oneDNN while it is trained; else the map it was."""

    def forward(self, input: Tensor) -> Tensor:
        """x (…, K) → (…, M)."""
        apply = OneDNNLinear.product if self.training else F.linear
        return apply(input, self.weight, self.bias)

    @staticmethod
    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The map itself; `joined` in core/attention.py calls it with weights of several maps."""
        apply = Product.apply if native.simple(x, weight) else F.linear
        product: Tensor = apply(x, weight, bias)
        return product


class NativeAttention(Attention):
    """Attention by our kernel while it is trained; else what it was."""

    def fused(self, q: Tensor, k: Tensor, v: Tensor, ctx: View) -> Tensor:
        """q (B, H, T, K), k and v (B, G, S, K) → (B, H, T, K)."""
        if not self.training or not native.fits(q, k, v, ctx.mask, ctx.causal):
            return super().fused(q, k, v, ctx)
        z = native.attend(q, k, v, ctx.mask, ctx.causal, self.scale)
        return z if ctx.live is None else z * ctx.live


class NativeMLP(MLP):
    """An MLP whose GELU is one pass there and one back while it is trained; else what it was."""

    def activate(self, x: Tensor) -> Tensor:
        """Each neuron by itself."""
        return native.gelu_tanh(x) if self.training else self.act(x)


def train_on_cpu(model: Model) -> int:
    """Give all blocks what is faster here; returns how many maps there are. Weights stay put."""
    if model.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return 0
    count = 0
    for stack in model.stacks:
        for module in stack.blocks.modules():
            kind = getattr(module, "kind", type(module))  # of a map with adapters what it was
            if kind is nn.Linear and module.weight.dtype == torch.float32:
                setattr(module, "__class__" if kind is type(module) else "kind", OneDNNLinear)
                count += 1
            elif type(module) is Attention and native.library() is not None:
                module.__class__ = NativeAttention
            elif type(module) is MLP and module.act is gelu_tanh and native.library() is not None:
                module.__class__ = NativeMLP
    return count
