"""Patching against closed forms: whole streams, single sites, paths that are sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.errors import UsageError
from regard.look.hooks import HookedModel
from regard.look.patching import (
    Goal,
    Pairs,
    Site,
    ablation_values,
    head_sites,
    last_columns,
    last_stream,
    measure_sets,
    mlp_sites,
    patch_paths,
    patch_sites,
    template_mean,
)
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from tests.properties.small_models import randomise

VOCAB, LENGTH = 23, 6


def make_hooked(config=None, dtype=torch.float64):
    model = Model(config or presets.gpt2(16, 2, 4, VOCAB, 12)).eval()
    randomise(model)
    return HookedModel(model.to(dtype))


def make_pairs(count=3, target=False, seed=0):
    dice = torch.Generator().manual_seed(seed)

    def ids():
        return torch.randint(3, VOCAB, (count, LENGTH), generator=dice)

    clean, corrupt = ids(), ids()
    goal = Goal(torch.arange(3, 3 + count), torch.arange(10, 10 + count))
    if target:
        written = ids()
        return Pairs(Batch(clean, written), Batch(corrupt, written), goal)
    return Pairs(Batch(clean), Batch(corrupt), goal)


CONFIGS = {
    "gpt2": presets.gpt2(16, 2, 4, VOCAB, 12),
    "llama": presets.llama(16, 2, 4, 2, 24, VOCAB, 12),
    "bert": presets.bert(16, 2, 4, VOCAB, 12),
    "transformer": presets.transformer(16, 2, 4, VOCAB),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_whole_stream_is_the_other_run(name):
    hooked = make_hooked(CONFIGS[name])
    pairs = make_pairs(target=name == "transformer")
    stream = last_stream(hooked)
    whole = patch_sites(hooked, pairs, [Site(stream)])
    torch.testing.assert_close(whole.mean, torch.ones(1, dtype=torch.float64))
    torch.testing.assert_close(whole.effect.mean(), torch.tensor(1.0, dtype=torch.float64))


def test_sites_are_what_edits_do():
    from regard.look.edits import patch

    hooked, pairs = make_hooked(), make_pairs()
    sites = [*head_sites(hooked), *mlp_sites(hooked), Site("decoder.blocks.1.resid_pre", None, 2)]
    sites += [Site("decoder.blocks.0.attn.z", 3, 4)]
    found = patch_sites(hooked, pairs, sites, rows=7)  # two or three sets at a time
    with torch.no_grad():
        _, clean = hooked.run(pairs.clean, [site.tap for site in sites])
        for site, effect in zip(sites, found.effect, strict=True):
            edit = patch(clean[site.tap], head=site.head, position=site.position)
            logits, _ = hooked.run(pairs.corrupt, (), {site.tap: edit})
            goal = pairs.goal(logits, pairs.corrupt)
            wanted = (goal - found.corrupt) / (found.clean - found.corrupt).mean()
            torch.testing.assert_close(effect, wanted)
    assert (found.mean.abs() > 1e-3).any()


def test_sets_of_sites_act_together():
    from regard.look.edits import zero

    hooked, pairs = make_hooked(), make_pairs()
    sites = head_sites(hooked)
    chosen = torch.zeros(2, len(sites), dtype=torch.bool)
    chosen[0, [0, 2, 5]] = True
    fills = ablation_values(hooked, sites, "zero", pairs.corrupt)
    found = measure_sets(hooked, pairs.clean, pairs.goal, sites, chosen, fills)
    edits = {
        "decoder.blocks.0.attn.z": zero(head=[0, 2]),
        "decoder.blocks.1.attn.z": zero(head=1),
    }
    with torch.no_grad():
        off, _ = hooked.run(pairs.clean, (), edits)
        on, _ = hooked.run(pairs.clean)
    torch.testing.assert_close(found[0], pairs.goal(off, pairs.clean))
    torch.testing.assert_close(found[1], pairs.goal(on, pairs.clean))


def test_what_an_ablation_puts_in_place():
    hooked, pairs = make_hooked(), make_pairs()
    tap = "decoder.blocks.0.attn.z"
    with torch.no_grad():
        _, seen = hooked.run(pairs.corrupt, tap)
    assert ablation_values(hooked, [Site(tap, 1)], "resample", pairs.corrupt)[tap].equal(seen[tap])
    mean = ablation_values(hooked, [Site(tap, 1)], "mean", pairs.corrupt)[tap]
    torch.testing.assert_close(mean, seen[tap].mean(0, keepdim=True))
    mask = torch.ones(3, LENGTH, dtype=torch.bool)
    mask[0, 4:] = False
    some = template_mean(seen[tap], tap, replace(pairs.corrupt, mask=mask))
    torch.testing.assert_close(some[0, :4], seen[tap][:, :4].mean(0))
    torch.testing.assert_close(some[0, 4:], seen[tap][1:, 4:].mean(0))
    with pytest.raises(UsageError, match="resample, mean, zero"):
        ablation_values(hooked, [Site(tap)], "nothing", pairs.corrupt)


# Paths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_direct_path_of_a_head_is_what_it_writes(name):
    hooked, pairs = make_hooked(CONFIGS[name]), make_pairs()
    stream, sites = last_stream(hooked), head_sites(hooked)
    found = patch_paths(hooked, pairs, sites, freeze_mlps=True)
    from regard.look.edits import patch

    with torch.no_grad():
        _, old = hooked.run(pairs.clean, ["*.attn.z", stream])
        _, new = hooked.run(pairs.corrupt, "*.attn.z")
        for site, effect in zip(sites, found.effect, strict=True):
            attn = hooked.model.get_submodule(site.tap.rpartition(".")[0])
            part = attn.o.weight.split(attn.width, 1)[site.head]  # (D, K)
            change = (new[site.tap] - old[site.tap])[:, :, site.head] @ part.T
            logits, _ = hooked.run(pairs.clean, (), {stream: patch(old[stream] + change)})
            goal = pairs.goal(logits, pairs.clean)
            wanted = (goal - found.clean) / (found.corrupt - found.clean).mean()
            torch.testing.assert_close(effect, wanted)


def test_a_sender_that_is_the_same_sends_nothing():
    hooked, pairs = make_hooked(), make_pairs()
    ids = pairs.clean.inputs.clone()
    ids[:, -1] = pairs.corrupt.inputs[:, -1]  # other tokens at the end alone
    pairs = pairs._replace(corrupt=Batch(ids))
    early = [Site("decoder.blocks.0.attn.z", head, 2) for head in range(4)]
    found = patch_paths(hooked, pairs, early, [Site("decoder.blocks.1.attn.k", 1)])
    assert found.effect.abs().max() < 1e-12


def test_a_path_ends_at_its_receivers():
    hooked, pairs = make_hooked(), make_pairs()
    senders = head_sites(hooked)[:4]  # block 0
    receivers = [Site("decoder.blocks.1.attn.q", 2), Site("decoder.blocks.1.attn.v", 0)]
    found = patch_paths(hooked, pairs, senders, receivers, freeze_mlps=True)
    assert (found.mean.abs() > 1e-4).any()
    later = patch_paths(hooked, pairs, head_sites(hooked)[4:], receivers)
    assert later.effect.abs().max() < 1e-12  # block 1 speaks to no head of its own
    # What the receivers write is the only change: with their output held, nothing is left.
    with torch.no_grad():
        hooked.model.decoder.blocks[1].attn.o.weight.zero_()
    assert patch_paths(hooked, pairs, senders, receivers).effect.abs().max() < 1e-12


def test_pairs_must_differ():
    hooked, pairs = make_hooked(), make_pairs()
    with pytest.raises(UsageError, match="alike"):
        patch_sites(hooked, pairs._replace(corrupt=pairs.clean), head_sites(hooked))


def test_paths_of_recurrent_models():
    from regard.model.presets import recurrent_lm
    from regard.model.recurrent import Recurrent

    with pytest.raises(UsageError, match="recurrent"):
        last_stream(HookedModel(Recurrent(recurrent_lm("lstm", 8, 8, 1, VOCAB))))


# Goals --------------------------------------------------------------------------------------------


def test_columns_of_either_padding():
    mask = torch.tensor([[True, True, False], [False, True, True], [True, False, False]])
    assert last_columns(Batch(torch.zeros(3, 3).long(), mask=mask)).tolist() == [1, 2, 0]
    assert last_columns(Batch(torch.zeros(2, 4).long())).tolist() == [3, 3]


def test_a_logit_a_difference_and_a_logarithm():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, True, False], [True, True, True]])
    batch = Batch(torch.zeros(2, 3).long(), mask=mask)
    good, bad = torch.tensor([4, 0]), torch.tensor([1, 2])
    alone = torch.stack((logits[0, 1, 4], logits[1, 2, 0]))
    other = torch.stack((logits[0, 1, 1], logits[1, 2, 2]))
    torch.testing.assert_close(Goal(good)(logits, batch), alone)
    torch.testing.assert_close(Goal(good, bad)(logits, batch), alone - other)
    logs = Goal(good, bad, kind="logprob")(logits, batch)
    torch.testing.assert_close(logs, alone - other)  # what is left of both cancels
    there = Goal(good, at=torch.tensor([0, 0]))(logits, batch)
    torch.testing.assert_close(there, torch.stack((logits[0, 0, 4], logits[1, 0, 0])))
    classes = Goal(good)(logits[:, 0], batch)
    torch.testing.assert_close(classes, there)


def test_copies_of_one_row():
    goal = Goal(torch.tensor([3]), torch.tensor([1])).rows(4)
    assert goal.good.tolist() == [3] * 4 and goal.bad.tolist() == [1] * 4 and goal.at is None
