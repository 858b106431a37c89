"""Graphs: shortest paths, symmetry, batches, masks, what biases tell apart, and whole runs."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core import mask as masks
from regard.errors import DataError, ResourceError, UsageError
from regard.graphs import graph_tasks
from regard.graphs.graph_files import Graph, read_graphs, select_labels
from regard.graphs.graph_tasks import (
    attend_neighbours,
    build_model,
    collate,
    lay_out,
    node_loss,
    shortest_paths,
)
from regard.kit import Kit
from regard.model.batch import Batch
from regard.model.model import Model
from regard.result import Failed
from regard.train.config import GraphShape
from regard.tune.prediction import Task
from tests.properties.threads import one_thread  # noqa: F401

SMALL = {"dim": 16, "heads": 2, "depth": 2}
DECALIN = [(n, (n + 1) % 10) for n in range(10)] + [(0, 5)]  # two fused rings of six
BICYCLOPENTYL = [(n, (n + 1) % 5) for n in range(5)]
BICYCLOPENTYL += [(n + 5, (n + 1) % 5 + 5) for n in range(5)] + [(0, 5)]


def make_graph(count, edges, seed=None, by_node=False):
    """A graph of these edges, of kind 0 or, with a seed, of random kinds and features."""
    dice = np.random.default_rng(seed)
    nodes = np.ones((count, 3)) if seed is None else dice.normal(size=(count, 3))
    kinds = np.zeros(len(edges)) if seed is None else dice.integers(3, size=len(edges))
    ends = np.column_stack([np.array(edges).reshape(-1, 2), kinds]).astype(np.int64)
    labels = ["0"] * (count if by_node else 1)
    names = [str(n) for n in range(len(labels))]
    splits = [""] * len(labels)
    return Graph("here", nodes.astype(np.float32), ends, labels, names, splits, by_node)


def random_graph(seed, count=9, by_node=False):
    """Some nodes with and some without edges, and a loop."""
    dice = np.random.default_rng(seed)
    edges = [(a, b) for a in range(count - 2) for b in range(a) if dice.random() < 0.35]
    return make_graph(count, [*edges, (1, 1)], seed, by_node)


def make_model(graph, attention, double=False, seed=0, **sizes):
    """A model with all parameters drawn, biases of paths too."""
    task = Task("tag" if graph.by_node else "classify", ["a", "b", "c"])
    config = build_model(GraphShape(attention=attention, **SMALL | sizes), task, [graph])
    model = Model.fresh(config, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.double() if double else model


def adopt(biased, plain):
    """Give a model with biases the weights of one without; walks and degrees are read over."""
    weights = plain.state_dict()
    nodes = weights.pop("front.nodes.weight")
    biased.load_state_dict(weights, strict=False)
    with torch.no_grad():
        biased.front.nodes.weight.zero_()
        biased.front.nodes.weight[:, :3] = nodes[:, :3]
        biased.front.nodes.weight[:, -1:] = nodes[:, -1:] * (nodes.shape[1] > 3)
        biased.encoder.bias.kinds.zero_()
        biased.front.degrees.weight.zero_()


def run(model, *graphs):
    """Scores of graphs in one batch."""
    batch = collate([lay_out(graph, model.config) for graph in graphs])
    kind = next(model.parameters()).dtype
    with torch.no_grad():
        return model(batch.each(lambda x: x.to(kind) if x.is_floating_point() else x))


def permute(graph, order):
    """The graph with its nodes in another order."""
    place = np.argsort(order)
    edges = np.column_stack([place[graph.edges[:, :2]], graph.edges[:, 2]])
    return replace(graph, nodes=graph.nodes[order], edges=edges)


# Paths --------------------------------------------------------------------------------------------


def test_lengths_are_those_of_the_spec():
    for edges, counts in (
        (DECALIN, [10, 22, 28, 24, 12, 4]),
        (BICYCLOPENTYL, [10, 22, 28, 16, 16, 8]),
    ):
        paths = shortest_paths(make_graph(10, edges), 1)
        assert np.bincount(paths[..., 0].astype(int).ravel()).tolist() == counts


def test_lengths_and_shares_are_those_of_all_paths_listed_one_by_one():
    graph = random_graph(3)
    kinds = {}
    for a, b, kind in graph.edges.tolist():
        kinds[a, b] = kinds[b, a] = kind
    paths = shortest_paths(graph, 3)
    for start in range(len(graph)):
        walks, seen = [[start]], {start: [[start]]}
        while walks:
            walks = [[*w, b] for w in walks for a, b in kinds if a == w[-1] and b not in seen]
            for walk in walks:
                seen.setdefault(walk[-1], []).append(walk)
        for end in range(len(graph)):
            if end not in seen:
                assert np.isinf(paths[start, end, 0])
                assert not paths[start, end, 1:].any()
                continue
            assert paths[start, end, 0] == len(seen[end][0]) - 1
            if end != start:
                steps = [kinds[pair] for w in seen[end] for pair in zip(w, w[1:], strict=False)]
                shares = np.bincount(steps, minlength=3) / len(steps)
                np.testing.assert_allclose(paths[start, end, 1:], shares, atol=1e-6)


def test_no_edges_loops_and_a_reach():
    paths = shortest_paths(make_graph(3, []), 1)
    assert np.isinf(paths[..., 0]).sum() == 6
    assert shortest_paths(make_graph(2, [(0, 0), (0, 1)]), 1)[..., 0].tolist() == [[0, 1], [1, 0]]
    near = shortest_paths(make_graph(10, DECALIN), 1, reach=1)[..., 0]
    assert (np.isfinite(near).sum(), near[np.isfinite(near)].max()) == (32, 1)


def test_a_graph_larger_than_memory_is_refused_with_its_size(monkeypatch):
    monkeypatch.setattr(graph_tasks, "free_memory", lambda: 10**6)
    with pytest.raises(ResourceError, match=r"200 nodes: all pairs of them take 2\.4 MiB"):
        shortest_paths(make_graph(200, []), 1)


# Symmetry and batches -----------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["graphormer", "neighbours", "set"])
@pytest.mark.parametrize("double, close", [(False, 1e-5), (True, 1e-12)])
def test_the_order_of_nodes_says_nothing(attention, double, close):
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(9)
        whole = random_graph(seed)
        model = make_model(whole, attention, double)
        torch.testing.assert_close(
            run(model, permute(whole, order)), run(model, whole), atol=close, rtol=close
        )
        nodes = random_graph(seed, by_node=True)
        model = make_model(nodes, attention, double)
        there, here = run(model, permute(nodes, order))[0], run(model, nodes)[0][order]
        torch.testing.assert_close(there, here, atol=close, rtol=close)


def test_a_set_in_another_order_is_the_same_set():
    """Row 92: of a set no order is seen, to 1e-6."""
    for seed in range(20):
        some = make_graph(20, [], seed)
        model = make_model(some, "set", seed=seed)
        moved = permute(some, np.random.default_rng(seed).permutation(20))
        torch.testing.assert_close(run(model, moved), run(model, some), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("attention", ["graphormer", "neighbours", "set"])
@pytest.mark.parametrize("by_node", [False, True])
def test_a_batch_gives_what_each_graph_gives_alone(attention, by_node, one_thread):  # noqa: F811
    graphs = [random_graph(seed, size, by_node) for seed, size in enumerate((9, 4, 12, 3))]
    kit = Kit(make_model(graphs[0], attention))
    laid = [lay_out(graph, kit.model.config) for graph in graphs]
    batch = collate(laid)
    sides = {"mask": batch.mask, "paths": batch.paths}
    together, strict = (
        kit.logits(batch.inputs, **sides),
        kit.logits(batch.inputs, strict=True, **sides),
    )
    for row, graph in enumerate(laid):
        one = collate([graph])
        alone = kit.logits(one.inputs, paths=one.paths)[0]
        size = len(graph) if by_node else len(alone)
        torch.testing.assert_close(together[row][:size], alone, atol=1e-6, rtol=1e-5)
        again = kit.logits(one.inputs, paths=one.paths, strict=True)[0]
        assert torch.equal(strict[row][:size], again)
        torch.testing.assert_close(again, alone, atol=1e-6, rtol=1e-5)
        assert torch.isfinite(alone).all()


def test_paths_change_what_is_said():
    graph = random_graph(1)
    model = make_model(graph, "graphormer")
    other = replace(graph, edges=graph.edges[:-4])
    assert not torch.allclose(run(model, graph), run(model, other))


# One layer ----------------------------------------------------------------------------------------


def test_without_bias_it_is_the_plain_transformer_on_a_set():
    graph = random_graph(2)
    plain, biased = make_model(graph, "set"), make_model(graph, "graphormer")
    adopt(biased, plain)
    with torch.no_grad():
        biased.encoder.bias.weight.fill_(0.7)  # one number for all pairs
    torch.testing.assert_close(run(biased, graph), run(plain, graph), atol=1e-5, rtol=1e-5)


def test_a_complete_graph_of_neighbours_is_the_plain_transformer():
    graph = make_graph(6, [(a, b) for a in range(6) for b in range(a)], seed=4)
    near, plain = make_model(graph, "neighbours"), make_model(graph, "set")
    torch.testing.assert_close(run(near, graph), run(plain, graph), atol=1e-6, rtol=1e-5)


def test_a_window_counts_edges():
    paths = torch.tensor(shortest_paths(make_graph(4, [(0, 1), (1, 2)]), 1))[None]
    near = masks.window(paths, paths, 2)[0, 0]
    assert near.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]


def test_infinite_biases_of_far_nodes_are_the_mask_of_neighbours():
    graph = random_graph(5, by_node=True)
    near, biased = make_model(graph, "neighbours"), make_model(graph, "graphormer")
    adopt(biased, near)
    with torch.no_grad():
        biased.encoder.bias.weight.fill_(-torch.inf)
        biased.encoder.bias.weight[1:3] = 0.0  # lengths 0 and 1
    torch.testing.assert_close(run(biased, graph), run(near, graph), atol=1e-6, rtol=1e-5)


def test_the_mask_of_neighbours_is_attention_with_that_mask():
    graph = random_graph(6, 12, by_node=True)
    model = make_model(graph, "neighbours", double=True, depth=1)
    block, near = model.encoder.blocks[0], shortest_paths(graph, 4)[..., 0] < 2
    with torch.no_grad():
        x = model.front(torch.tensor(graph.nodes[None]).double(), None, None).x
        normed = block.attn.norm(x)
        q, k, v = (
            part(normed).unflatten(-1, (2, 8)).transpose(1, 2)
            for part in (block.attn.q, block.attn.k, block.attn.v)
        )
        scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~torch.tensor(near), -torch.inf)
        x = x + block.attn.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
        x = x + block.mlp(block.mlp.norm(x))
        wanted = model.head(model.encoder.norm(x))
    torch.testing.assert_close(run(model, graph), wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("rows, count", [(1, 300), (2, 150)])
def test_neighbours_that_are_gathered_are_those_of_the_mask(rows, count):
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(rows, 1, count, count, generator=generator) < 0.02
    mask |= torch.eye(count, dtype=torch.bool)
    shape = 3, rows, 4, count, 8
    parts = torch.randn(shape, generator=generator, dtype=torch.double).requires_grad_()
    gathered = attend_neighbours(*parts, mask, False, 0.3)
    dense = F.scaled_dot_product_attention(*parts, mask, scale=0.3)
    torch.testing.assert_close(gathered, dense, atol=1e-12, rtol=1e-12)
    ours, theirs = (torch.autograd.grad(z.square().sum(), parts)[0] for z in (gathered, dense))
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    assert attend_neighbours(*parts, torch.ones_like(mask), False, 0.3) is None  # all are near
    assert attend_neighbours(*parts, None, False, 0.3) is None


def test_two_draws_of_dropout_should_agree_at_nodes_without_a_label_too():
    graph = random_graph(7, by_node=True)
    model = make_model(graph, "neighbours").train()
    batch = collate([lay_out(graph, model.config)])
    labels = torch.tensor([[0, 1] + [-100] * (len(graph) - 2)])
    plain = node_loss(model, batch, labels, 0.1, 0.0)
    assert plain.tokens == 2
    torch.testing.assert_close(plain.plain, node_loss(model, batch, labels).sum)
    chances = model(batch).softmax(-1)
    sharp = chances.square() / chances.square().sum(-1, keepdim=True)
    apart = (chances - sharp).square().sum(-1).mean()  # no dropout: two draws are one
    both = node_loss(model, batch, labels, 0.1, 3.0)
    torch.testing.assert_close(both.sum, plain.sum + 3.0 * 2 * apart)


def test_taps_read_the_pattern_of_neighbours():
    kit = Kit(make_model(random_graph(8, by_node=True), "neighbours"))
    graph = lay_out(random_graph(8, by_node=True), kit.model.config)
    batch = collate([graph])
    out, seen = kit.run(batch.inputs, paths=batch.paths, taps="encoder.blocks.*.attn.pattern")
    far = batch.paths[0, :, :, 0] > 1
    for pattern in seen.values():
        assert (pattern[0, :, far] == 0).all()
        torch.testing.assert_close(pattern.sum(-1), torch.ones(1, 2, len(graph)))
    torch.testing.assert_close(out.logits, kit.logits(batch.inputs, paths=batch.paths))


# What is told apart -------------------------------------------------------------------------------


def test_paths_tell_decalin_from_bicyclopentyl_and_neighbours_do_not():
    first, second = make_graph(10, DECALIN), make_graph(10, BICYCLOPENTYL)
    gaps = {}
    for attention in ("graphormer", "neighbours"):
        model = make_model(first, attention, double=True)
        gaps[attention] = float((run(model, first) - run(model, second)).abs().max())
    assert gaps["graphormer"] > 1e-5
    assert gaps["neighbours"] < 1e-12


def fit(graphs, labels, attention, steps, lr=3e-3, **sizes):
    """A model trained by plain Adam on all graphs at once."""
    task = Task("classify", sorted(set(map(str, labels))))
    config = build_model(GraphShape(attention=attention, **SMALL | sizes), task, graphs)
    model, target = Model.fresh(config), torch.tensor(labels)
    batch = collate([lay_out(graph, config) for graph in graphs])
    optimizer = torch.optim.Adam(model.parameters(), lr)
    for _ in range(steps):
        loss = F.cross_entropy(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@pytest.mark.slow
def test_circular_skip_links_all_ten_classes(one_thread):  # noqa: F811
    dice, graphs, labels = np.random.default_rng(0), [], list(range(10))
    for skip in (2, 3, 4, 5, 6, 9, 11, 12, 13, 16):  # 6 and 16 have as many paths of each length
        edges = [(n, (n + step) % 41) for n in range(41) for step in (1, skip)]
        graphs.append(make_graph(41, edges))
    moved = [permute(graph, dice.permutation(41)) for graph in graphs]
    shares = {}
    for attention, steps in (("graphormer", 250), ("neighbours", 20)):
        model = fit(graphs, labels, attention, steps, lr=1e-2, dim=32, heads=4)
        said = run(model, *moved).argmax(-1)
        shares[attention] = float((said == torch.tensor(labels)).float().mean())
    assert shares["graphormer"] == 1.0
    assert shares["neighbours"] < 0.3  # all look the same: chance


@pytest.mark.slow
def test_the_maximum_of_a_set_of_numbers(one_thread):  # noqa: F811
    dice = np.random.default_rng(1)

    def draw(count):
        sets = [dice.integers(10, size=dice.integers(1, 21)) for _ in range(count)]
        rows = [np.eye(10, dtype=np.float32)[numbers] for numbers in sets]
        empty = np.zeros((0, 3), np.int64)
        graphs = [Graph("here", row, empty, ["0"], ["0"], [""]) for row in rows]
        return graphs, [int(numbers.max()) for numbers in sets]

    model = fit(*draw(1500), "set", 150, lr=1e-2)
    graphs, labels = draw(500)
    said = run(model, *graphs).argmax(-1)
    assert (said == torch.tensor(labels)).float().mean() >= 0.99


# Files --------------------------------------------------------------------------------------------


@pytest.fixture
def arrays(tmp_path):
    """Two kinds of nodes, each with neighbours and words of its kind."""
    dice, count = np.random.default_rng(0), 60
    kinds = np.arange(count) % 2
    edges = [(a, b) for a in range(count) for b in range(a)]
    edges = [(a, b) for a, b in edges if dice.random() < (0.2 if kinds[a] == kinds[b] else 0.02)]
    words = [sorted({int(dice.integers(4)) + 4 * kinds[n], 9}) for n in range(count)]
    held = {"edges": np.array(edges), "labels": np.where(np.arange(count) < 58, kinds, -1)}
    held |= {"indptr": np.cumsum([0, *map(len, words)]), "indices": np.concatenate(words)}
    held |= {"train": np.arange(10), "val": np.arange(10, 30), "test": np.arange(30, 58)}
    np.savez(tmp_path / "two.npz", **held, words=10)
    return tmp_path / "two.npz"


@pytest.fixture
def molecules(tmp_path):
    """Chains and rings of carbon, their number of atoms, a row that is wrong, and one without."""
    path = tmp_path / "molecules.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "size", "shape", "split"])
        for n in range(3, 9):
            for split in ("train", "valid", "test"):
                writer.writerow(["C" * n, n + 0.5, "chain", split])
                writer.writerow([f"C1{'C' * (n - 2)}C1", n + 0.5, "ring", split])
        writer.writerow(["C1CC", 3.5, "ring", "train"])
        writer.writerow(["CC", 2.5, "", "train"])
    return path


RUN = regard.TrainConfig(
    **dict(steps=30, lr=1e-2, eval_every=10, save_every=10, warm_up=2),
    **dict(dropout=0.0, ema=0.0, smoothing=0.0, weight_decay=0.01),
)


def test_nodes_are_learnt_and_only_from_their_split(arrays, tmp_path, capsys):
    (graph,) = read_graphs(arrays)
    assert graph.by_node
    (train,) = select_labels([graph], "train", "")
    assert [n for n, label in enumerate(train.labels) if label] == list(range(10))
    np.testing.assert_allclose(np.linalg.norm(graph.nodes, axis=1), 1, rtol=1e-5)
    shape = GraphShape(**SMALL)
    result = regard.train.graph(arrays, out=tmp_path / "run", shape=shape, config=RUN)
    assert "training on 10 labels, 2 classes; validating on 20 labels" in capsys.readouterr().err
    scores = regard.evaluate.graph(tmp_path / "run" / "final", arrays)
    assert scores.count == 28
    assert scores.accuracy > 0.8
    assert scores.low < scores.accuracy or scores.accuracy == 1  # nodes are drawn, not graphs
    assert regard.evaluate.graph(result.path, arrays, split="valid").count == 20
    config = json.loads((tmp_path / "run" / "final" / "config.json").read_text())
    assert config["id2label"] == {"0": "0", "1": "1"}


def test_numbers_and_classes_of_molecules(molecules, tmp_path, capsys):
    shape = GraphShape(label="size", **SMALL)
    regard.train.graph(molecules, out=tmp_path / "sizes", shape=shape, config=RUN)
    said = capsys.readouterr().err
    assert "left out: line 38 of" in said
    assert "at character 5 of 'C1CC'" in said
    scores = regard.evaluate.graph(tmp_path / "sizes" / "final", molecules)  # knows its column
    assert scores.count == 12
    assert scores.pearson > 0.6
    config = replace(RUN, steps=60)
    regard.train.graph(molecules, out=tmp_path / "shapes", config=config, shape=GraphShape(**SMALL))
    scores = regard.evaluate.graph(tmp_path / "shapes" / "final", [molecules])
    assert scores.accuracy == 1.0
    assert [one.name for one in scores.classes] == ["chain", "ring"]


def test_a_run_goes_on_with_the_same_bits(molecules, tmp_path, one_thread):  # noqa: F811
    settings = {"shape": GraphShape(label="size", rows=8, **SMALL)}
    config = replace(RUN, steps=20, dropout=0.2)
    whole = regard.train.graph(molecules, out=tmp_path / "a", config=config, **settings)
    half = replace(config, steps=10, schedule="constant")
    again = replace(config, schedule="constant")
    whole = regard.train.graph(molecules, out=tmp_path / "b", config=again, **settings)
    regard.train.graph(molecules, out=tmp_path / "c", config=half, **settings)
    resumed = regard.train.graph(resume=tmp_path / "c", config=regard.TrainConfig(steps=20))
    assert resumed.last_weights == whole.last_weights


def test_a_dry_run_counts(arrays, tmp_path):
    result = regard.train.graph(arrays, out=tmp_path / "run", dry_run=True)
    assert result.data["train"] == "10 labels"
    assert not (tmp_path / "run").exists()


@pytest.fixture
def tables(tmp_path):
    """Red and blue nodes that know others of their kind, and rows that are wrong."""
    dice, kinds = np.random.default_rng(0), ["red", "blue"] * 20
    lines = ["node,label,split,weight,height"]
    for n, kind in enumerate(kinds):
        split = ("train", "train", "dev", "test")[n // 2 % 4]
        lines.append(f"n{n},{kind},{split},{(kind == 'red') + dice.normal() / 2:.3f},{n % 7}")
    lines += ["n3,red,train,1,2", "n77,red,train,heavy,2", "n78,red,train,nan,2"]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "nodes.csv").write_text("\n".join(lines))
    edges = [(a, b) for a in range(40) for b in range(a) if kinds[a] == kinds[b]]
    lines = ["source\ttarget\tkind"] + [f"n{a}\tn{b}\t{a % 2}" for a, b in edges if a % 3 == 0]
    lines += ["n1\tn1\t0", "n1\tn90\t0", "n1\tn77\t0", "n1\tn2\tfriend"]
    (tmp_path / "tables" / "edges.tsv").write_text("\n".join(lines))
    return tmp_path / "tables"


def test_tables_of_nodes_and_edges(tables, tmp_path, capsys):
    (graph,) = read_graphs(tables)
    said = capsys.readouterr().err
    for where, fault in (
        ("line 42 of .*nodes.csv", "a second node 'n3'"),
        ("line 43 of .*nodes.csv", "weight 'heavy'; expected a number"),
        ("line 44 of .*nodes.csv", "weight 'nan'; expected a number"),
        ("line 136 of .*edges.tsv", "no node is called 'n90'"),
        ("line 137 of .*edges.tsv", "no node is called 'n77'"),
        ("line 138 of .*edges.tsv", "kind 'friend'; expected a whole number"),
    ):
        assert re.search(f"left out: {where}: {fault}", said), said
    assert (len(graph), graph.nodes.shape[1], len(graph.edges)) == (40, 2, 134)
    assert (graph.names[7], graph.labels[7], graph.splits[7]) == ("n7", "blue", "test")
    settings = {"shape": GraphShape(**SMALL), "config": replace(RUN, dropout=0.1)}
    regard.train.graph(tables, out=tmp_path / "run", **settings)
    scores = regard.evaluate.graph(tmp_path / "run" / "final", tables)
    assert scores.count == 10
    assert scores.accuracy > 0.7
    (tables / "nodes.csv").write_text("node,weight,height\na,1,3\nb,0,4\n")
    (tables / "edges.tsv").write_text("source\ttarget\na\tb\n")
    said = list(regard.predict(tmp_path / "run" / "final", tables))
    assert [one.text for one in said] == ["a", "b"]
    assert all(one.label in ("red", "blue") and 0.5 <= one.probability <= 1 for one in said)
    (tables / "edges.tsv").write_text("source\ttarget\tkind\na\tb\t7\n")
    with pytest.raises(DataError, match="an edge of kind 7"):
        list(regard.predict(tmp_path / "run" / "final", tables))


def test_edges_alone_are_a_graph_of_which_nothing_else_is_known(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\nx,y\ny,z\nw,w\n")
    (graph,) = read_graphs(tmp_path / "edges.csv", labelled=False)
    assert graph.names == ["x", "y", "z", "w"]
    assert graph.nodes.tolist() == [[1.0]] * 4
    assert graph.edges.tolist() == [[0, 1, 0], [1, 2, 0], [3, 3, 0]]
    (tmp_path / "edges.csv").write_text("source,goal\nx,y\n")
    with pytest.raises(DataError, match="no column 'target'"):
        read_graphs(tmp_path / "edges.csv")


def test_sets_are_rows_that_share_a_name(tmp_path, capsys):
    dice, lines = np.random.default_rng(0), ["graph,label,split,small,large"]
    for n in range(60):
        size, split = dice.integers(1, 6), ("train", "valid", "test")[n % 3]
        large = dice.integers(2, size=size)
        kind = "some" if large.any() else "none"
        lines += [f"s{n},{kind},{split},{1 - x},{x}" for x in large]
    lines += ["s0,other,train,1,0"]
    (tmp_path / "sets.csv").write_text("\n".join(lines))
    graphs = read_graphs(tmp_path / "sets.csv")
    assert f"line {len(lines)} of" in capsys.readouterr().err
    assert len(graphs) == 60
    assert not any(graph.by_node or len(graph.edges) for graph in graphs)
    settings = {"shape": GraphShape(attention="set", **SMALL), "config": RUN}
    regard.train.graph(tmp_path / "sets.csv", out=tmp_path / "run", **settings)
    assert regard.evaluate.graph(tmp_path / "run" / "final", tmp_path / "sets.csv").accuracy > 0.9
    assert list(regard.predict(tmp_path / "run" / "final", tmp_path / "sets.csv"))[3].text == "s3"
    (tmp_path / "many.csv").write_text("graph,source,target\ns0,0,0\ns1,0,9\n")
    joined = read_graphs([tmp_path / "sets.csv", tmp_path / "many.csv"])
    assert "no node is called '9'" in capsys.readouterr().err
    assert [len(graph.edges) for graph in joined[:2]] == [1, 0]
    (tmp_path / "sets.csv").write_text("label,small\na,1\n")
    with pytest.raises(DataError, match="no column 'graph'"):
        read_graphs(tmp_path / "sets.csv")


def test_numbers_and_classes_of_new_molecules(molecules, tmp_path, capsys):
    shape = GraphShape(label="size", **SMALL)
    config = replace(RUN, steps=10)
    regard.train.graph(molecules, out=tmp_path / "sizes", shape=shape, config=config)
    (tmp_path / "new.csv").write_text("smiles\nCCO\nC1C\nc1ccccc1\n")
    said = list(regard.predict(tmp_path / "sizes" / "final", tmp_path / "new.csv"))
    bad = said.pop(1)  # in its place
    assert isinstance(bad, Failed) and "line 3 of" in str(bad) and "of 'C1C'" in str(bad)
    assert [one.text for one in said] == ["CCO", "c1ccccc1"]
    assert all(isinstance(one.label, float) and one.probability is None for one in said)
    (tmp_path / "bad.csv").write_text("smiles\nC1C\n")
    (only,) = regard.predict(tmp_path / "sizes" / "final", tmp_path / "bad.csv")
    assert isinstance(only, Failed)
    with pytest.raises(DataError, match="of 'C1C'"):
        regard.look.attention(tmp_path / "sizes" / "final", tmp_path / "bad.csv")
    (tmp_path / "odd.csv").write_text("smiles,size\nCCO,3\nCCC,many\nCCCC,4\n")
    assert regard.evaluate.graph(tmp_path / "sizes" / "final", tmp_path / "odd.csv").count == 2
    assert "the label 'many'; expected a number" in capsys.readouterr().err


def test_other_files_and_models_are_refused(arrays, molecules, tmp_path, folders):
    shape = GraphShape(**SMALL)
    run = regard.train.graph(
        arrays, out=tmp_path / "run", shape=shape, config=replace(RUN, steps=1)
    )
    nodes = "labelled as a whole\n  expected: graphs whose nodes are labelled"
    with pytest.raises(DataError, match=nodes):
        regard.evaluate.graph(run.path, molecules)
    with pytest.raises(DataError, match=nodes):
        regard.look.attention(run.path, "CCO")
    held = dict(np.load(arrays))
    np.savez(tmp_path / "wide.npz", **{**held, "words": 12})
    with pytest.raises(DataError, match=r"\(batch, nodes, 10\)"):
        regard.evaluate.graph(run.path, tmp_path / "wide.npz")
    np.savez(tmp_path / "far.npz", **{**held, "edges": np.array([[0, 60]])})
    with pytest.raises(DataError, match="edges up to 60"):
        regard.evaluate.graph(run.path, tmp_path / "far.npz")
    for wrong in (
        {"edges": np.array([[0.5, 1.0]])},
        {"edges": np.array([0, 1])},
        {"edges": np.array([[-1, 0]])},
        {"labels": np.array(["a"] * len(held["labels"]))},
        {"train": np.array([900])},
        {"indptr": np.array([0, 1])},
    ):
        np.savez(tmp_path / "wrong.npz", **{**held, **wrong})
        with pytest.raises(DataError, match=r"expected: edges \(E, 2\)"):
            read_graphs(tmp_path / "wrong.npz")
    (tmp_path / "none.csv").write_text("smiles,label\nxx,1\n")
    with pytest.raises(DataError, match=r"reading .*none\.csv: no graphs that can be read"):
        read_graphs((str(tmp_path / "none.csv"),))
    with pytest.raises(DataError, match="no such file, and as SMILES the end"):
        regard.look.attention(run.path, "")
    (tmp_path / "bad.npz").write_bytes(b"no arrays")
    with pytest.raises(DataError, match="an .npz file of arrays"):
        regard.evaluate.graph(run.path, tmp_path / "bad.npz")
    with pytest.raises(UsageError, match="a model that reads graphs"):
        regard.evaluate.graph(folders / "encoder", arrays)
    with pytest.raises(DataError, match="labels of nodes and of graphs"):
        regard.train.graph([arrays, molecules], out=tmp_path / "both")
    with pytest.raises(DataError, match="no column 'logP'"):
        regard.train.graph(molecules, out=tmp_path / "none", shape=GraphShape(label="logP"))


def test_numbers_of_one_graph_in_python():
    """The face of the model: features and paths as tensors, a mask where rows are padded."""
    graph = random_graph(0)
    kit = Kit(make_model(graph, "graphormer"))
    batch = collate([lay_out(graph, kit.model.config)])
    assert kit.logits(batch.inputs.numpy(), paths=batch.paths.numpy()).shape == (1, 3)
    with pytest.raises(DataError, match="nodes of a graph"):
        kit.logits(batch.inputs[..., :2], paths=batch.paths)
    assert isinstance(batch, Batch)


def test_the_column_of_the_labels_is_kept(tmp_path, capsys):
    """Whatever their order, and what else there is, in the file that is evaluated or predicted."""
    rows = [f"{n % 7},{'C' * (n % 5 + 2)},{'odd' if n % 5 % 2 else 'even'}" for n in range(20)]
    (tmp_path / "train.csv").write_text("\n".join(["mass,smiles,kind", *rows]))
    regard.train.graph(
        tmp_path / "train.csv", out=tmp_path / "run", shape=GraphShape(**SMALL), config=RUN
    )
    turned = [",".join(reversed(row.split(","))) for row in rows]
    (tmp_path / "turned.csv").write_text("\n".join(["kind,smiles,mass", *turned]))
    final = tmp_path / "run" / "final"
    assert json.loads((final / "config.json").read_text())["label_column"] == "kind"
    scores = [regard.evaluate.graph(final, tmp_path / f"{n}.csv") for n in ("train", "turned")]
    assert scores[0].to_dict() == scores[1].to_dict()
    (tmp_path / "other.csv").write_text("smiles,sort\nCC,even\n")
    with pytest.raises(DataError, match="no column 'kind'"):
        regard.evaluate.graph(final, tmp_path / "other.csv")
    assert regard.evaluate.graph(final, tmp_path / "other.csv", label="sort").count == 1


def test_numbers_of_nodes_are_known_by_their_columns(tmp_path):
    first = "node,label,size,weight\na,x,1,10\nb,y,2,20\n"
    other = "weight,node,size,label\n10,a,1,x\n20,b,2,y\n"
    nodes = []
    for n, text in enumerate((first, other)):
        (tmp_path / f"{n}.csv").write_text(text)
        nodes.append(read_graphs(tmp_path / f"{n}.csv")[0].nodes.tolist())
    assert nodes[0] == nodes[1] == [[1, 10], [2, 20]]


def test_two_draws_of_dropout_and_other_models_are_refused(molecules, tmp_path):
    config = replace(RUN, r_drop=1.0)
    with pytest.raises(UsageError, match="r_drop = 1 with labels of whole graphs"):
        regard.train.graph(molecules, out=tmp_path / "run", config=config)
    data = regard.DataConfig(init="gpt2")
    with pytest.raises(UsageError, match="a model to begin with(.|\n)*none: it is new"):
        regard.train.graph(molecules, out=tmp_path / "run", data=data)
