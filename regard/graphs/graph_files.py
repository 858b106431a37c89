"""Graphs with their labels: npz files of one graph, tables of SMILES, graphs as JSONL."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
    by_node: bool
    paths: np.ndarray | None = None
    """(N, N, 1 + kinds): `shortest_paths`; None for those who do not look at them."""

    def __len__(self) -> int:
        return len(self.nodes)


def read_graphs(files: Paths, label: str | None = None) -> list[Graph]:
    """All graphs of files; a row that cannot be read is named and left out."""
    graphs = list[Graph]()
    for path in find_files(files):
        graphs += [read_arrays(path)] if kind_of(path) == "npz" else read_rows(path, label)
    if len({graph.by_node for graph in graphs}) != 1:
        what = "labels of nodes and of graphs" if graphs else "no graphs"
        raise DataError(f"reading {files}", what, "graphs with labels of one kind")
    return graphs


def select_labels(graphs: list[Graph], *splits: str) -> list[Graph]:
    """The graphs with their labels of some splits; those without any are left out."""
    chosen = list[Graph]()
    for graph in graphs:
        pairs = zip(graph.labels, graph.splits, strict=True)
        labels = [label if split in splits else "" for label, split in pairs]
        chosen += [replace(graph, labels=labels)] if any(labels) else []
    return chosen


def read_rows(path: Path, label: str | None) -> Iterator[Graph]:
    """Graphs of a table: a column `smiles`, or `nodes` and `edges` (JSONL).

    Their labels are in the column that is named, else in label or labels, else in the last one.
    """
    for line, cells in read_table(path):
        source, place = "nodes" if "nodes" in cells else "smiles", f"line {line} of {path}"
        others = [name for name in cells if name not in (source, "edges", "split")]
        usual = [name for name in ("label", "labels") if name in others] or others[-1:]
        answer = label or (usual or ["label"])[0]
        check_columns(path, [source, answer], cells, line)
        value, nodes, edges = cells[answer], cells[source], cells.get("edges") or []
        labels, splits = value if isinstance(value, list) else [value], cells.get("split") or ""
        splits = splits if isinstance(splits, list) else [splits] * len(labels)
        try:
            if source == "smiles":
                molecule = parse_smiles(str(nodes).strip())
                nodes, edges = molecule.features(), molecule.bonds
            yield make_graph(place, nodes, edges, labels, splits, isinstance(value, list))
        except DataError as error:
            note(f"left out: {place}: {error.found}; expected {error.expected}")


def make_graph(
    place: str, nodes: Any, edges: Any, labels: list[Any], splits: list[str], by_node: bool
) -> Graph:
    """A checked graph; nodes are rows of numbers, a number each, or only their count."""
    problem = f"{len(labels)} labels, {len(splits)} splits"
    try:
        rows = np.asarray(np.ones(nodes) if isinstance(nodes, int) else nodes, np.float32)
        rows = rows.reshape(len(rows), -1)
        ends = np.array([(*edge, 0)[:3] for edge in edges], np.int64).reshape(-1, 3)
        fits = len(labels) == len(splits) == (len(rows) if by_node else 1)
        if ends.min(initial=0) < 0 or ends[:, :2].max(initial=0) >= len(rows):
            fits, problem = False, f"{len(rows)} nodes, and an edge of another one"
    except (TypeError, ValueError) as error:
        fits, problem = False, str(error)
    if not fits or not np.isfinite(rows).all():
        expected = "nodes as rows of numbers, [node, node] or [node, node, kind] as edges, labels"
        raise DataError(f"reading {place}", problem, expected)
    texts = ["" if value is None else str(value).strip() for value in labels]
    return Graph(place, rows, ends, texts, [SPLITS.get(mark, mark) for mark in splits], by_node)


def read_arrays(path: Path) -> Graph:
    """One graph: edges (E, 2 or 3), labels (N,), words as CSR or features, nodes of each split."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"reading {path}", str(error), "an .npz file of arrays") from None
    check_columns(path, ["edges", "labels"], held)
    nodes = held.get("features", count := len(held["labels"]))
    if "indptr" in held:  # words of equal weight, rows of length 1
        sizes, words = np.diff(held["indptr"]), held["indices"]
        nodes = np.zeros((count, int(held.get("words", words.max() + 1))), np.float32)
        nodes[np.repeat(np.arange(count), sizes), words] = np.repeat(sizes, sizes) ** -0.5
    marked = [name for name in SPLITS if name in held]
    splits = np.full(count, "none" if marked else "", "<U5")
    for name in marked:
        splits[held[name]] = name
    labels = ["" if number < 0 else number for number in held["labels"].tolist()]
    return make_graph(str(path), nodes, held["edges"].tolist(), labels, splits.tolist(), True)
