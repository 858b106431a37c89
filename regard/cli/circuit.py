"""`regard circuit`: the few parts of a model that do a task, and what speaks for them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from regard.cli.measured import check_outputs, write_measured
from regard.cli.opening import open_kit
from regard.cli.patching import grid, open_pairs
from regard.cli.show import Show
from regard.cli.texts import at_least
from regard.errors import UsageError
from regard.files import write_whole
from regard.look.circuit_search import (
    Certificate,
    CircuitConfig,
    FoundCircuit,
    ScoredEdge,
    edge_scores,
    edges_within,
    find_circuit,
)
from regard.look.hooks import HookedModel
from regard.look.patching import Pairs, Site
from regard.look.picture import draw_map, png


def run(args: argparse.Namespace, show: Show) -> int:
    """Find a circuit and judge it."""
    at_least("--edges", args.edges, 0)
    check_outputs(args.out, png=args.png)
    config = CircuitConfig(args.kind, args.keep, not args.heads_only, args.draws, seed=args.seed)
    kit = open_kit(args.path, args.device, None)
    pairs = open_pairs(args, kit, show)
    assert pairs.templates is not None
    if int(pairs.templates.bincount().min()) < 4:  # two in either half
        show.note("some templates, or lengths, have fewer than 4 pairs: their means are of few")
    with show.progress("finding a circuit") as progress:
        found = find_circuit(kit.hooked, pairs, config)
        progress("edges")
        edges = find_edges(kit.hooked, pairs, found.nodes, show) if args.edges else []
    made = as_data(args, found, edges[: args.edges])
    if args.out:
        write_measured(args, kit, made, [args.pairs] if args.pairs else [])
    if args.png:
        heads = [site for site in found.sites if site.head is not None]
        effects = torch.tensor([found.effects[site] for site in heads])
        rows, names, across = grid(heads, effects)
        kept = [(names.index(s.tap), s.head) for s in found.nodes if s.head is not None]
        write_whole(Path(args.png), png(draw_map(rows, names, across, "heads", kept)))
    if show.as_json:
        show.result(made)
    else:
        print_circuit(found, edges[: args.edges], show)
    return 0


def find_edges(
    hooked: HookedModel, pairs: Pairs, nodes: list[Site], show: Show
) -> list[ScoredEdge]:
    """Edges of a circuit, largest first; a model whose edges are not scored has none."""
    try:
        return edges_within(hooked, edge_scores(hooked, pairs), nodes)
    except UsageError as error:
        show.note(f"no edges: {error.found}")
        return []


def as_data(
    args: argparse.Namespace, found: FoundCircuit, edges: list[ScoredEdge]
) -> dict[str, Any]:
    """The object of `--json`."""
    told = found.certificate

    def place(site: Site) -> dict[str, Any]:
        return {"tap": site.tap, "head": site.head}

    return {
        "model": args.path,
        "prompts": args.pairs or args.task,
        "seed": args.seed,
        "kind": args.kind,
        "keep": args.keep,
        "parts": len(found.sites),
        "nodes": [
            place(node) | {"effect": found.effects[node], "adds": told.minimality[node]._asdict()}
            for node in found.nodes
        ],
        "edges": [
            {"from": place(e.sender), "to": place(e.receiver), "score": e.score} for e in edges
        ],
        "certificate": {
            "pairs": told.pairs,
            "model": told.model,
            "empty": told.empty,
            "faithfulness": {kind: value._asdict() for kind, value in told.faithfulness.items()},
            "completeness": {"mean": told.completeness[0], "worst": told.completeness[1]},
            "random": told.random._asdict(),
            "random_as_good": told.random_as_good,
        },
    }


def print_circuit(found: FoundCircuit, edges: list[ScoredEdge], show: Show) -> None:
    """The same for people."""
    told = found.certificate
    rows = [
        (str(node), f"{found.effects[node]:+.3f}", str(told.minimality[node]))
        for node in found.nodes
    ]
    title = f"{len(found.nodes)} of {len(found.sites)} parts"
    columns = ("part", "alone missing", "circuit loses without it")
    show.table(title, columns, rows)
    if edges:
        lines = [(f"{e.sender} → {e.receiver}", f"{e.score:+.3f}") for e in edges]
        show.table("edges, to first order", ("from → to", "share"), lines)
    show.fields(f"certificate: {told.pairs} pairs that it was not found on", certificate(told))


def certificate(told: Certificate) -> dict[str, str]:
    """What a circuit is worth, in words."""
    faithful = {f"faithfulness, {kind}": str(share) for kind, share in told.faithfulness.items()}
    mean, worst = told.completeness
    return {
        "goal": f"{told.model:.4f} model, {told.empty:.4f} with every part ablated",
        **faithful,
        "completeness": f"mean gap {mean:.3f}, worst {worst:.3f}",
        "random circuits": f"{str(told.random)}; {told.random_as_good:.0%} as good",
    }
