"""Graphs and sets with their labels: .npz files of one graph, tables of nodes, edges or SMILES."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.ambient import note
from regard.data.labelled_texts import is_number
from regard.data.tabular import TableRow, check_columns, kind_of, read_table
from regard.data.text_files import Paths, find_files
from regard.errors import DataError, expecting
from regard.graphs.smiles import parse_smiles

SPLITS = {"train": "train", "test": "test"} | dict.fromkeys(("valid", "val", "dev"), "valid")
ABOUT = ("node", "graph", "label", "split")
"""Columns of a table of nodes that are no features."""


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
    names: list[str]
    """Of what has the labels: the graph, or its nodes."""
    splits: list[str]
    """train, valid or test, of each label; empty where the file does not say."""
    by_node: bool = False
    paths: np.ndarray | None = None
    """(N, N, 1 + kinds): `shortest_paths`; None for those who do not look at them."""
    atoms: tuple[str, ...] = ()
    """Of a molecule, their elements."""
    column: str | None = None
    """Where the labels were, in a table."""
    fault: DataError | None = None
    """Why a molecule could not be read, in whose place is an atom."""

    def __len__(self) -> int:
        return len(self.nodes)


def read_graphs(files: Paths, label: str | None = None, labelled: bool = True) -> list[Graph]:
    """All graphs of files; a row that cannot be read is named and left out.

    Where no labels are asked for, a molecule that cannot be read is a graph with a `fault`. Tables
    of nodes and of edges are read together; those of molecules have a column smiles.
    """
    graphs, tables = list[Graph](), dict[Path, list[TableRow]]()
    for path in find_files(files):
        if kind_of(path) == "npz":
            graphs.append(read_arrays(path))
        elif (rows := list(read_table(path))) and "smiles" in rows[0].cells:
            graphs += read_molecules(path, rows, label, labelled)
        else:
            tables[path] = rows
    graphs += join_tables(tables, label or "label", labelled)
    if len({graph.by_node for graph in graphs}) != 1:
        problem = "labels of nodes and of graphs" if graphs else "no graphs that can be read"
        paths = ", ".join(map(str, find_files(files)))
        raise DataError(f"reading {paths}", problem, "graphs with labels of one kind")
    return graphs


def select_labels(graphs: list[Graph], *splits: str) -> list[Graph]:
    """The graphs with their labels of some splits; those without any are left out."""
    chosen = list[Graph]()
    for graph in graphs:
        pairs = zip(graph.labels, graph.splits, strict=True)
        labels = [label if split in splits else "" for label, split in pairs]
        chosen += [replace(graph, labels=labels)] if any(labels) else []
    return chosen


def read_molecules(
    path: Path, rows: list[TableRow], label: str | None, labelled: bool
) -> Iterator[Graph]:
    """Molecules of a table; their labels are in the column that is named, label, or the last."""
    for line, cells in rows:
        others = [name for name in cells if name not in ("smiles", "split")]
        answer = label or ("label" if "label" in others else [*others, "label"][len(others) - 1])
        check_columns(path, ["smiles", answer][: 1 + labelled], cells, line)
        split, place = str(cells.get("split") or ""), f"line {line} of {path}"
        text = str(cells["smiles"]).strip()
        try:
            graph = molecule_graph(text, place)
        except DataError as error:
            if labelled:
                note(f"left out: {place}: {error.found}; expected {error.expected}")
                continue
            fault = DataError(f"reading {place}", error.found, error.expected)
            graph = replace(molecule_graph("C", place), fault=fault)
        labels, splits = [str(cells.get(answer, "")).strip()], [SPLITS.get(split, split)]
        yield replace(graph, labels=labels, splits=splits, column=answer)


def molecule_graph(smiles: str, place: str) -> Graph:
    """A molecule, without a label."""
    molecule = parse_smiles(smiles)
    bonds, atoms = np.array(molecule.bonds, np.int64).reshape(-1, 3), (a[0] for a in molecule.atoms)
    return Graph(place, molecule.features(), bonds, [""], [smiles], [""], atoms=tuple(atoms))


def join_tables(
    tables: Mapping[Path, list[TableRow]], label: str, labelled: bool
) -> Iterator[Graph]:
    """Graphs of tables of nodes, and of the edges between them.

    Edges are rows of source, target and perhaps kind. All other tables are of nodes: their columns
    are node (its name), graph (whose it is), label, split, and numbers that are known of it. Nodes
    without a column node are called 0, 1, … in each graph, and their label is that of the graph.
    Without a table of nodes there are those of the edges, and nothing is known of them.
    """
    nodes: dict[str, dict[str, Node]] = defaultdict(dict)
    edges: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    rows = [(path, *row) for path, some in tables.items() for row in some]
    alone, width = all("source" in cells for *_, cells in rows), 0
    by_node = alone or any("node" in cells for *_, cells in rows)
    for path, line, cells in sorted(rows, key=lambda row: "source" in row[2]):  # nodes come first
        graph, fault = str(cells.get("graph", "")), ""
        members = nodes[graph]
        if "source" in cells:
            check_columns(path, ["target"], cells, line)
            pair, kind = [str(cells[end]) for end in ("source", "target")], cells.get("kind") or 0
            for name in pair if alone else ():
                members.setdefault(name, Node(len(members), [1.0]))
            if unknown := [name for name in pair if name not in members]:
                fault = f"no node is called {unknown[0]!r}"
            elif not str(kind).isdecimal():
                fault = f"kind {kind!r}; expected a whole number"
            else:
                first, second = (members[name].number for name in pair)
                edges[graph].append((first, second, int(kind)))
        else:
            check_columns(
                path, ["node" if by_node else "graph", label][: 1 + labelled], cells, line
            )
            name, split = str(cells.get("node", len(members))), str(cells.get("split") or "")
            others = {key: cells[key] for key in sorted(cells) if key not in (*ABOUT, label)}
            width, wrong = width or len(others), [x for x in others if not is_number(others[x])]
            answer = str(cells.get(label) or "")
            if name in members:
                fault = f"a second node {name!r}"
            elif wrong:
                fault = f"{wrong[0]} {others[wrong[0]]!r}; expected a number"
            elif len(others) != width:
                fault = f"{len(others)} numbers; expected {width}"
            elif members and not by_node and answer != members["0"].label:
                fault = f"label {answer!r}; expected {members['0'].label!r}, that of its graph"
            else:
                numbers = [float(cell) for cell in others.values()] or [1.0]
                members[name] = Node(len(members), numbers, answer, SPLITS.get(split, split))
        if fault:
            note(f"left out: line {line} of {path}: {fault}")
    for graph, members in nodes.items():
        if members:
            _, held, labels, splits = (list(part) for part in zip(*members.values(), strict=True))
            names, size = (list(members), None) if by_node else ([graph], 1)
            ends = np.array(edges[graph], np.int64).reshape(-1, 3)
            known, place = np.array(held, np.float32), f"graph {graph or 'of tables'}"
            about = labels[:size], names, splits[:size], by_node
            yield Graph(place, known, ends, *about, column=label)


class Node(NamedTuple):
    """A row of a table of nodes."""

    number: int
    known: list[float]
    label: str = ""
    split: str = ""


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
    with expecting(
        f"reading {path}", "edges (E, 2), whole labels (N,), rows of known numbers (N, F)"
    ):
        count = len(held["labels"])
        edges = np.pad(held["edges"].astype(int, casting="same_kind"), ((0, 0), (0, 1)))
        nodes = held.get("features", np.ones((count, 1))).astype(np.float32)
        if "indptr" in held:
            sizes, words = np.diff(held["indptr"]).reshape(count), held["indices"]
            nodes = np.zeros((count, int(held.get("words", words.max() + 1))), np.float32)
            nodes[np.repeat(np.arange(count), sizes), words] = np.repeat(sizes, sizes) ** -0.5
        if len(nodes) != count or edges.min(initial=0) < 0 or edges.max(initial=0) >= count:
            wrong = f"{count} labels, {len(nodes)} nodes, edges up to {edges.max(initial=0)}"
            raise ValueError(wrong)
        marked = [name for name in SPLITS if name in held]
        splits = np.full(count, "none" if marked else "", "<U5")
        for name in marked:
            splits[held[name]] = SPLITS[name]
        labels = ["" if number < 0 else str(number) for number in held["labels"].tolist()]
    names = [str(number) for number in range(count)]
    return Graph(str(path), nodes, edges, labels, names, splits.tolist(), by_node=True)
