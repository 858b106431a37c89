"""Classes and numbers of graphs, classes of nodes: runs, how good their models are, their heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core.attention import Attention
from regard.core.config import BlockConfig, StackConfig
from regard.data.labelled_texts import is_number, read_number
from regard.data.tabular import kind_of, read_table
from regard.data.text_files import find_files
from regard.data.windows import IGNORED
from regard.errors import DataError, ResourceError, UsageError
from regard.graphs.graph_files import Graph, molecule_graph, read_graphs, select_labels
from regard.heap import free_memory
from regard.kit import Kit
from regard.loading import wrong_network
from regard.look.attention_maps import map_attention
from regard.look.results import AttentionMaps, GraphOverlay
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ModelConfig, TextConfig
from regard.model.model import Model
from regard.result import Failed, human_bytes
from regard.train.config import GraphShape
from regard.train.data import RunData, RunPlan
from regard.train.objectives import Loss
from regard.tune.classification import HeadKind, LabelledRows, TokenLabels, find_task
from regard.tune.prediction import Answer, Task, read_task, run_rows
from regard.verbs import Files, list_files

LONGEST, DEGREES, WALKS, FEW = 20, 64, 16, 20
"""Longer paths and more neighbours share a row of their table; steps of random walks; below this
share of all pairs, one in so many, neighbours are gathered on a CPU."""
CLASSES = 20  # whole numbers with more values than this are numbers, not classes
GRAPHS: dict[str, Any] = {"steps": 2000, "eval_every": 100, "save_every": 100, "ema": 0.99}
GRAPHS |= {"weight_decay": 0.01, "metric": "accuracy", "lr": 2e-3}
NODES = GRAPHS | {"steps": 120, "eval_every": 2, "dropout": 0.8, "smoothing": 0.1, "ema": 0.95}
NODES |= {"weight_decay": 2.0, "lr": 5e-3, "warm_up": 0, "depth": 2, "keep": 1}
NODES |= {"dim": 128, "r_drop": 1.0}
"""Usual settings; of nodes few are labelled, which needs strong regularisation."""
COLUMN = "label_column"  # in config.json: where the labels of the training files were
LABELLED = "graphs that are labelled as a whole", "graphs whose nodes are labelled"
NARROW = 16  # width of the MLP of nodes


# Graphs as tensors --------------------------------------------------------------------------------


def shortest_paths(graph: Graph, kinds: int, reach: int | None = None) -> np.ndarray:
    """(N, N, 1 + kinds): lengths, infinite without a path, and the shares of kinds of edges.

    The shares are means over all shortest paths of two nodes: to choose one of them would depend on
    the order of the nodes. Paths longer than `reach` are not looked for.
    """
    count, (first, second, kind) = len(graph), graph.edges.T
    free, needed = free_memory(), 32 * (1 + kinds) * count**2  # four arrays of float64 at least
    if free is not None and needed > free:
        problem = f"{count:,} nodes: all pairs of them take {human_bytes(needed)}"
        raise ResourceError(f"laying out {graph.place}", problem, f"at most {human_bytes(free)}")
    if (most := int(kind.max(initial=0))) >= kinds:
        raise DataError(f"laying out {graph.place}", f"an edge of kind {most}", f"0 to {kinds - 1}")
    step = np.zeros((kinds, count, count))
    step[kind, first, second] = step[kind, second, first] = 1
    paths = np.zeros((count, count, 1 + kinds), np.float32)
    length, edges = paths[..., 0], step.sum(0)
    length[:] = np.inf
    np.fill_diagonal(length, 0)  # whatever edges join a node with itself
    ways, held, distance = edges, step, 1  # paths of this length, and edges by kind on all of them
    while (new := (ways > 0) & np.isinf(length)).any():
        length[new] = distance
        paths[new, 1:] = (held[:, new] / ways[new] / distance).T
        if distance == reach:
            break
        ways, distance = ways * new, distance + 1
        held = (held * new) @ edges + ways @ step
        ways = ways @ edges
    return paths


def lay_out(graph: Graph, config: ModelConfig) -> Graph:
    """The graph with the nodes and paths that a model reads.

    With biases, a node has the chances too that a random walk comes back to it after 2, 3, …
    steps, which tell graphs apart that lengths of paths do not (Dwivedi 2022). Where there is one
    answer for a graph, a virtual node comes first, with a feature of its own and a length of its
    own, −1, of its paths to all others (Ying 2021, 3.2).
    """
    stack, virtual, paths = config.last, int(config.head.take == "first"), None
    window, nodes = stack.block.window, graph.nodes
    if stack.position == "graph" or window is not None:
        paths = shortest_paths(graph, stack.buckets, None if window is None else window - 1)
        if window is None:
            walk = (paths[..., 0] == 1) / (paths[..., 0] == 1).sum(1, keepdims=True).clip(1)
            back = [np.linalg.matrix_power(walk, n).diagonal() for n in range(2, WALKS + 2)]
            scaled = np.multiply(back, len(graph) ** 0.5)  # so that small differences are seen
            nodes = np.column_stack((nodes, *scaled)).astype(np.float32)
        paths = np.pad(paths, ((virtual, 0), (virtual, 0), (0, 0)))
        paths[:virtual, :, 0] = paths[:, :virtual, 0] = -1
    nodes = np.pad(nodes, ((virtual, 0), (0, virtual)))
    nodes[:virtual, -1] = 1
    return replace(graph, nodes=nodes, paths=paths)


def collate(graphs: list[Graph]) -> Batch:
    """Graphs side by side, padded at the end."""
    rows = [torch.from_numpy(graph.nodes) for graph in graphs]
    nodes = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    size, paths = nodes.shape[1], None
    mask = torch.arange(size) < torch.tensor([len(graph) for graph in graphs])[:, None]
    if (first := graphs[0].paths) is not None:
        paths = torch.zeros(len(graphs), size, size, first.shape[2])
        for row, graph in zip(paths, graphs, strict=True):
            row[: len(graph), : len(graph)] = torch.from_numpy(graph.paths)
    return Batch(nodes, mask=None if mask.all() else mask, paths=paths)


# The kind of run ----------------------------------------------------------------------------------


class GraphKind(HeadKind):
    """Trains an encoder on graphs: a class or number of each, or the classes of their nodes."""

    room, unit, config = "train", "labels", GraphShape  # type: ignore[assignment]

    def usual(self, said: Any) -> dict[str, Any]:
        """Of nodes, which .npz files hold and tables with names of nodes, or of graphs."""
        for path in find_files(said.get("files", ())):
            if kind_of(path) == "npz" or {"node", "source"} & {
                *next(read_table(path), ((), ()))[1]
            }:
                return NODES
        return GRAPHS

    def decide(self, settings: Any) -> None:
        """A model of its own; two draws of dropout are made of nodes alone."""
        if settings.values["init"] is not None:
            raise UsageError("training on graphs", "a model to begin with", "none: it is new")
        if settings.values["r_drop"] and self.usual(settings.values) is GRAPHS:
            problem = f"r_drop = {settings.values['r_drop']:g} with labels of whole graphs"
            raise UsageError("training on graphs", problem, "0: only nodes are read twice")

    def prepare(self, plan: RunPlan) -> RunData:
        """Read the graphs, name their labels, find their paths."""
        plan.progress("reading")
        own, graphs = plan.own, read_graphs(plan.files, plan.own.label)
        train, valid = select_labels(graphs, "train", ""), select_labels(graphs, "valid")
        if plan.data.valid:
            valid = select_labels(read_graphs(plan.data.valid, own.label), "valid", "")
        labels = [label for graph in train for label in graph.labels if label]
        task = find_task(task_of(train), plan, labels)
        config = build_model(own, task, train)

        def rows(graphs: list[Graph], seed: int | None) -> LabelledRows:
            answers = [answer_of(graph, task) for graph in graphs]
            laid = [lay_out(graph, config) for graph in graphs]
            return LabelledRows(laid, answers, own.rows, collate, seed)

        plan.progress("finding shortest paths")
        source, checked = rows(train, plan.seed), rows(valid, None) if valid else None
        counts = [sum(x != "" for graph in part for x in graph.labels) for part in (train, valid)]
        sizes: Any = {"train": f"{counts[0]:,} labels", "valid": f"{counts[1]:,} labels"}
        known, held = {"labels": task.names}, (config, task, train[0].column)
        return RunData(None, source, checked, known, plan.hashes, sizes, held)

    def shape(self, plan: RunPlan, data: RunData) -> tuple[ModelConfig, str | None]:
        """As the graphs want it."""
        return data.held[0], None

    def make_kit(self, plan: RunPlan, data: RunData) -> Kit:
        """A new model; config.json names its labels."""
        config, task, column = data.held
        kit = Kit.fresh(config, None, plan.seed)
        for module in kit.model.modules():
            if isinstance(module, Attention) and plan.device == "cpu":
                module.kernel = attend_neighbours
        kit.config = kit.fresh_config() | task.describe() | {COLUMN: column}
        return kit

    def job(self, plan: RunPlan, data: RunData, kit: Kit) -> dict[str, Any]:
        """The loss of nodes is one of our own."""
        own = {"loss": node_loss} if data.held[1].kind == "tag" else {}
        return super().job(plan, data, kit) | own


def node_loss(model: Model, batch: Batch, labels: Tensor, *how: Any) -> Loss:
    """Cross-entropy of the labels (B, N) of nodes; those labelled −100 have none.

    `how` begins with the smoothing and ends with `r_drop`. With that the graph is read twice, each
    time with a dropout of its own, and both should be near their mean, sharpened, at all nodes,
    labelled or not (GRAND, Feng 2020).
    """
    smoothing, *_, r_drop = how or (0.0, 0.0)
    scores = model(batch.tile(2 if r_drop else 1)).float().unflatten(0, (-1, len(labels)))
    flat, times, count = scores.flatten(0, 2), len(scores), (labels != IGNORED).sum()
    loss = partial(F.cross_entropy, flat, labels.flatten().repeat(times), reduction="sum")
    total, plain = loss(label_smoothing=smoothing) / times, loss() / times
    if r_drop:
        chances = scores.softmax(-1)  # (2, B, N, C)
        sharp = chances.detach().mean(0).square()
        apart = (chances - sharp / sharp.sum(-1, keepdim=True)).square().sum(-1).mean(0)
        real = torch.ones_like(apart) if batch.mask is None else batch.mask
        total = total + r_drop * count * (apart * real).sum() / real.sum()
    return Loss(total, plain.detach(), count)


def attend_neighbours(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor | None:
    """Attention (B, H, N, K) of those pairs alone that a mask (B, 1, N, N) allows, if few."""
    if mask is None or mask.dtype != torch.bool or mask.shape[-2] < q.shape[2]:
        return None
    row, _, first, second = mask.nonzero(as_tuple=True)
    if FEW * len(row) > mask.numel():
        return None
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, N, H, K)
    scores = (q[row, first] * k[row, second]).sum(-1) * scale  # (pairs, H)
    at = row * q.shape[1] + first
    most = scores.new_full((len(q) * q.shape[1], q.shape[2]), -torch.inf)
    most = most.scatter_reduce(0, at[:, None].expand_as(scores), scores.detach(), "amax")
    share = (scores - most[at]).exp()
    total = torch.zeros_like(most).index_add(0, at, share)
    z = torch.zeros_like(q).flatten(0, 1).index_add(0, at, share[..., None] * v[row, second])
    return (z / total[..., None]).view_as(q).transpose(1, 2)


def task_of(graphs: list[Graph]) -> str:
    """tag for nodes; regress for numbers that are not whole, or many; else classify."""
    values = {label for graph in graphs for label in graph.labels}
    if not graphs or graphs[0].by_node:
        return "tag"
    whole = len(values) <= CLASSES and all(value.lstrip("-").isdecimal() for value in values)
    return "regress" if not whole and all(map(is_number, values)) else "classify"


def answer_of(graph: Any, task: Task) -> Any:
    """The label of a graph, or those of its nodes, as the loss reads them."""
    if task.kind == "regress":
        return (read_number(graph.place, graph.labels[0]) - task.mean) / task.spread
    each = TokenLabels(task.names.index(x) if x in task.names else IGNORED for x in graph.labels)
    return each if task.kind == "tag" else each[0]


def build_model(own: GraphShape, task: Task, graphs: list[Graph]) -> ModelConfig:
    """The shape of a model for graphs of this kind."""
    nodes = task.kind == "tag"
    asked = own.attention if own.attention != "auto" else "neighbours" if nodes else "graphormer"
    biased, window = asked == "graphormer", 2 if asked == "neighbours" else None
    kinds = 1 + max(0 if nodes else 3, *(int(graph.edges[:, 2].max(initial=0)) for graph in graphs))
    block = BlockConfig(own.dim, own.heads, NARROW if nodes else own.dim, window=window)
    features = graphs[0].nodes.shape[1] + WALKS * biased + (not nodes)
    front = TextConfig(own.dim, features, segments=DEGREES * biased, kind="graph")
    head = HeadConfig(len(task.names), "all" if nodes else "first", bias=True)
    stack = StackConfig(block, own.depth, "none", buckets=kinds, distance=LONGEST)
    return ModelConfig(front, head, replace(stack, position="graph") if biased else stack)


# Evaluation ---------------------------------------------------------------------------------------


def predict_graphs(
    kit: Kit, files: Files, label: str | None = None, split: str | None = None
) -> Iterator[Answer]:
    """What a model says of each graph or each node.

    With a split of those alone that have a label in it, or of all that have one where the files
    have no splits.
    """
    doing, config = f"reading {', '.join(list_files(files))}", kit.model.config
    if config.front.kind != "graph":
        raise wrong_network(doing, kit, "a model that reads graphs: `regard train graph` makes one")
    task = read_task(kit, doing)
    graphs = read_graphs(files, label or kit.config.get(COLUMN), labelled=split is not None)
    check_labels(kit, graphs[0], doing)
    graphs = graphs if split is None else select_labels(graphs, split, "")
    if not graphs:
        raise DataError(doing, f"no labels of the split {split}", "some")
    scores = run_rows(kit.model, [lay_out(graph, config) for graph in graphs], collate)
    for graph, some in zip(graphs, scores, strict=True):
        rows = task.chances(some).view(len(graph.labels), -1)
        for name, label, row in zip(graph.names, graph.labels, rows, strict=True):
            if graph.fault is not None:
                yield row, [label], Failed(graph.fault)
            elif split is not None and task.kind == "regress" and not is_number(label):
                error = DataError(graph.place, f"the label {label!r}", "a number")
                yield row, [label], Failed(error)
            elif label or split is None:
                yield row, [label], task.answer(name, row)


def check_labels(kit: Kit, graph: Graph, doing: str) -> None:
    """Refuse labels of nodes where a model was trained on those of graphs, and the reverse."""
    if graph.by_node != (nodes := kit.model.config.head.take == "all"):
        expected = f"{LABELLED[nodes]}, as this model was trained on"
        raise DataError(doing, LABELLED[graph.by_node], expected)


# Looking inside -----------------------------------------------------------------------------------


def map_graph(kit: Kit, asked: str, target: str | None, **how: Any) -> AttentionMaps:
    """Maps of the first graph of a file, or of a molecule as SMILES."""
    try:
        there = bool(asked) and Path(asked).exists()
        graph = read_graphs(asked, labelled=False)[0] if there else molecule_graph(asked, asked)
        if graph.fault is not None:
            raise graph.fault
    except DataError as error:
        fault = error.found if there else f"no such file, and as SMILES {error.found}"
        raise DataError(f"reading {asked}", fault, "a file of graphs, or SMILES") from None
    check_labels(kit, graph, f"reading {asked}")
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
