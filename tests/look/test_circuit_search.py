"""Circuits: planted heads are found and nothing else, and the certificate says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.errors import DataError, UsageError
from regard.look.circuit_search import (
    CircuitConfig,
    edge_scores,
    find_circuit,
    pull_back,
    rotary_angles,
    single_stack,
)
from regard.look.hooks import HookedModel
from regard.look.patching import Goal, Pairs, Site, ablation_values, goal_gradients, last_stream
from regard.model import presets
from regard.model.batch import Batch
from tests.look.planted import planted_induction
from tests.look.test_patching import CONFIGS, make_hooked, make_pairs
from tests.look.test_patching import VOCAB as SMALL

VOCAB, LENGTH = 24, 12
PLANTED = [Site("decoder.blocks.0.attn.z", 1), Site("decoder.blocks.1.attn.z", 2)]


def repeats(count=16, seed=0):
    """… a b … a → b; in the corrupted twin the first a is another token."""
    dice = torch.Generator().manual_seed(seed)
    clean, corrupt, good, bad = [], [], [], []
    for _ in range(count):
        words = torch.randperm(VOCAB, generator=dice)[: LENGTH + 1].tolist()
        spare, row = words[LENGTH], words[:LENGTH]
        place = int(torch.randint(1, LENGTH - 3, (), generator=dice))
        row[-1] = row[place]
        twin = list(row)
        twin[place] = spare
        clean.append(row)
        corrupt.append(twin)
        good.append(row[place + 1])
        bad.append(row[place - 1])
    goal = Goal(torch.tensor(good), torch.tensor(bad))
    return Pairs(Batch(torch.tensor(clean)), Batch(torch.tensor(corrupt)), goal)


@pytest.mark.parametrize("idle", [0.0, 0.02])
@pytest.mark.parametrize("kind", ["resample", "mean", "zero"])
def test_planted_heads_are_found_and_no_other(kind, idle):
    hooked = HookedModel(planted_induction(VOCAB, LENGTH, heads=6, idle=idle))
    found = find_circuit(hooked, repeats(), CircuitConfig(kind))
    assert [Site(node.tap, node.head) for node in found.nodes] == PLANTED
    told = found.certificate
    assert told.pairs == 8 and told.model > 5 > abs(told.empty)
    for share in told.faithfulness.values():
        assert share.low - 1e-6 <= share.value <= share.high + 1e-6 and share.value > 0.9
    assert told.completeness.worst < 0.1
    assert min(node.adds.low for node in found.nodes) > 0.5
    assert told.random.high < 0.3 and told.random_as_good < 0.05
    assert sum(abs(effect) > 0.5 for effect in found.effects.values()) == 2


def test_a_part_that_only_helps_another_is_kept():
    """Without what the first head writes, the second finds nothing: both are needed."""
    hooked = HookedModel(planted_induction(VOCAB, LENGTH, heads=3, previous=0, induction=1))
    found = find_circuit(hooked, repeats(8, seed=3), CircuitConfig(mlps=False))
    assert [str(node) for node in found.nodes] == [
        "decoder.blocks.0.attn.z head 0",
        "decoder.blocks.1.attn.z head 1",
    ]
    assert len(found.effects) == 6


@torch.no_grad()
def test_means_are_within_a_template():
    """Wang et al. 2022: positions mean the same only in prompts of one template."""
    hooked, pairs = HookedModel(planted_induction(VOCAB, LENGTH)), repeats(5)
    templates = torch.tensor([0, 1, 0, 2, 1])
    _, seen = hooked.run(pairs.corrupt, tap := PLANTED[0].tap)
    found = ablation_values(hooked, PLANTED[:1], "mean", pairs.corrupt, templates)[tap]
    for rows in ([0, 2], [1, 4], [3]):  # of one prompt: itself
        for row in rows:
            torch.testing.assert_close(found[row], seen[tap][rows].mean(0))
    whole = ablation_values(hooked, PLANTED[:1], "mean", pairs.corrupt)[tap]
    torch.testing.assert_close(whole, seen[tap].mean(0, keepdim=True))
    told = find_circuit(hooked, pairs._replace(templates=templates)).certificate
    assert told.faithfulness["mean"] != find_circuit(hooked, pairs).certificate.faithfulness["mean"]


def test_the_same_seed_gives_the_same_certificate():
    hooked = HookedModel(planted_induction(VOCAB, LENGTH))
    one, two = (find_circuit(hooked, repeats(), CircuitConfig(seed=5)) for _ in range(2))
    assert one == two


def test_what_cannot_be():
    hooked = HookedModel(planted_induction(VOCAB, LENGTH))
    with pytest.raises(DataError, match="3 pairs"):
        find_circuit(hooked, repeats(3))
    pairs = repeats(8)
    with pytest.raises(DataError, match="with and without"):
        find_circuit(hooked, pairs._replace(corrupt=pairs.clean))
    with pytest.raises(UsageError, match="keep"):
        CircuitConfig(keep=1.5)


# Edges --------------------------------------------------------------------------------------------


def with_norms(config):
    """The same shape with norms on queries and keys."""
    stack = config.decoder
    return replace(config, decoder=replace(stack, block=replace(stack.block, qk_norm=True)))


SHAPES = {
    "gpt2": CONFIGS["gpt2"],
    "llama": CONFIGS["llama"],
    "qk norm": with_norms(CONFIGS["llama"]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_read_is_all_that_the_stream_does(name):
    hooked, pairs = make_hooked(SHAPES[name]), make_pairs()
    at = "decoder.blocks.1"
    taps = [f"{at}.{tap}" for tap in ("resid_pre", "resid_mid", "attn.q", "attn.k", "attn.v")]
    _, own, slopes = goal_gradients(hooked, pairs.clean, pairs.goal, taps)
    attn = hooked.model.decoder.blocks[1].attn
    turns = rotary_angles(hooked, hooked.model.decoder, pairs.clean)
    total = sum(
        pull_back(attn, kind, own[taps[0]], slopes[f"{at}.attn.{kind}"], turns).sum(2)
        for kind in ("q", "k", "v")
    )
    torch.testing.assert_close(total, slopes[taps[0]] - slopes[taps[1]])
    assert total.abs().max() > 1e-3


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_written_is_the_stream(name):
    hooked, pairs = make_hooked(SHAPES[name]), make_pairs()
    stream = last_stream(hooked)
    clean, own, slopes = goal_gradients(hooked, pairs.clean, pairs.goal, [stream])
    with torch.no_grad():
        logits, other = hooked.run(pairs.corrupt, stream)
    gap = (pairs.goal(logits, pairs.corrupt) - clean).mean()
    wanted = ((other[stream] - own[stream]) * slopes[stream]).sum((1, 2)).mean() / gap
    edges = edge_scores(hooked, pairs, steps=1)
    ends = [edge for edge in edges if edge.receiver.tap == stream]
    assert len(ends) == 1 + 2 * (4 + 1)  # the embedding, and of each block four heads and its MLP
    assert sum(edge.score for edge in ends) == pytest.approx(float(wanted))
    assert [abs(e.score) for e in edges] == sorted((abs(e.score) for e in edges), reverse=True)


def test_no_edge_goes_back():
    hooked, pairs = make_hooked(), make_pairs()
    edges = edge_scores(hooked, pairs)

    def block(site):
        return int(site.tap.split(".")[2]) if ".blocks." in site.tap else -1

    assert all(block(edge.sender) <= block(edge.receiver) for edge in edges)
    into = {edge.receiver.tap for edge in edges if edge.sender.tap == "decoder.blocks.0.mlp.out"}
    assert "decoder.blocks.0.attn.q" not in into and "decoder.blocks.1.attn.q" in into
    same = [
        e
        for e in edges
        if e.sender.tap.endswith("1.attn.z") and e.receiver.tap.endswith("1.attn.q")
    ]
    assert not same


def test_sure_heads_have_edges_too():
    """The planted path: the embedding, the head before, the keys of the next, the end."""
    hooked = HookedModel(planted_induction(24, 12, heads=3, previous=1, induction=2))
    edges = {(e.sender, e.receiver): e.score for e in edge_scores(hooked, repeats(8))}
    first, second = Site("decoder.blocks.0.attn.z", 1), Site("decoder.blocks.1.attn.z", 2)
    path = (first, Site("decoder.blocks.1.attn.k", 2)), (second, Site(last_stream(hooked)))
    path += ((Site("decoder.embed"), Site("decoder.blocks.0.attn.v", 1)),)
    assert min(edges[edge] for edge in path) > 0.9
    assert max(abs(score) for edge, score in edges.items() if edge not in path) < 0.1


def test_models_without_one_stream():
    hooked = make_hooked(presets.bert(16, 1, 4, SMALL, 12))
    with pytest.raises(UsageError, match="norms after"):
        single_stack(hooked)
    with pytest.raises(UsageError, match="no single stack"):
        single_stack(make_hooked(presets.transformer(16, 1, 4, SMALL)))
