"""A later token changes no earlier output by one bit (MISSION #34): fused, explicit, cached."""

from __future__ import annotations

import pytest
import torch

from tests.properties.small_models import DECODERS, VOCAB, WRITERS, Example, example, run_alone

LENGTH = 37
on_writers = pytest.mark.parametrize("every_preset", WRITERS, indirect=True)


def changed_at(one, place):
    """The example with another token at `place` of what the decoder reads."""
    ids = one.ids.clone()
    ids[place] = (ids[place] + 1) % VOCAB
    return Example(ids) if one.target is None else Example(one.inputs, ids)


def explicit(kit, one):
    """Logits with a listener on every pattern, so that no attention is fused."""
    target = None if one.target is None else one.target[None]
    output, seen = kit.run(one.inputs[None], target, taps="*.pattern")
    assert seen
    return output.logits[0]


def cached(kit, one):
    """Logits fed to a cache in three calls."""
    cache, found = kit.cache(1, LENGTH), []
    for part in one.ids.split([10, 1, 26]):
        pair = (part[None], None) if one.target is None else (one.inputs[None], part[None])
        found.append(kit.logits(*pair, cache=cache)[0])
    return torch.cat(found)


def strict(kit, one):
    return run_alone(kit, one, strict=True)


@on_writers
@pytest.mark.parametrize("run", [run_alone, explicit, cached, strict])
def test_later_tokens_change_nothing_earlier(every_preset, run):
    one = example(every_preset, LENGTH, 1, 12)
    before = run(every_preset, one)
    for place in (0, 1, 10, 11, 31, 32, LENGTH - 1):
        after = run(every_preset, changed_at(one, place))
        assert torch.equal(before[:place], after[:place])
        assert not torch.equal(before[place], after[place])


@on_writers
def test_gradient_of_an_output_reaches_no_later_token(every_preset):
    """The same statement about derivatives: d output[t] / d input[s] is zero exactly if s > t."""
    kit, model = every_preset, every_preset.model
    one = example(kit, 12, 1, 9)
    held = []

    def keep(x):
        held.append(x.detach().requires_grad_())
        return held[-1]

    model.decoder.at.embed.fn = keep
    target = None if one.target is None else one.target[None]
    logits = model(kit.batch(one.inputs[None], target))
    (slope,) = torch.autograd.grad(logits[0, 6].square().sum(), held)
    reached = slope[0].abs().sum(-1) > 0
    assert not reached[7:].any() and reached[6]
    assert reached[:7].all() or kit.model.config.decoder.block.window is not None


@pytest.mark.parametrize("every_preset", ["bert"], indirect=True)
def test_an_encoder_sees_later_tokens(every_preset):
    """The control: what is not causal is seen to change."""
    one = example(every_preset, 9, 1)
    before, after = (run_alone(every_preset, x) for x in (one, changed_at(one, 8)))
    assert (before != after).any(-1).all()


@pytest.mark.parametrize("every_preset", ["window"], indirect=True)
def test_a_window_forgets_what_lies_behind_it(every_preset):
    """Two blocks of window 5 see 4 + 4 tokens back, and not one more."""
    one = example(every_preset, LENGTH, 1)
    before, after = (run_alone(every_preset, x) for x in (one, changed_at(one, 10)))
    differs = (before != after).any(-1)
    assert differs.nonzero().flatten().tolist() == list(range(10, 10 + 8 + 1))


@pytest.mark.parametrize("every_preset", DECODERS, indirect=True)
def test_documents_of_a_packed_row_do_not_see_each_other(every_preset):
    ids = example(every_preset, 20, 1).ids[None]
    documents = (torch.arange(20)[None] >= 8).long()
    other = ids.clone()
    other[0, 3] = (ids[0, 3] + 1) % VOCAB
    before = every_preset.logits(ids, documents=documents)[0]
    after = every_preset.logits(other, documents=documents)[0]
    assert torch.equal(before[8:], after[8:]) and not torch.equal(before[3], after[3])
