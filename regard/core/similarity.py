"""Attention as kernel regression: weights from any similarity of query and key (#37–#39)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError, check_known

Similarity = Callable[[Tensor, Tensor, float], Tensor]


def dot(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """q · k · scale: (…, T, K), (…, S, K) → (…, T, S)."""
    return (q * scale) @ k.transpose(-1, -2)


def distance(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """−|q − k| · scale, the Laplace kernel."""
    return -torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist") * scale


def gaussian(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """−|q − k|² · scale / 2; with keys of equal norm it gives the same weights as dot."""
    square = q.square().sum(-1, keepdim=True) + k.square().sum(-1)[..., None, :]
    return -0.5 * scale * (square - 2 * q @ k.transpose(-1, -2))


SIMILARITIES: dict[str, Similarity] = {"dot": dot, "distance": distance, "gaussian": gaussian}


def similarity(kind: str | Similarity) -> Similarity:
    """The similarity called `kind`, or `kind` itself when it is a function of (q, k, scale)."""
    if callable(kind):
        return kind
    check_known(kind, SIMILARITIES, "choosing a similarity")
    return SIMILARITIES[kind]


Numbers = Tensor | Sequence[Any] | Any
"""A tensor, an array, or lists of numbers."""


def to_tensor(doing: str, name: str, value: Numbers) -> Tensor:
    """What was given as a tensor."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        fault, wanted = f"{name} of type {type(value).__name__}", "a tensor, array or lists"
        raise DataError(doing, fault, f"{wanted} of numbers, of equal length") from None


def to_numbers(doing: str, **given: Numbers) -> list[Tensor]:
    """What was given as floating tensors of one dtype."""
    tensors = [to_tensor(doing, name, value) for name, value in given.items()]
    tensors = [tensor if tensor.is_floating_point() else tensor.float() for tensor in tensors]
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    return [tensor.to(dtype) for tensor in tensors]


def to_allow(allow: Numbers, scores: Tensor) -> Tensor:
    """A mask as booleans that fit the scores (…, T, S)."""
    mask = to_tensor("attention", "allow", allow).to(scores.device)
    try:
        fits = mask.dtype == torch.bool and mask.expand_as(scores) is not None
    except RuntimeError:
        fits = False
    if not fits:
        fault = f"allow of shape {tuple(mask.shape)} and {mask.dtype}"
        wanted = f"booleans, True = may attend, of shape {tuple(scores.shape)}"
        raise DataError("attention", fault, wanted, "mask > 0 makes booleans of numbers")
    return mask


def attend(
    q: Numbers,
    k: Numbers,
    v: Numbers,
    allow: Numbers | None = None,
    kind: str | Similarity = "dot",
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Soft look-up: (values averaged by similarity of query and key, the weights).

    q (…, T, K), k (…, S, K), v (…, S, E), allow (…, T, S) with True = may attend.
    Each output is a convex combination of the allowed values; no allowed key gives zeros.
    """
    q, k, v = to_numbers("attention", q=q, k=k, v=v)
    fault = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() or min(k.dim(), v.dim()) < 2:
        raise DataError("attention", fault, "queries (…, T, K), keys (…, S, K), values (…, S, E)")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise DataError("attention", fault, "q and k of one width, k and v of one length")
    try:
        torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    except RuntimeError:
        raise DataError("attention", fault, "as many rows of one as of the other") from None
    if k.shape[-2] == 0:
        raise DataError("attention", "no keys", "at least one key and value")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if not isinstance(scale, int | float):
        raise DataError("attention", f"scale = {scale!r}", "a number")
    scores = similarity(kind)(q, k, scale)
    if torch.isnan(scores).any():
        name = kind if isinstance(kind, str) else getattr(kind, "__name__", repr(kind))
        raise DataError("attention", f"the similarity {name} returned NaN", "finite scores")
    weights = weigh(scores, None if allow is None else to_allow(allow, scores))
    return weights @ v, weights


def weigh(scores: Tensor, allow: Tensor | None) -> Tensor:
    """Softmax over allowed keys; the mask goes on the scores, a fully masked row gives zeros."""
    if allow is None:
        return scores.softmax(-1)
    live = allow.any(-1, keepdim=True)
    blocked = ~allow & live  # a dead row is left unmasked, so that its gradient stays finite
    return scores.masked_fill(blocked, -torch.inf).softmax(-1) * live


def attention(x: Numbers, z: Numbers | None = None) -> Tensor:
    """softmax(X Zᵀ) Z without any parameter or scale: the operation before its four fixes (#28)."""
    x, z = to_numbers("attention", x=x, z=x if z is None else z)
    return attend(x, z, z, scale=1.0)[0]


def kernel_regression(
    x: Numbers, y: Numbers, query: Numbers, kind: str | Similarity = "distance"
) -> tuple[Tensor, Tensor]:
    """Nadaraya–Watson: predict y at `query` from points (x, y); returns (prediction, weights).

    x (N,) or (N, K), y (N,) or (N, E). The scale is 1: bandwidth h is x and query divided by h.
    """
    x, y, query = to_numbers("kernel regression", x=x, y=y, query=query)
    if not x.numel():
        raise DataError("kernel regression", "no points", "at least one point (x, y)")
    points = x.reshape(len(x), -1)
    asked = query.reshape(-1, points.shape[-1])
    out, weights = attend(asked, points, y.reshape(len(y), -1), kind=kind, scale=1.0)
    return out.squeeze(), weights.squeeze(0)
