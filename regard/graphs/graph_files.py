"""Graphs with their labels: .npz files of one graph of labelled nodes, tables of SMILES."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from regard.ambient import note
from regard.data.tabular import check_columns, kind_of, read_table
from regard.data.text_files import Paths, find_files
from regard.errors import DataError
from regard.graphs.smiles import parse_smiles

SPLITS = {"train": "train", "test": "test"} | dict.fromkeys(("valid", "val", "dev"), "valid")


@dataclass(frozen=True)
class Graph:
    """A graph of a file; its edges have no direction."""

    place: str
    nodes: np.ndarray
    """(N, F): what is known of each node."""
    edges: np.ndarray
    """(E, 3): two nodes, and the kind of the edge between them."""
    labels: list[str]
    """Of the graph, or of each of its nodes; empty where none is known."""
    splits: list[str]
    """train, valid or test, of each label; empty where the file does not say."""
    by_node: bool = False
    paths: np.ndarray | None = None
    """(N, N, 1 + kinds): `shortest_paths`; None for those who do not look at them."""

    def __len__(self) -> int:
        return len(self.nodes)


def read_graphs(files: Paths, label: str | None = None) -> list[Graph]:
    """All graphs of files; a row that cannot be read is named and left out."""
    graphs = list[Graph]()
    for path in find_files(files):
        graphs += [read_arrays(path)] if kind_of(path) == "npz" else read_molecules(path, label)
    if len({graph.by_node for graph in graphs}) != 1:
        problem = "no graphs, or labels of nodes and of graphs"
        raise DataError(f"reading {files}", problem, "graphs with labels of one kind")
    return graphs


def select_labels(graphs: list[Graph], *splits: str) -> list[Graph]:
    """The graphs with their labels of some splits; those without any are left out."""
    chosen = list[Graph]()
    for graph in graphs:
        pairs = zip(graph.labels, graph.splits, strict=True)
        labels = [label if split in splits else "" for label, split in pairs]
        chosen += [replace(graph, labels=labels)] if any(labels) else []
    return chosen


def read_molecules(path: Path, label: str | None) -> Iterator[Graph]:
    """Molecules of a table; their labels are in the column that is named, label, or the last."""
    for line, cells in read_table(path, ["smiles"]):
        others = [name for name in cells if name not in ("smiles", "split")]
        answer = label or ("label" if "label" in others else [*others, "label"][len(others) - 1])
        check_columns(path, [answer], cells, line)
        split, place = str(cells.get("split") or ""), f"line {line} of {path}"
        try:
            molecule = parse_smiles(str(cells["smiles"]).strip())
        except DataError as error:
            note(f"left out: {place}: {error.found}; expected {error.expected}")
            continue
        edges = np.array(molecule.bonds, np.int64).reshape(-1, 3)
        labels, splits = [str(cells[answer]).strip()], [SPLITS.get(split, split)]
        yield Graph(place, molecule.features(), edges, labels, splits)


def read_arrays(path: Path) -> Graph:
    """One graph: edges (E, 2), labels (N,), words as CSR or features (N, F), nodes of each split.

    Words have equal weight, so that what is known of a node is a vector of length 1.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            held = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"reading {path}", str(error), "an .npz file of arrays") from None
    check_columns(path, ["edges", "labels"], held)
    count, edges = len(held["labels"]), np.pad(held["edges"], ((0, 0), (0, 1)))
    nodes = held.get("features", np.ones((count, 1))).astype(np.float32)
    if "indptr" in held:
        sizes, words = np.diff(held["indptr"]), held["indices"]
        nodes = np.zeros((count, int(held.get("words", words.max() + 1))), np.float32)
        nodes[np.repeat(np.arange(count), sizes), words] = np.repeat(sizes, sizes) ** -0.5
    if len(nodes) != count or edges.min(initial=0) < 0 or edges.max(initial=0) >= count:
        problem = f"{count} labels, {len(nodes)} nodes, edges up to {edges.max(initial=0)}"
        raise DataError(f"reading {path}", problem, "a label for each node, edges of these nodes")
    marked = [name for name in SPLITS if name in held]
    splits = np.full(count, "none" if marked else "", "<U5")
    for name in marked:
        splits[held[name]] = SPLITS[name]
    labels = ["" if number < 0 else str(number) for number in held["labels"].tolist()]
    return Graph(str(path), nodes, edges, labels, splits.tolist(), by_node=True)
