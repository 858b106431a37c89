"""Classes of heads: what is measured of each is what patching by hand gives."""

from __future__ import annotations

import pytest
import torch

from regard.look import ioi_task
from regard.look.edits import patch
from regard.look.head_scores import random_repeats
from regard.look.hooks import HookedModel
from regard.look.ioi_task import HeadClasses, direct_estimates
from regard.look.patching import Goal, Pairs, ablation_values, patch_paths
from regard.model.batch import Batch
from tests.properties.small_models import small_kit


@pytest.fixture
def search(monkeypatch):
    """Two blocks of random weights, where every head looks everywhere and every effect counts."""
    monkeypatch.setattr(ioi_task, "MIN_ATTENTION", 0.0)
    monkeypatch.setattr(ioi_task, "MIN_EFFECT", 0.0)
    hooked = HookedModel(small_kit("gpt2").model.double())
    clean = torch.tensor([[9, 3, 8, 4, 7, 3, 6], [9, 5, 8, 2, 7, 2, 6], [1, 4, 8, 3, 7, 4, 6]])
    corrupt = clean.clone()
    corrupt[:, [1, 3, 5]] = torch.tensor([[10, 11, 12], [12, 13, 10], [11, 12, 13]])
    goal = Goal(torch.tensor([4, 5, 3]), torch.tensor([3, 2, 4]))
    pairs = Pairs(Batch(clean), Batch(corrupt), goal, torch.tensor([0, 1, 0]))
    return HeadClasses(hooked, pairs, random_repeats(range(20), 8))


def test_where_heads_look(search):
    _, seen = search.hooked.run(search.pairs.clean, "decoder.blocks.1.attn.pattern")
    pattern = seen["decoder.blocks.1.attn.pattern"]  # IO at 3, 1, 3; S1 at 1, 3, 1; S2 at 5
    io = torch.stack([pattern[0, :, 6, 3], pattern[1, :, 6, 1], pattern[2, :, 6, 3]]).mean(0)
    after = torch.stack([pattern[0, :, 5, 2], pattern[1, :, 5, 4], pattern[2, :, 5, 2]]).mean(0)
    heads = [n for n, site in enumerate(search.sites) if ".1." in site.tap]
    torch.testing.assert_close(search.looks["end → io"][heads], io)
    torch.testing.assert_close(search.looks["s2 → s1+1"][heads], after)


@torch.no_grad()
def test_movers_and_their_backups(search):
    direct = patch_paths(search.hooked, search.pairs, search.sites).mean
    movers = {n for n, x in enumerate(direct.tolist()) if x >= 0}
    assert set(search.movers) == movers and 0 < len(movers) < len(search.sites)
    order = [float(direct[n]) for n in search.movers]
    assert order == sorted(order, reverse=True)
    # a head of the last block reaches the end directly or not at all
    hooked, pairs = search.hooked, search.pairs
    last = [n for n in range(len(search.sites)) if ".1." in search.sites[n].tap and n not in movers]
    _, other = hooked.run(pairs.corrupt, "*.z")
    edits = {}
    for tap in {search.sites[n].tap for n in movers}:
        mine = [s.head for n, s in enumerate(search.sites) if n in movers and s.tap == tap]
        means = other[tap].clone()  # of each row's template, at each position
        means[[0, 2]] = means[[0, 2]].mean(0)
        edits[tap] = [patch(means, head=mine)]
    before = pairs.goal(hooked.run(pairs.clean, (), edits)[0], pairs.clean)
    _, other = hooked.run(pairs.corrupt, "*.z", edits)
    found = search.backup_effects()
    assert last
    for n in last:
        tap, head = search.sites[n].tap, search.sites[n].head
        added = {**edits, tap: [*edits.get(tap, []), patch(other[tap], head=head)]}
        after = pairs.goal(hooked.run(pairs.clean, (), added)[0], pairs.clean)
        wanted = float((before - after).mean()) / search.gap
        grown = wanted - float(direct[n]) >= 0
        assert (n in found) == (grown and wanted >= 0)
        assert n not in found or found[n] == pytest.approx(wanted, abs=1e-9)


@torch.no_grad()
def test_padding_is_in_no_mean(search):
    sites, ids = search.sites[:2], search.pairs.corrupt.ids.clone()
    real = torch.ones_like(ids, dtype=torch.bool)
    real[0, 5:] = False
    values = []
    for padding in (0, 15):
        ids[0, 5:] = padding
        batch = Batch(ids.clone(), mask=real)
        templates = search.pairs.templates
        values += ablation_values(search.hooked, sites, "mean", batch, templates).values()
    torch.testing.assert_close(*values)


CLASSES = "name movers", "negative name movers", "previous token", "induction", "no class"


def test_the_classes(search):
    heads = search.find(top=100)
    made = {name: [h for h in heads if h.role == name] for name in CLASSES}
    assert all(made["induction"][n].score for n in range(2)) and not made["no class"]
    assert all((h.effect or 0) >= 0 for h in made["name movers"])
    assert all((h.effect or 0) <= 0 for h in made["negative name movers"])
    assert len(made["previous token"]) == len(search.sites)
    sizes = [abs(h.effect or 0) for h in heads]
    assert sizes == sorted(sizes, reverse=True) and max(sizes) > 0.1
    assert not any(tap.fn for tap in search.hooked.taps.values())


def test_a_strong_head_that_looks_nowhere_is_listed_too(search, monkeypatch):
    """The head with the largest direct effect is listed, whether it looks at IO or not."""
    monkeypatch.setattr(ioi_task, "MIN_ATTENTION", 2.0)  # no head looks anywhere
    direct = patch_paths(search.hooked, search.pairs, search.sites).mean
    heads = search.find(top=3)
    assert len(heads) == 3 and {head.role for head in heads} == {"no class"}
    wanted = [float(direct[n]) for n in direct.abs().argsort(descending=True)[:3]]
    assert [head.effect for head in heads] == pytest.approx(wanted)


@torch.no_grad()
def test_estimates_of_direct_effects_hold_mlps(search):
    wanted = patch_paths(search.hooked, search.pairs, search.sites, freeze_mlps=True).mean
    found = direct_estimates(search.hooked, search.pairs, search.sites) / search.gap
    torch.testing.assert_close(found, wanted)
