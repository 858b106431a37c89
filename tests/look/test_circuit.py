"""Circuits: planted heads are found and nothing else, and the certificate says so."""

from __future__ import annotations

import pytest
import torch

from regard.errors import DataError, UsageError
from regard.look.ablate import fill
from regard.look.circuit import CircuitConfig, find_circuit
from regard.look.goal import Goal
from regard.look.hooks import Board
from regard.look.patching import Pairs
from regard.look.sites import Site
from regard.model.batch import Batch
from tests.look.planted import planted_induction

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
    board = Board(planted_induction(VOCAB, LENGTH, heads=6, idle=idle))
    found = find_circuit(board, repeats(), CircuitConfig(kind))
    assert found.nodes == PLANTED
    told = found.certificate
    assert told.pairs == 8 and told.model > 5 > abs(told.empty)
    for share in told.faithfulness.values():
        assert share.low - 1e-6 <= share.value <= share.high + 1e-6 and share.value > 0.9
    assert told.completeness[1] < 0.1
    assert min(lost.low for lost in told.minimality.values()) > 0.5
    assert told.random.high < 0.3 and told.beaten < 0.05
    assert sum(abs(effect) > 0.5 for effect in found.effects.values()) == 2


def test_a_part_that_only_helps_another_is_kept():
    """Without what the first head writes, the second finds nothing: both are needed."""
    board = Board(planted_induction(VOCAB, LENGTH, heads=3, previous=0, induction=1))
    found = find_circuit(board, repeats(8, seed=3), CircuitConfig(mlps=False))
    assert [str(node) for node in found.nodes] == [
        "decoder.blocks.0.attn.z head 0",
        "decoder.blocks.1.attn.z head 1",
    ]
    assert len(found.sites) == 6


@torch.no_grad()
def test_means_are_within_a_template():
    """Wang et al. 2022: positions mean the same only in prompts of one template."""
    board, pairs = Board(planted_induction(VOCAB, LENGTH)), repeats(5)
    templates = torch.tensor([0, 1, 0, 2, 1])
    _, seen = board.run(pairs.corrupt, tap := PLANTED[0].tap)
    found = fill(board, PLANTED[:1], "mean", pairs.corrupt, templates)[tap]
    for rows in ([0, 2], [1, 4], [3]):  # of one prompt: itself
        for row in rows:
            torch.testing.assert_close(found[row], seen[tap][rows].mean(0))
    whole = fill(board, PLANTED[:1], "mean", pairs.corrupt)[tap]
    torch.testing.assert_close(whole, seen[tap].mean(0, keepdim=True))
    told = find_circuit(board, pairs._replace(templates=templates)).certificate
    assert told.faithfulness["mean"] != find_circuit(board, pairs).certificate.faithfulness["mean"]


def test_the_same_seed_gives_the_same_certificate():
    board = Board(planted_induction(VOCAB, LENGTH))
    one, two = (find_circuit(board, repeats(), CircuitConfig(seed=5)) for _ in range(2))
    assert one == two


def test_what_cannot_be():
    board = Board(planted_induction(VOCAB, LENGTH))
    with pytest.raises(DataError, match="3 pairs"):
        find_circuit(board, repeats(3))
    pairs = repeats(8)
    with pytest.raises(DataError, match="with and without"):
        find_circuit(board, pairs._replace(corrupt=pairs.clean))
    with pytest.raises(UsageError, match="keep"):
        CircuitConfig(keep=1.5)
    with pytest.raises(UsageError, match="resample, mean, zero"):
        CircuitConfig("nothing")
