"""Kernels of float32 training on CPUs (`training.c`): attention and GELU with their gradients.

Where they cannot be compiled, torch's own do: equal numbers to rounding, slower.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.core.mlp import gelu_tanh as plain_gelu
from regard.native.build import build_library
from regard.native.inference import MaskLayout, TensorLayout, readable

LONGEST = 4096  # keys whose scores stay in a core's cache


class AttentionArguments(ctypes.Structure):
    """`Attention` of training.c."""

    _fields_ = [
        *((name, TensorLayout) for name in ("q", "k", "v", "out")),
        *(("open", MaskLayout), ("norm", ctypes.c_void_p)),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "groups")),
        *((name, ctypes.c_int64) for name in ("queries", "keys", "width")),
        *(("causal", ctypes.c_int), ("scale", ctypes.c_float)),
    ]


class AttentionGradients(ctypes.Structure):
    """`Gradients` of training.c."""

    _fields_ = [(name, TensorLayout) for name in ("out", "q", "k", "v")]


@cache
def library() -> ctypes.CDLL | None:
    """The kernels; None where they cannot be."""
    kernels = build_library("training.c").library
    if kernels is None:
        return None
    pointer, threads = ctypes.c_void_p, ctypes.c_int
    kernels.attention_forward.argtypes = [AttentionArguments, threads]
    kernels.attention_backward.argtypes = [AttentionArguments, AttentionGradients, threads]
    kernels.gelu_forward.argtypes = [pointer, pointer, ctypes.c_int64, threads]
    kernels.gelu_backward.argtypes = [pointer, pointer, pointer, ctypes.c_int64, threads]
    kernels.gelu_forward.restype = kernels.gelu_backward.restype = None
    return kernels


def run(kernel: str, *arguments: Any) -> None:
    """Call a kernel with as many threads as torch has."""
    if getattr(library(), kernel)(*arguments, torch.get_num_threads()):
        raise MemoryError("no memory for attention")


def by_position(like: Tensor) -> Tensor:
    """Room for a tensor (B, H, T, K) whose heads lie side by side."""
    batch, heads, length, width = like.shape
    return like.new_empty(batch, length, heads, width).transpose(1, 2)


def question(
    tensors: tuple[Tensor, ...], mask: Tensor | None, norm: Tensor, causal: bool, scale: float
) -> AttentionArguments:
    """Queries, keys, values and answers as the kernel reads them."""
    batch, heads, queries, width = tensors[0].shape
    sizes = batch, heads, tensors[1].shape[1], queries, tensors[1].shape[2], width
    places = *map(TensorLayout.of, tensors), MaskLayout.of(mask), norm.data_ptr()
    return AttentionArguments(*places, *sizes, causal, scale)


class Attend(torch.autograd.Function):
    """softmax(scale q kᵀ) v; q (B, H, T, K), k and v (B, G, S, K), mask (B or 1, 1, T or 1, S)."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        """(B, H, T, K)."""
        out, norm = by_position(q), q.new_empty(q.shape[:3])
        run("attention_forward", question((q, k, v, out), mask, norm, causal, scale))
        ctx.save_for_backward(q, k, v, out, mask, norm)
        ctx.how = causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """By q, k and v."""
        *tensors, mask, norm = ctx.saved_tensors
        pull = gradients[0] if gradients[0].stride(-1) == 1 else gradients[0].contiguous()
        pulls = [by_position(x) for x in tensors[:3]]
        places = AttentionGradients(*map(TensorLayout.of, (pull, *pulls)))
        run("attention_backward", question(tuple(tensors), mask, norm, *ctx.how), places)
        return (*pulls, None, None, None)


def simple(*tensors: Tensor) -> bool:
    """Whether kernels of float32 on this CPU will do: no compiler or autocast has its own."""
    busy = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
    return not busy and all(x.dtype == torch.float32 and x.is_cpu for x in tensors)


def fits(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> bool:
    """Whether the kernel can do it."""
    queries, keys = q.shape[2], k.shape[2]
    sizes = len(q) == len(k) and 0 < keys <= LONGEST and (queries <= keys or not causal)
    return simple(q) and sizes and readable(q, k, v, mask)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Attention with its gradients; q (B, H, T, K), k and v (B, G, S, K) → (B, H, T, K)."""
    mask = None if mask is None else mask.contiguous()
    answer: Tensor = Attend.apply(q, k, v, mask, causal, scale)
    return answer


class Gelu(torch.autograd.Function):
    """GELU by its tanh approximation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Of the same shape."""
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        run("gelu_forward", x.data_ptr(), out.data_ptr(), x.numel())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Of the same shape."""
        (x,) = ctx.saved_tensors
        pull, out = gradients[0].contiguous(), torch.empty_like(x)
        run("gelu_backward", x.data_ptr(), pull.data_ptr(), out.data_ptr(), x.numel())
        return out


def gelu_tanh(x: Tensor) -> Tensor:
    """`core.mlp.gelu_tanh` with its gradient."""
    activated: Tensor = Gelu.apply(x.contiguous()) if simple(x) else plain_gelu(x)
    return activated
