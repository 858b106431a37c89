"""Scores of heads: closed forms, the planted model, and models of every kind."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import UsageError
from regard.look.head_scores import (
    best_heads,
    measure_rows,
    random_repeats,
    repeat_scores,
    score_heads,
)
from regard.look.hooks import HookedModel
from regard.look.logit_lens import head_outputs, value_norms
from regard.model.batch import Batch
from regard.model.presets import recurrent_seq2seq
from regard.model.recurrent import Recurrent
from tests.look.planted import forget_induction, planted_induction
from tests.properties.small_models import VOCAB, random_ids, small_kit


@pytest.mark.parametrize("start", [0, 1])
def test_scores_of_perfect_heads(start):
    n = 7
    size = start + 2 * n
    looks = {
        "previous": lambda i: i - 1,
        "duplicate": lambda i: i - n,
        "induction": lambda i: i - n + 1,
    }
    pattern = torch.zeros(1, 3, size, size)
    for head, look in enumerate(looks.values()):
        for i in range(size):
            pattern[0, head, i, look(i) if look(i) >= 0 else i] = 1
    found = repeat_scores(pattern, n, start)
    for head, name in enumerate(looks):
        wanted = [0.0] * 3
        wanted[head] = 1.0
        assert found[name].tolist() == wanted


def test_entropy_and_distance():
    hooked, at = HookedModel(planted_induction()), "decoder.blocks.0.attn"
    even = measure_rows(hooked, at, torch.full((1, 1, 4, 4), 0.25), None)
    own = measure_rows(hooked, at, torch.eye(4)[None, None], None)
    torch.testing.assert_close(even["entropy"], torch.full((1, 1, 4), math.log(4)))
    assert own["entropy"].abs().max() == 0 and own["distance"].abs().max() == 0
    assert even["distance"][0, 0].tolist() == [1.5, 1.0, 1.0, 1.5]


# The planted model ------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "previous", "induction"), [(1, 0, 0), (4, 1, 2), (6, 5, 0)])
@pytest.mark.parametrize("idle", [0.0, 0.02])
def test_exactly_the_planted_heads_are_found(heads, previous, induction, idle):
    model = planted_induction(24, 48, heads, previous, induction, idle)
    found = score_heads(HookedModel(model), random_repeats(range(24), 20))
    assert len(found) == 2 * heads
    for kind, place in (("previous", (0, previous)), ("induction", (1, induction))):
        best, *others = best_heads(found, kind)
        assert (best.block, best.head) == place and getattr(best, kind) > 0.9
        assert all(getattr(other, kind) < 0.3 for other in others)
    assert all(s.duplicate < 0.3 for s in found)


def test_a_model_that_forgot_has_no_induction_head():
    found = score_heads(
        HookedModel(forget_induction(planted_induction())), random_repeats(range(24), 20)
    )
    assert max(s.induction for s in found) < 0.3
    assert best_heads(found, "previous", 1)[0].previous > 0.9


@torch.no_grad()
def test_the_planted_model_predicts_the_second_half():
    repeats = random_repeats(range(24), 20)
    ids = repeats.batch.inputs
    p = planted_induction()(repeats.batch).softmax(-1)
    assert p[:, 20:39].gather(-1, ids[:, 21:40, None]).min() > 0.9
    p = forget_induction(planted_induction())(repeats.batch).softmax(-1)
    assert p[:, 20:39].gather(-1, ids[:, 21:40, None]).max() < 0.5


# Against what the model itself computes ---------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bert"])
@torch.no_grad()
def test_measures_against_the_explicit_pattern(name):
    kit = small_kit(name)
    pair = kit.model.target is not None
    repeats = random_repeats(range(5, VOCAB), 8, 3, first=[1], begin=0 if pair else None)
    found = score_heads(kit.hooked, repeats)
    _, seen = kit.hooked.run(repeats.batch, ["*.pattern", "*.z"])
    for s in found:
        pattern = seen[f"{s.layer}.pattern"][:, s.head]
        n, first = 8, 1
        if s.layer.endswith("cross"):
            assert s.previous is s.duplicate is s.induction is s.distance is None
        else:
            every = range(first, first + 2 * n)
            cells = [pattern[:, i, i - 1].mean() for i in every if i > first]
            assert s.previous == pytest.approx(float(sum(cells) / len(cells)), abs=1e-5)
            cells = [pattern[:, i, i - n].mean() for i in every if i >= first + n]
            assert s.duplicate == pytest.approx(float(sum(cells) / n), abs=1e-5)
            cells = [pattern[:, i, i - n + 1].mean() for i in every if i >= first + n]
            assert s.induction == pytest.approx(float(sum(cells) / n), abs=1e-5)
        entropy = -(pattern * pattern.clamp(min=1e-30).log()).sum(-1).mean()
        assert s.entropy == pytest.approx(float(entropy), abs=1e-4)
        out = head_outputs(kit.hooked, seen[f"{s.layer}.z"], s.layer)[:, :, s.head]
        assert s.norm == pytest.approx(float(out.norm(dim=-1).mean()), rel=1e-4)


def test_additive_attention_has_one_head():
    pair = Recurrent.fresh(recurrent_seq2seq("gru", 8, 8, 1, 20, "additive"))
    (found,) = score_heads(HookedModel(pair), random_repeats(range(20), 5, begin=0))
    assert found.name == "0.0 (decoder cross)" and found.norm is None and found.entropy > 0


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_values_weigh_attention(name):
    kit = small_kit(name)
    _, seen = kit.hooked.run(Batch(random_ids(6, 1)[None]), "decoder.blocks.1.attn.*")
    pattern, v = (seen[f"decoder.blocks.1.attn.{place}"] for place in ("pattern", "v"))
    attention = kit.model.decoder.blocks[1].attn
    found = pattern * value_norms(attention, v)[:, :, None]
    weights = attention.o.weight.unflatten(1, (4, 8))
    for head, i, j in ((0, 3, 1), (1, 2, 2), (3, 5, 0)):
        value = v[0, j, head * attention.groups // 4]
        wanted = (pattern[0, head, i, j] * weights[:, head] @ value).norm()
        assert float(found[0, head, i, j]) == pytest.approx(float(wanted), rel=1e-4)


def test_sorting():
    kit = small_kit("t5")
    found = score_heads(kit.hooked, random_repeats(range(5, VOCAB), 8, first=[], begin=0))
    values = [s.entropy for s in best_heads(found, "entropy")]
    assert values == sorted(values) and len(values) == 24
    assert len(best_heads(found, "induction")) == 16  # those of cross-attention have none
    assert len(best_heads(found, "norm", 3)) == 3
    with pytest.raises(UsageError, match="one of previous, duplicate"):
        best_heads(found, "size")
