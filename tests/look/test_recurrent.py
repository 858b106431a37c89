"""Looking into recurrent models: what works, works inside the recurrence; the rest says why not."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UsageError
from regard.kit import Kit
from regard.look.attention_maps import collect_maps
from regard.look.circuit_search import CircuitConfig, edge_scores, find_circuit
from regard.look.edits import mean, patch, zero
from regard.look.head_scores import random_repeats, repeats_for, score_heads
from regard.look.hooks import HookedModel
from regard.look.ioi_task import HeadClasses
from regard.look.logit_lens import copy_score, direct_attribution, lens_scores
from regard.look.patching import (
    Goal,
    Pairs,
    Site,
    head_sites,
    mlp_sites,
    patch_paths,
    patch_sites,
)
from regard.look.probing import choose_taps
from regard.model.batch import Batch
from regard.model.presets import recurrent_lm, recurrent_seq2seq
from regard.model.recurrent import model_class
from tests.properties.small_models import randomise

CLEAN = torch.tensor([[4, 9, 2, 7], [4, 9, 2, 8]])
CORRUPT = torch.tensor([[4, 3, 2, 7], [4, 1, 2, 8]])
GOAL = Goal(torch.tensor([3, 4]), torch.tensor([5, 6]))
PAIRS = Pairs(Batch(CLEAN), Batch(CORRUPT), GOAL)
MANY = Pairs(PAIRS.clean.tile(3), PAIRS.corrupt.tile(3), GOAL.rows(3))
TOP = "decoder.cells.1.state"


def make(cell="lstm"):
    """Two layers of random weights in float64."""
    config = recurrent_lm(cell, 12, 16, 2, 30)
    model = model_class(config).fresh(config)
    randomise(model)
    return HookedModel(model.double())


@torch.no_grad()
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_states_are_read_as_torch_computes_them(cell):
    hooked = make(cell)
    logits, seen = hooked.run(Batch(CLEAN), "*.state")
    torch.testing.assert_close(logits, hooked.model(Batch(CLEAN)))  # fused, nobody listens
    x = hooked.model.front.tokens(CLEAN)
    for layer in hooked.model.decoder.cells:
        kind = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell]
        theirs = kind(x.shape[2], 16, batch_first=True).double()
        theirs.load_state_dict(layer.state_dict())
        x = theirs(x)[0]
    torch.testing.assert_close(seen[TOP], x)


@torch.no_grad()
def test_an_edit_acts_inside_the_recurrence():
    hooked = make()
    edits = {"decoder.cells.0.*": zero(position=1)}
    logits, seen = hooked.run(Batch(CLEAN), "decoder.cells.0.*", edits)
    assert all(not x[:, 1].any() for x in seen.values())
    plain = hooked.run(Batch(CLEAN))[0]
    torch.testing.assert_close(logits[:, 0], plain[:, 0])
    # h and c are zero after the second token: as if the text began after it, in this layer
    short, later = hooked.run(Batch(CLEAN[:, 2:]), "decoder.cells.0.state")
    torch.testing.assert_close(seen["decoder.cells.0.state"][:, 2:], later["decoder.cells.0.state"])
    assert (logits[:, 2:] - plain[:, 2:]).abs().min() > 1e-6


def test_a_run_that_is_not_over_has_no_mean():
    hooked = make()
    with pytest.raises(UsageError, match="later steps are not known yet"):
        hooked.run(Batch(CLEAN), (), {TOP: mean()})
    _, seen = hooked.run(Batch(CLEAN), TOP)
    _, held = hooked.run(Batch(CLEAN), TOP, {TOP: mean(seen[TOP])})
    torch.testing.assert_close(held[TOP], seen[TOP].mean((0, 1)).expand_as(held[TOP]))


@pytest.mark.parametrize("tap", ["decoder.cells.0.forget", TOP, "logits"])
def test_neurons_that_are_not_there(tap):
    with pytest.raises(UsageError, match=r"neuron \[30\]"):
        make().run(Batch(CLEAN), (), {tap: zero(neuron=30)})


def test_patching_states():
    hooked = make()
    places = [Site(TOP, None, n) for n in range(4)]
    found = patch_sites(hooked, PAIRS, places).mean
    assert float(found[0]) == pytest.approx(0, abs=1e-9)  # the first tokens are the same
    assert float(found[3]) == pytest.approx(1)  # the last state says it all
    assert 1e-6 < abs(float(found[1])) and abs(float(found[1] - 1)) > 1e-6
    with torch.no_grad():
        _, seen = hooked.run(PAIRS.clean, TOP)
        logits, _ = hooked.run(PAIRS.corrupt, (), {TOP: patch(seen[TOP], position=1)})
        clean, corrupt = (GOAL(hooked.run(b)[0], b).mean() for b in PAIRS[:2])
        wanted = (GOAL(logits, PAIRS.corrupt).mean() - corrupt) / (clean - corrupt)
    assert float(found[1]) == pytest.approx(float(wanted))


def test_states_stand_for_blocks_in_probes():
    assert choose_taps(Kit(make().model)) == ["decoder.embed", "decoder.cells.0.state", TOP]


@pytest.mark.parametrize(
    "ask",
    [
        lambda b: lens_scores(b, PAIRS.clean),
        lambda b: direct_attribution(b, PAIRS.clean, GOAL),
        lambda b: copy_score(b, 0, 0, PAIRS.clean),
        lambda b: score_heads(b, repeats_for(Kit(b.model))),
        lambda b: patch_sites(b, PAIRS, head_sites(b)),
        lambda b: patch_sites(b, PAIRS, mlp_sites(b)),
        lambda b: patch_paths(b, PAIRS, head_sites(b)),
        lambda b: edge_scores(b, PAIRS),
        lambda b: find_circuit(b, MANY, CircuitConfig()),
        lambda b: collect_maps(b, Batch(CLEAN[:1]), {"text": list("abcd")}),
        lambda b: HeadClasses(b, PAIRS, repeats_for(Kit(b.model))),
        lambda b: b.run(PAIRS.clean, "*.attn.z"),
        lambda b: b.run(PAIRS.clean, (), {TOP: zero(head=0)}),
        lambda b: b.run(PAIRS.clean, (), {TOP: patch(torch.zeros(2, 5, 16))}),
    ],
)
def test_what_a_recurrent_model_has_not(ask):
    hooked = make()
    with pytest.raises(UsageError):
        ask(hooked)
    assert not any(tap.fn for tap in hooked.taps.values())


def test_a_recurrent_translator_has_one_attention():
    config = recurrent_seq2seq("gru", 12, 12, 1, 30, "additive")
    hooked = HookedModel(model_class(config).fresh(config))
    batch = Batch(CLEAN[:1], torch.tensor([[1, 5]]))
    (only,) = score_heads(hooked, random_repeats(range(30), 5, begin=0))
    assert only.layer == "decoder.cross" and only.entropy > 0 and only.induction is None
    view = collect_maps(hooked, batch, {"source": list("abcd"), "target": list("ab")})
    assert view.stack(None).small.shape[:2] == (1, 1)
    with pytest.raises(UsageError):
        lens_scores(hooked, batch)
