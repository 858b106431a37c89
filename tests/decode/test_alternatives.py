"""Alternatives at a place of an answer."""

from __future__ import annotations

import pytest
import torch

from regard.decode.alternatives import alternatives, extend
from regard.decode.beam import BeamConfig
from regard.decode.loop import run_search
from regard.decode.sampling import Ends
from regard.model.batch import Batch
from tests.properties.small_models import WRITERS, example, small_kit
from tests.properties.threads import one_thread  # noqa: F401

LIMIT = 7


def given(name):
    kit = small_kit(name)
    one = example(kit, 4, 1, 6)
    target = None if one.target is None else one.target[None]
    return kit, kit.batch(one.inputs[None], target)


@torch.no_grad()
def log_probs(kit, batch, tokens):
    """Log-probabilities before each of the tokens, without a cache."""
    ids = torch.cat((batch.ids, torch.tensor([tokens])), 1)[:, :-1]
    whole = Batch(ids) if batch.target is None else Batch(batch.inputs, ids)
    return kit.model(whole)[0, batch.ids.shape[1] - 1 :].log_softmax(-1)


@torch.no_grad()
def find(kit, batch, tokens, places, limit=LIMIT, how=None, ends=None, count=5):
    """Alternatives by the model, in ordinary mode."""
    log = kit.model(extend(batch, [tokens]))[0, batch.ids.shape[1] - 1 :].log_softmax(-1)
    return alternatives(kit, batch, log, tokens, places, limit, count, how, ends or Ends())


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("how", [None, BeamConfig(3)])
def test_each_takes_the_next_best_token_at_the_place(name, how):
    kit, batch = given(name)
    best = run_search(kit.model, batch, LIMIT, None)[0][0]
    log = log_probs(kit, batch, best.tokens)
    places = (0, 3, LIMIT - 1)
    together = find(kit, batch, best.tokens, places, how=how, count=4)
    for at, found in zip(places, together, strict=True):
        (alone,) = find(kit, batch, best.tokens, [at], how=how, count=4)
        assert [h.tokens for h in alone] == [h.tokens for h in found]
        assert [h.tokens[at] for h in found] == log[at].topk(4).indices.tolist()
        for h in found:
            assert h.tokens[:at] == best.tokens[:at] and len(h.tokens) == LIMIT
            own = log_probs(kit, batch, h.tokens)
            each = [float(own[n, token]) for n, token in enumerate(h.tokens)]
            assert h.logprobs == pytest.approx(each, abs=2e-4)
            assert h.logprob == pytest.approx(sum(each), abs=2e-4)
    if how is None:
        assert found[0].tokens == best.tokens  # the likeliest one is what greedy had


def test_an_end_is_an_alternative_too():
    kit, batch = given("gpt2")
    best = run_search(kit.model, batch, LIMIT)[0][0]
    second = int(log_probs(kit, batch, best.tokens)[2].topk(2).indices[1])
    (found,) = find(kit, batch, best.tokens, [2], ends=Ends({second}), count=2)
    assert found[1].tokens == [*best.tokens[:2], second] and found[1].finished
    assert not found[0].finished or found[0].tokens[-1] == second
