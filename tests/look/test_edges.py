"""Edges: what all senders write is the stream, what all receivers read is its slope."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.errors import UsageError
from regard.look.edges import edge_scores, only_stack, pull_back, rotation
from regard.look.hooks import Board
from regard.look.patching import last_stream, slopes_at
from regard.look.sites import Site
from regard.model import presets
from tests.look.planted import planted_induction
from tests.look.test_circuit import repeats
from tests.look.test_patching import CONFIGS, VOCAB, make_board, make_pairs


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
    board, pairs = make_board(SHAPES[name]), make_pairs()
    at = "decoder.blocks.1"
    taps = [f"{at}.{tap}" for tap in ("resid_pre", "resid_mid", "attn.q", "attn.k", "attn.v")]
    _, own, slopes = slopes_at(board, pairs.clean, pairs.goal, taps)
    attn = board.model.decoder.blocks[1].attn
    turns = rotation(board, board.model.decoder, pairs.clean)
    total = sum(
        pull_back(attn, kind, own[taps[0]], slopes[f"{at}.attn.{kind}"], turns).sum(2)
        for kind in ("q", "k", "v")
    )
    torch.testing.assert_close(total, slopes[taps[0]] - slopes[taps[1]])
    assert total.abs().max() > 1e-3


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_written_is_the_stream(name):
    board, pairs = make_board(SHAPES[name]), make_pairs()
    stream = last_stream(board)
    clean, own, slopes = slopes_at(board, pairs.clean, pairs.goal, [stream])
    with torch.no_grad():
        logits, other = board.run(pairs.corrupt, stream)
    gap = (pairs.goal(logits, pairs.corrupt) - clean).mean()
    wanted = ((other[stream] - own[stream]) * slopes[stream]).sum((1, 2)).mean() / gap
    edges = edge_scores(board, pairs, steps=1)
    ends = [edge for edge in edges if edge.receiver.tap == stream]
    assert len(ends) == 1 + 2 * (4 + 1)  # the embedding, and of each block four heads and its MLP
    assert sum(edge.score for edge in ends) == pytest.approx(float(wanted))
    assert [abs(e.score) for e in edges] == sorted((abs(e.score) for e in edges), reverse=True)


def test_no_edge_goes_back():
    board, pairs = make_board(), make_pairs()
    edges = edge_scores(board, pairs)

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
    board = Board(planted_induction(24, 12, heads=3, previous=1, induction=2))
    edges = {(e.sender, e.receiver): e.score for e in edge_scores(board, repeats(8))}
    first, second = Site("decoder.blocks.0.attn.z", 1), Site("decoder.blocks.1.attn.z", 2)
    path = (first, Site("decoder.blocks.1.attn.k", 2)), (second, Site(last_stream(board)))
    path += ((Site("decoder.embed"), Site("decoder.blocks.0.attn.v", 1)),)
    assert min(edges[edge] for edge in path) > 0.9
    assert max(abs(score) for edge, score in edges.items() if edge not in path) < 0.1


def test_models_without_one_stream():
    board = make_board(presets.bert(16, 1, 4, VOCAB, 12))
    with pytest.raises(UsageError, match="norms after"):
        only_stack(board)
    with pytest.raises(UsageError, match="no single stack"):
        only_stack(make_board(presets.transformer(16, 1, 4, VOCAB)))
