"""Rows rebuilt from queries and keys against the pattern that attention itself computes."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UsageError
from regard.look.attention_patterns import attention_names, patterns
from regard.look.hooks import HookedModel
from regard.model.batch import Batch
from regard.model.presets import recurrent_lm, recurrent_seq2seq
from regard.model.recurrent import Recurrent
from tests.properties.small_models import EVERY, example, random_ids, small_kit

T, S = 9, 7


def left_and_right(length):
    """Two rows, one padded on either side."""
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[0, -3:] = False
    mask[1, :2] = False
    return mask


def batches(kit):
    """Plain, padded on either side, packed."""
    one = example(kit, T, 1, S)
    target = None if one.target is None else one.target[None]
    yield Batch(one.inputs[None], target)
    if kit.model.config.front.kind != "text":
        return
    ids = torch.stack([random_ids(T, 3), random_ids(T, 4)])
    source = torch.stack([random_ids(S, 5), random_ids(S, 6)])
    parts = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1, 1, 1]])
    if target is None:
        yield Batch(ids, mask=left_and_right(T))
        yield Batch(ids, documents=parts)
    else:
        yield Batch(source, ids, mask=left_and_right(T), source_mask=left_and_right(S))
        yield Batch(source, ids, documents=parts, source_documents=parts[:, :S])


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_rebuilt_patterns_are_those_of_the_run(name):
    kit = small_kit(name)
    for batch in batches(kit):
        found = patterns(kit.hooked, batch)
        _, seen = kit.hooked.run(batch, [f"*.{place}" for place in ("q", "k", "pattern")])
        assert list(found) == attention_names(kit.hooked)
        for path, pattern in found.items():
            expected = seen[f"{path}.pattern"]
            torch.testing.assert_close(pattern, expected, atol=1e-5, rtol=0)


def test_one_token():
    kit = small_kit("gpt2")
    single = patterns(kit.hooked, Batch(random_ids(1, 1)[None]))
    assert all(pattern.eq(1).all() for pattern in single.values())


def test_attention_stays_fused(monkeypatch):
    kit, asked = small_kit("llama"), []
    attention = kit.model.decoder.blocks[0].attn
    monkeypatch.setattr(attention, "fused", lambda *given: asked.append(1) or given[0])
    patterns(kit.hooked, Batch(random_ids(T, 1)[None]))
    assert asked == [1]


def test_additive_attention_gives_its_pattern():
    pair = Recurrent.fresh(recurrent_seq2seq("gru", 8, 8, 1, 20, "additive"))
    ids = torch.randint(20, (2, 5), generator=torch.Generator().manual_seed(0))
    (found,) = patterns(HookedModel(pair), Batch(ids, ids[:, :4])).items()
    assert found[0] == "decoder.cross" and found[1].shape == (2, 1, 4, 5)
    torch.testing.assert_close(found[1].sum(-1), torch.ones(2, 1, 4))


def test_what_cannot_be():
    batch = Batch(random_ids(T, 1)[None])
    lstm = HookedModel(Recurrent.fresh(recurrent_lm("lstm", 8, 8, 1, 20)))
    with pytest.raises(UsageError, match="without attention"):
        patterns(lstm, batch)
