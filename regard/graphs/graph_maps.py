"""Where the heads of a model look in a graph: between which nodes, and from what is read for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import DataError
from regard.graphs.graph_files import Graph, molecule_graph, read_graphs
from regard.graphs.graph_tasks import collate, lay_out, shortest_paths
from regard.kit import Kit
from regard.look.attention_maps import map_attention
from regard.look.results import AttentionMaps, GraphOverlay


def map_graph(kit: Kit, asked: str, target: str | None, **how: Any) -> AttentionMaps:
    """Maps of the first graph of a file, or of a molecule as SMILES."""
    try:
        there = Path(asked).exists()
        graph = read_graphs(asked, labelled=False)[0] if there else molecule_graph(asked, asked)
    except DataError as error:
        fault = error.found if there else f"no such file, and as SMILES {error.found}"
        raise DataError(f"reading {asked}", fault, "a file of graphs, or SMILES") from None
    names = graph.names if graph.by_node else [str(n) for n in range(len(graph))]
    laid = lay_out(graph, kit.model.config)
    tokens = ["graph"] * (len(laid.nodes) - len(graph)) + [*(graph.atoms or names)]
    maps = map_attention(kit, asked, target, read=(collate([laid]), {"graph": tokens}), **how)
    return replace(maps, overlay=GraphOverlay(scatter(graph), graph.edges[:, :2]))


def scatter(graph: Graph) -> np.ndarray:
    """Places (N, 2) whose distances are near the lengths of paths (Torgerson 1952)."""
    length = shortest_paths(graph, int(graph.edges[:, 2].max(initial=0)) + 1)[..., 0]
    far = length[np.isfinite(length)].max() + 2  # from a node to those of other parts
    square = np.where(np.isfinite(length), length, far).astype(float) ** 2
    square -= square.mean(0)
    values, vectors = np.linalg.eigh((square.mean(1, keepdims=True) - square) / 2)
    places = vectors[:, -2:] * values[-2:].clip(0) ** 0.5
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1])))  # one node has one dimension
