"""Kernels of inference on CPUs (`inference.c`): int8 products, attention, steps of a search.

On a CPU that `native/build.py` does not know, or without compiled files and a compiler, everything
runs on torch's own kernels: equal answers, slower.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from regard.native.build import NativeLibrary, build_library

PANEL, GROUP = 64, 4  # outputs, at most, and inputs that lie together in packed weights
LANES = 16  # floats of a vector


class TensorLayout(ctypes.Structure):
    """`Tensor` of vector.h: where (B, H, S, K) lies, floats between batches, heads and slots."""

    _fields_ = [
        ("at", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "head", "slot")),
    ]

    @classmethod
    def of(cls, x: Tensor) -> TensorLayout:
        """The place of a tensor, which must outlive it."""
        return cls(x.data_ptr(), *x.stride()[:3])


class MaskLayout(ctypes.Structure):
    """Which keys may be seen, and bytes between the rows of two batches and of two queries."""

    _fields_ = [("at", ctypes.c_void_p), ("batch", ctypes.c_int64), ("query", ctypes.c_int64)]

    @classmethod
    def of(cls, mask: Tensor | None) -> MaskLayout:
        """The place of a mask (B or 1, 1, T or 1, S) without gaps, which must outlive it."""
        if mask is None:
            return cls(None, 0, 0)
        batch, _, queries, keys = mask.shape
        between = 0 if batch == 1 else queries * keys, 0 if queries == 1 else keys
        return cls(mask.data_ptr(), *between)


@cache
def find_native() -> NativeLibrary:
    """The kernels, or why there are none."""
    native = build_library("inference.c")
    if native.library is not None:  # say what the functions take, so that calls convert nothing
        kernels, pointer, whole = native.library, ctypes.c_void_p, ctypes.c_int64
        kernels.pack.argtypes = [pointer, whole, whole, pointer]
        kernels.pack.restype = None
        kernels.product.argtypes = [pointer, MapLayout, pointer, whole, ctypes.c_int]
        kernels.to_levels.argtypes = [pointer, whole, whole, pointer, pointer]
        kernels.to_levels.restype = None
        kernels.normalise.argtypes = [pointer, NormLayout, pointer, whole, whole]
        kernels.normalise.restype = None
        kernels.translate.argtypes = [*[pointer] * 4, whole, pointer, pointer]
        kernels.attend.argtypes = [
            *(pointer, whole, TensorLayout, TensorLayout, MaskLayout, pointer),
            *[whole] * 6,
            *(ctypes.c_int, ctypes.c_int, ctypes.c_float),
        ]
        kernels.summary.argtypes = [pointer, *[whole] * 4, *[pointer] * 3]
        kernels.summary.restype = None
        tables = [pointer] * 3
        kernels.continuations.argtypes = [pointer, *[whole] * 5, *tables, whole, *tables]
        kernels.reorder.argtypes = [pointer, whole, pointer, *[whole] * 4]
    return native


def library() -> ctypes.CDLL | None:
    """The kernels; None where they cannot be."""
    return find_native().library


class MapLayout(ctypes.Structure):
    """`Map` of inference.c: packed weights, steps, bias or nothing, outputs and inputs."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("packed", "step", "bias")),
        *((name, ctypes.c_int64) for name in ("outputs", "inputs")),
    ]


class NormLayout(ctypes.Structure):
    """`Norm` of inference.c: weight and bias of a layer norm, and its epsilon."""

    _fields_ = [("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("eps", ctypes.c_float)]


class NativeMap:
    """The map (…, K) → (…, N) of whole numbers (N, K), their steps (N,) and a bias (N,)."""

    def __init__(self, weight: Tensor, step: Tensor, bias: Tensor | None) -> None:
        kernels = library()
        if kernels is None:
            raise RuntimeError("no native kernels here")
        outputs, inputs = weight.shape
        weight, step = weight.contiguous(), step.contiguous()
        panels, groups = -(-outputs // PANEL), -(-inputs // GROUP)
        packed = torch.empty(panels * PANEL * groups * GROUP, dtype=torch.uint8)
        kernels.pack(weight.data_ptr(), outputs, inputs, packed.data_ptr())
        self.product, self.alive = kernels.product, (packed, step, bias)
        places = (None if part is None else part.data_ptr() for part in self.alive)
        self.layout = MapLayout(*places, outputs, inputs)

    def __deepcopy__(self, memo: object) -> NativeMap:
        return self  # nothing in it ever changes

    def __call__(self, x: Tensor) -> Tensor:
        """The product, in float32."""
        x, layout = x.contiguous(), self.layout
        rows, threads = x.numel() // layout.inputs, torch.get_num_threads()
        out = torch.empty(*x.shape[:-1], layout.outputs)
        if self.product(x.data_ptr(), layout, out.data_ptr(), rows, threads):
            raise MemoryError("no memory for an int8 product")
        return out


def to_levels(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """`to_levels` of model/int8.py; None where the kernel does not fit."""
    kernels = library()
    if kernels is None or weight.dtype != torch.float32 or not weight.is_cpu:
        return None
    weight = weight.contiguous()
    whole, step = torch.empty_like(weight, dtype=torch.int8), torch.empty(len(weight), 1)
    kernels.to_levels(weight.data_ptr(), *weight.shape, whole.data_ptr(), step.data_ptr())
    return whole, step


def normalise(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor | None:
    """The layer norm of the last dimension; None where the kernel does not fit."""
    kernels, width = library(), x.shape[-1]
    plain = x.dtype == weight.dtype == torch.float32 and x.is_cpu and width % LANES == 0
    if kernels is None or not plain or (x.requires_grad and torch.is_grad_enabled()):
        return None
    x = x.contiguous()
    out, layout = torch.empty_like(x), NormLayout(weight.data_ptr(), bias.data_ptr(), eps)
    kernels.normalise(x.data_ptr(), layout, out.data_ptr(), x.numel() // max(1, width), width)
    return out


def readable(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether C can read q (N, H, T, K), k and v (B, G, S, K), mask (B or 1, 1, T or 1, S).

    N / B neighbouring rows ask one source together.
    """
    plain = all(x.dtype == torch.float32 and x.is_cpu and x.stride(-1) == 1 for x in (q, k, v))
    if not plain or q.shape[3] % LANES or k.shape != v.shape:
        return False
    if mask is None:
        return True
    asking = len(q) // max(1, len(k)) * q.shape[2]
    batch, heads, queries, keys = mask.shape
    fits = batch in (1, len(k)) and heads == 1 and queries in (1, asking) and keys == k.shape[2]
    return fits and mask.dtype == torch.bool


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor | None:
    """Attention of q (N, H, T, K) to keys and values (B, G, S, K) → (N, H, T, K).

    N / B neighbouring rows share a source; `mask` is (B or 1, 1, T or 1, S), True = may attend.
    Padding behind the last key changes no bit. None where the kernel does not fit.
    """
    kernels = library()
    rows, heads, count, width = q.shape
    sources, groups, span, _ = k.shape
    if kernels is None or not readable(q, k, v, mask) or not span or not sources or not rows:
        return None
    beams = rows // sources
    if q.stride(1) != width or (beams > 1 and count > 1):
        return None
    if count > 1 and q.stride(0) != count * q.stride(2):
        return None
    mask = None if mask is None else mask.contiguous()
    stride = q.stride(0) if count == 1 else q.stride(2)
    out = torch.empty(rows, count, heads, width)
    source = TensorLayout.of(k), TensorLayout.of(v), MaskLayout.of(mask)
    failed = kernels.attend(
        *(q.data_ptr(), stride, *source, out.data_ptr()),
        *(sources, beams * count, heads, groups, width, span),
        *(causal, count > 1, scale),
    )
    if failed:
        raise MemoryError("no memory for attention")
    return out.transpose(1, 2)


def row_summary(logits: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """logits (N, V) → their log-sum-exp (N,), the best token (N,), chunk maxima (N, C).

    Of equals the lowest id is the best. None where the kernel does not fit.
    """
    plain = logits.dtype == torch.float32 and logits.device.type == "cpu" and logits.dim() == 2
    kernels = library() if plain and logits.numel() and logits.stride(1) == 1 else None
    if kernels is None:
        return None
    rows, vocab = logits.shape
    norm, best = torch.empty(rows), torch.empty(rows, dtype=torch.long)
    maxima = torch.empty(rows, -(-vocab // chunk))
    kernels.summary(
        *(logits.data_ptr(), logits.stride(0), rows, vocab, chunk),
        *(norm.data_ptr(), best.data_ptr(), maxima.data_ptr()),
    )
    return norm, best, maxima


def continuations(
    logits: Tensor, norm: Tensor, maxima: Tensor, logprob: Tensor, chunk: int, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of prefixes with log-probabilities (A, w), from scores (A · w, V).

    Norm and maxima are those of `row_summary`. Value, prefix and token, each (A, count).
    """
    kernels = library()
    assert kernels is not None
    sources, prefixes = logprob.shape
    logprob = logprob.contiguous()
    value = torch.empty(sources, count)
    parent, token = torch.empty(2, sources, count, dtype=torch.long)
    failed = kernels.continuations(
        *(logits.data_ptr(), logits.stride(0), sources, prefixes, logits.shape[1], chunk),
        *(norm.data_ptr(), maxima.data_ptr(), logprob.data_ptr(), count),
        *(value.data_ptr(), parent.data_ptr(), token.data_ptr()),
    )
    if failed:
        raise MemoryError("no memory for the best continuations")
    return value, parent, token


def reorder(tensors: Sequence[Tensor], rows: Tensor, group: int, used: int) -> bool:
    """Row n of each (B, S, …) becomes what row rows[n] was, as far as `used` of S; in place.

    False, and nothing done, where the kernel does not fit: the tensors are alike, the rows of a
    group come from one group, and groups may be dropped but not change places.
    """
    kernels, held = library(), tensors[0]
    plain = held.dtype == torch.float32 and held.device.type == "cpu" and len(rows) <= len(held)
    alike = all(other.shape == held.shape and other.is_contiguous() for other in tensors)
    if kernels is None or not plain or len(rows) % group or not alike:
        return False
    places = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    stride, size = held.stride(0), used * held.stride(1)
    rows = rows.contiguous()
    failed: int = kernels.reorder(
        places, len(tensors), rows.data_ptr(), len(rows), group, stride, size
    )
    return not failed
