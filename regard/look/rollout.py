"""From tokens of the last layer back to the input: attention rollout and attention flow.

Both (Abnar and Zuidema 2020) take each layer as the mean of its heads, mixed with the residual
connection. Rollout multiplies the layers. Flow asks how much could pass from a token of the top to
a token of the input if each weight were the capacity of an edge: a maximum flow, by scipy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.ambient import track
from regard.errors import UsageError

RESIDUAL = 0.5  # share of the stream that passes a layer beside its attention
UNITS = 1 << 30  # of capacity in a row: scipy's flows are 32-bit integers


def mix_residual(patterns: Sequence[Tensor], residual: float = RESIDUAL) -> list[Tensor]:
    """Mean over heads of each pattern (B, H, T, T), with the residual connection; rows sum to 1."""
    layers = []
    for pattern in patterns:
        mean = pattern.mean(1)
        layer = (1 - residual) * mean + residual * torch.eye(mean.shape[-1]).to(mean)
        layers.append(layer / layer.sum(-1, keepdim=True).clamp(min=1e-12))
    return layers


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """How much of each input token is in each token of the top (B, T, T), of mixed layers."""
    product, *rest = layers
    for layer in rest:
        product = layer @ product
    return product


def flow(layers: Sequence[Tensor], query: int = -1) -> Tensor:
    """The maximum flow (B, T) through mixed layers from one token of the top to each of the input.

    Exact to the number of edges that a cut may have, T² / 2³¹ at most: capacities are rounded.
    """
    try:
        from scipy.sparse.csgraph import maximum_flow
    except ImportError:
        problem, fix = "scipy is not installed", "pip install 'regard[flow]'"
        raise UsageError("following attention", problem, "the extra flow", fix) from None
    count = layers[0].shape[-1]
    stacked = torch.stack(list(layers)[::-1], 1).double().cpu().numpy()  # (B, L, T, T), top first
    graphs = [capacity_graph(one) for one in stacked]
    bottom = len(layers) * count
    flows = [
        [maximum_flow(graph, query % count, bottom + token).flow_value for graph in graphs]
        for token in track(range(count), "attention flow")
    ]
    return torch.tensor(flows).T.to(layers[0]) / UNITS


def capacity_graph(layers: NDArray[np.float64]) -> object:
    """Weights (L, T, T), the top first, as a sparse graph of (L + 1) T nodes."""
    from scipy.sparse import csr_array

    levels, count, _ = layers.shape
    level, query, key = np.nonzero(layers)
    units = np.rint(layers[level, query, key] * UNITS).astype(np.int32)
    size = (levels + 1) * count
    return csr_array((units, (level * count + query, (level + 1) * count + key)), (size, size))
