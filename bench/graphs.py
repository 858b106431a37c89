"""Nodes of citation graphs and numbers of molecules: regard beside PyG's networks, one table.

    python bench/graphs.py DATA [--only cora,citeseer,esol,logP,SAS,qed,maximum,csl]
                           [--models regard,gcn,gat,gin,gps] [--device cuda|cpu] [--seeds 10]
                           [--jobs 4] [--steps N] [--minutes M] [--out runs.jsonl]

DATA is the folder of cora.npz, citeseer.npz, esol.csv and zinc20k.csv. Two more tasks, which regard
alone does, are made: the maximum of sets of up to 20 numbers, and the ten classes of circular skip
links (41 nodes of four neighbours each), which look alike to all that counts neighbours.

Each model is trained once a seed, `--jobs` side by side as processes of one thread; all read the
same splits, keep the weights that are best on valid, and are tested once. A line of JSON a run is
printed as it ends, then the table of means ± standard deviations over seeds, beside what is asked
of regard. `--steps` and `--minutes` are of one training, whoever's. GCN, GAT, GIN (with edges) and
GPS are those of torch_geometric, with the settings of their papers; they are left out where it is
not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.graphs.graph_files import Graph, read_graphs, select_labels


class Figure(NamedTuple):
    """What is measured on a file."""

    file: str
    label: str | None
    name: str
    bar: float
    """What is asked of regard: at least of an accuracy, at most of an error."""
    train: dict[str, Any] = {}
    shape: dict[str, Any] = {}
    """Settings of regard that are not the usual ones."""


MOLECULES = {"steps": 30_000, "eval_every": 250, "save_every": 1000, "lr": 1e-3}
MOLECULES |= {"ema": 0.999, "weight_decay": 0.01, "warm_up": 500, "keep": 1, "log_every": 100}
LARGE = {"dim": 96, "depth": 8, "rows": 64}
MADE = {"steps": 400, "lr": 1e-2, "eval_every": 50, "save_every": 100, "ema": 0.0}
ESOL = "measured log solubility in mols per litre"
FIGURES = {
    "cora": Figure("cora.npz", None, "accuracy", 0.82),
    "citeseer": Figure("citeseer.npz", None, "accuracy", 0.71),
    "esol": Figure("esol.csv", ESOL, "rmse", 0.70),
    "logP": Figure("zinc20k.csv", "logP", "mae", 0.06, MOLECULES, LARGE),
    "SAS": Figure("zinc20k.csv", "SAS", "mae", 0.10, MOLECULES, LARGE),
    "qed": Figure("zinc20k.csv", "qed", "mae", 0.05, MOLECULES, LARGE),
    "maximum": Figure("", "label", "accuracy", 0.99, MADE, {"attention": "set", "depth": 2}),
    "csl": Figure("", "label", "accuracy", 1.0, MADE, {"dim": 32, "heads": 4, "depth": 2}),
}
SKIPS = 2, 3, 4, 5, 6, 9, 11, 12, 13, 16  # of circles of 41 nodes, ten classes
PEERS = {"npz": ("gcn", "gat"), "csv": ("gin", "gps"), "": ()}
KINDS, WALKS = 4, 20  # kinds of bonds; steps of random walks, which GPS reads


# One training -------------------------------------------------------------------------------------


def make_tables(name: str, folder: Path) -> list[Path]:
    """Tables of sets of numbers below 10, or of circular skip links, in any order of nodes."""
    dice, nodes, edges = np.random.default_rng(0), [], ["graph,source,target"]
    splits = ["train"] * 3 + ["valid", "test"]
    for n in range(2000) if name == "maximum" else ():
        numbers = dice.integers(10, size=dice.integers(1, 21))
        rows = np.eye(10, dtype=int)[numbers]
        about = f"{n},{numbers.max()},{splits[n % 5]}"
        nodes += [f"{about},{','.join(map(str, row))}" for row in rows]
    for n in range(50) if name == "csl" else ():
        skip, place = SKIPS[n % 10], dice.permutation(41)
        nodes += [f"{n},{skip},{splits[n // 10]}"] * 41
        pairs = [(place[a], place[(a + b) % 41]) for a in range(41) for b in (1, skip)]
        edges += [f"{n},{a},{b}" for a, b in pairs]
    known = "".join(f",is{n}" for n in range(10)) if name == "maximum" else ""
    files = [folder / "nodes.csv", *[folder / "edges.csv"] * (len(edges) > 1)]
    for file, lines in zip(files, ([f"graph,label,split{known}", *nodes], edges), strict=False):
        file.write_text("\n".join(lines))
    return files


def train_ours(given: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """Valid and test of one of our models, trained by `regard.train.graph`."""
    figure = FIGURES[name]
    limits = {"steps": given.steps, "minutes": given.minutes}
    settings = figure.train | {name: value for name, value in limits.items() if value is not None}
    with (
        tempfile.TemporaryDirectory() as folder,
        regard.settings(device=given.device, seed=seed, progress=False),
    ):
        files = [Path(given.data, figure.file)] if figure.file else make_tables(name, Path(folder))
        shape = regard.train.GraphShape(label=figure.label, **figure.shape)
        config = regard.TrainConfig(**settings)
        run = regard.train.graph(files, out=Path(folder, "run"), shape=shape, config=config)
        scores = [
            getattr(regard.evaluate.graph(run.path, files, split=split), figure.name)
            for split in ("valid", "test")
        ]
        return {"valid": scores[0], "test": scores[1], "steps": run.steps}


class Best:
    """The test figure of the weights that are best on valid, and when to stop."""

    def __init__(self, given: argparse.Namespace, usual: int, patience: int) -> None:
        self.steps = given.steps or (10**9 if given.minutes else usual)
        self.until = time.perf_counter() + 60 * given.minutes if given.minutes else float("inf")
        self.valid, self.test, self.waited, self.patience = float("-inf"), 0.0, 0, patience

    def over(self, step: int) -> bool:
        """Whether there is no step after this one."""
        late = time.perf_counter() >= self.until
        return late or step >= self.steps or self.waited >= self.patience

    def see(self, valid: float, test: float) -> None:
        """Figures of which higher is better."""
        self.waited += 1
        if valid > self.valid:
            self.valid, self.test, self.waited = valid, test, 0


def train_nodes(given: argparse.Namespace, name: str, graph: Graph, seed: int) -> dict[str, Any]:
    """GCN (Kipf and Welling 2017) or GAT (Veličković 2018), two layers, as published."""
    from torch_geometric.nn import GATConv, GCNConv

    torch.manual_seed(seed)
    device, splits = given.device, np.array(graph.splits)
    known = np.array([label != "" for label in graph.labels])
    part = {s: torch.tensor((splits == s) & known) for s in ("train", "valid", "test")}
    labels = torch.tensor([int(label or 0) for label in graph.labels]).to(device)
    classes, width = int(labels.max()) + 1, graph.nodes.shape[1]
    nodes = torch.from_numpy(graph.nodes).to(device)
    nodes = nodes / nodes.sum(1, keepdim=True).clamp(min=1e-9)  # rows of sum 1, as published
    ends = torch.from_numpy(graph.edges[:, :2].T.copy())
    edges = torch.cat([ends, ends.flip(0)], 1).to(device)
    if name == "gcn":
        layers = nn.ModuleList([GCNConv(width, 16), GCNConv(16, classes)])
        share, rate, act, steps, patience = 0.5, 0.01, F.relu, 200, 200
    else:
        last = GATConv(64, classes, heads=1, concat=False, dropout=0.6)
        layers = nn.ModuleList([GATConv(width, 8, heads=8, dropout=0.6), last])
        share, rate, act, steps, patience = 0.6, 0.005, F.elu, 1000, 100
    layers.to(device)
    decay = [5e-4, 0.0 if name == "gcn" else 5e-4]
    pairs = zip(layers, decay, strict=True)
    groups = [{"params": layer.parameters(), "weight_decay": value} for layer, value in pairs]
    optimizer, best, step = torch.optim.Adam(groups, lr=rate), Best(given, steps, patience), 0

    def score() -> Tensor:
        x = F.dropout(nodes, share, layers.training)
        x = F.dropout(act(layers[0](x, edges)), share, layers.training)
        out: Tensor = layers[1](x, edges)
        return out

    while not best.over(step):
        layers.train()
        loss = F.cross_entropy(score()[part["train"]], labels[part["train"]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layers.eval()
        with torch.no_grad():
            right = (score().argmax(-1) == labels).float().cpu()
        best.see(*(float(right[part[s]].mean()) for s in ("valid", "test")))
        step += 1
    return {"valid": best.valid, "test": best.test, "steps": step}


def make_network(name: str, features: int, width: int = 64) -> nn.Module:
    """GIN with edges (Hu 2020) and five layers, or GPS with ten (Rampášek 2022)."""
    from torch_geometric.nn import GINEConv, GPSConv, global_add_pool

    def mlp(*sizes: int) -> nn.Sequential:
        pairs = list(zip(sizes, sizes[1:], strict=False))
        layers = [part for pair in pairs for part in (nn.Linear(*pair), nn.ReLU())]
        return nn.Sequential(*layers[:-1])

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            walks = WALKS if name == "gps" else 0
            self.nodes, self.edges = nn.Linear(features + walks, width), nn.Embedding(KINDS, width)
            local = [GINEConv(mlp(width, width, width)) for _ in range(10 if walks else 5)]
            whole = [GPSConv(width, conv, heads=4) for conv in local]
            self.layers = nn.ModuleList(whole if walks else local)
            self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in local])
            self.head = mlp(width, width // 2, width // 4, 1)

        def forward(self, data: Any) -> Tensor:
            walks = [data.random_walk_pe] if name == "gps" else []
            x, kinds = self.nodes(torch.cat([data.x, *walks], -1)), self.edges(data.edge_attr)
            for layer, norm in zip(self.layers, self.norms, strict=True):
                if name == "gps":
                    x = layer(x, data.edge_index, data.batch, edge_attr=kinds)
                else:
                    x = x + F.relu(norm(layer(x, data.edge_index, kinds)))
            out: Tensor = self.head(global_add_pool(x, data.batch))[:, 0]
            return out

    return Network()


def train_graphs(
    given: argparse.Namespace, name: str, figure: Figure, graphs: list[Graph], seed: int
) -> dict[str, Any]:
    """GIN or GPS on molecules: the error that is measured, AdamW, cosine."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.transforms import AddRandomWalkPE

    torch.manual_seed(seed)
    values = {s: select_labels(graphs, s) for s in ("train", "valid", "test")}
    known = np.array([float(graph.labels[0]) for graph in values["train"]])
    mean, spread = known.mean(), known.std()
    walk = AddRandomWalkPE(WALKS, "random_walk_pe")

    def convert(graph: Graph) -> Any:
        ends, kinds = torch.from_numpy(graph.edges[:, :2].T.copy()), graph.edges[:, 2]
        x, y = torch.from_numpy(graph.nodes), (float(graph.labels[0]) - mean) / spread
        edges = torch.cat([ends, ends.flip(0)], 1)
        kind = torch.from_numpy(np.concatenate([kinds, kinds]))
        data = Data(x=x, edge_index=edges, edge_attr=kind, y=torch.tensor([y]).float())
        return walk(data) if name == "gps" else data

    data = {s: [convert(graph) for graph in some] for s, some in values.items()}
    rows = 32 if len(known) < 5000 else 128
    loaders = {s: DataLoader(x, rows, shuffle=s == "train") for s, x in data.items()}
    network = make_network(name, graphs[0].nodes.shape[1]).to(given.device)
    epochs = 200
    best = Best(given, epochs * len(loaders["train"]), epochs)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=1e-5)
    began, budget, step = time.perf_counter(), 60 * (given.minutes or 0), 0

    def measure(split: str) -> float:
        network.eval()
        with torch.no_grad():
            pairs = [(network(b), b.y) for b in (b.to(given.device) for b in loaders[split])]
        gaps = torch.cat([said - real for said, real in pairs]) * spread
        error = gaps.abs().mean() if figure.name == "mae" else gaps.square().mean().sqrt()
        return -float(error)

    while not best.over(step):
        network.train()
        for batch in loaders["train"]:
            done = (time.perf_counter() - began) / budget if budget else step / best.steps
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * max(0.01, 0.5 * (1 + np.cos(np.pi * min(1.0, done))))
            batch = batch.to(given.device)
            loss = (F.l1_loss if figure.name == "mae" else F.mse_loss)(network(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            step += 1
            if best.over(step):
                break
        best.see(measure("valid"), measure("test"))
    return {"valid": -best.valid, "test": -best.test, "steps": step}


def train_one(given: argparse.Namespace) -> None:
    """One training in a process of its own: a line of JSON."""
    name, model, seed = given.one.split(":")
    figure = FIGURES[name]
    start = time.perf_counter()
    torch.set_num_threads(1)
    if model == "regard":
        scores = train_ours(given, name, int(seed))
    else:
        graphs = read_graphs(Path(given.data, figure.file), figure.label)
        if graphs[0].by_node:
            scores = train_nodes(given, model, graphs[0], int(seed))
        else:
            scores = train_graphs(given, model, figure, graphs, int(seed))
    seconds = round(time.perf_counter() - start, 1)
    print(json.dumps({"task": name, "model": model, "seed": int(seed), **scores, "s": seconds}))


# All of them --------------------------------------------------------------------------------------


def start(one: str) -> dict[str, Any] | None:
    """Run one training as a process; what it says, or None where it fails."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", one]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | THREADS)
    if done.returncode:
        print(f"{one}: {done.stderr.strip()[-2000:]}", file=sys.stderr, flush=True)
        return None
    line = done.stdout.strip().splitlines()[-1]
    print(line, flush=True)
    scores: dict[str, Any] = json.loads(line)
    return scores


THREADS = {"OMP_NUM_THREADS": "1"}


def main() -> None:
    """Run them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--only", default=",".join(FIGURES))
    parser.add_argument("--models", default="regard,gcn,gat,gin,gps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        train_one(given)
        return
    models = given.models.split(",")
    if find_spec("torch_geometric") is None:
        print("torch_geometric is not installed: nothing to compare with")
        models = ["regard"]
    jobs = [
        f"{name}:{model}:{seed}"
        for name in given.only.split(",")
        for model in ("regard", *PEERS[FIGURES[name].file.partition(".")[2]])
        if model in models
        for seed in range(given.seeds)
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        runs = [run for run in pool.map(start, jobs) if run is not None]
    if given.out:
        given.out.write_text("".join(f"{json.dumps(run)}\n" for run in runs))
    groups = defaultdict(list)
    for run in runs:
        groups[run["task"], run["model"]].append(run)
    columns = f"{'task':10}{'model':8}{'figure':10}{'asked':>7}{'valid':>9}{'test':>9}{'±':>8}"
    print(f"{columns}{'seeds':>7}{'steps':>8}{'s':>7}")
    for (task, model), some in groups.items():
        figure, tests = FIGURES[task], [run["test"] for run in some]
        means = [statistics.mean(run[key] for run in some) for key in ("valid", "steps", "s")]
        asked = f"{figure.bar:.3f}" if model == "regard" else ""
        spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
        row = f"{means[0]:9.4f}{statistics.mean(tests):9.4f}{spread:8.4f}{len(some):7}"
        print(f"{task:10}{model:8}{figure.name:10}{asked:>7}{row}{means[1]:8.0f}{means[2]:7.0f}")


if __name__ == "__main__":
    main()
