"""Integrated gradients: closed forms, captum on transformers' GPT-2, and every kind of model."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from regard.data.statistics import ranks
from regard.errors import RegardWarning, ResourceError, UsageError
from regard.loading import load
from regard.look.attribution import (
    attention_row,
    deletion_and_insertion,
    follow_attention,
    integrate,
    integrated_gradients,
    mix_residual,
    random_areas,
    rollout,
    spearman,
)
from regard.look.hooks import HookedModel
from regard.look.masked_input import MaskedInput
from regard.look.patching import Goal
from regard.model.batch import Batch
from regard.model.precision import set_precision
from regard.model.presets import recurrent_lm, recurrent_seq2seq
from regard.model.recurrent import model_class
from tests.properties.small_models import EVERY, example, randomise, small_kit

WEIGHT = torch.tensor([1.5, -2.0, 0.25, 0.0], dtype=torch.float64)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


# Closed forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_linear_function_is_exact_for_any_number_of_steps(steps):
    x, base = numbers(1, 2, 3, 4), numbers(0.5, -1, 0, 9)
    found = integrate(lambda rows: rows @ WEIGHT + 3, x, base, steps)
    torch.testing.assert_close(found.scores, WEIGHT * (x - base))
    assert found.steps == steps and found.completeness_error < 1e-12
    assert found.value == pytest.approx(float(WEIGHT @ x) + 3)
    assert found.baseline_value == pytest.approx(float(WEIGHT @ base) + 3)


def test_a_product_is_shared_equally_and_what_is_not_used_gets_nothing():
    found = integrate(lambda x: x[:, 0] * x[:, 1], numbers(3, 5, 7), torch.zeros(3).double(), 3)
    torch.testing.assert_close(found.scores, numbers(7.5, 7.5, 0))


def test_what_is_missing_falls_with_the_square_of_the_steps():
    x, base = numbers(1, 2), numbers(0, 0)
    gaps = [
        integrate(
            lambda v: (v[:, 0] + v[:, 1]).exp(), x, base, steps, limit=steps
        ).completeness_error
        for steps in (10, 20, 40)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.02)
    assert gaps[1] / gaps[2] == pytest.approx(4, rel=0.02)


def test_two_ways_to_compute_the_same_have_the_same_scores():
    x, base = numbers(0.3, -2), numbers(1, 1)
    one = integrate(lambda v: (v[:, 0] + v[:, 1]) ** 2, x, base)
    other = integrate(lambda v: v[:, 0] ** 2 + 2 * v[:, 0] * v[:, 1] + v[:, 1] ** 2, x, base)
    torch.testing.assert_close(one.scores, other.scores)


def test_steps_are_doubled_until_little_is_missing():
    def steep(v):
        return torch.sigmoid(60 * (v[:, 0] - 0.31))

    found = integrate(steep, numbers(1), numbers(0), steps=2)
    assert found.steps > 2 and found.completeness_error <= 0.05
    with pytest.warns(RegardWarning, match="completeness"):
        found = integrate(steep, numbers(1), numbers(0), steps=2, limit=3)
    assert found.steps == 2 and found.completeness_error > 0.05


def test_chunks_change_nothing_and_shrink_where_memory_ends():
    sizes = []

    def greedy(v):
        sizes.append(len(v))
        if len(v) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return (v**3).sum(1)

    x, base = numbers(1, 2), numbers(0, 1)
    found = integrate(greedy, x, base, steps=20, rows=13)
    whole = integrate(lambda v: (v**3).sum(1), x, base, steps=20, rows=20)
    torch.testing.assert_close(found.scores, whole.scores)
    assert 13 in sizes and max(sizes[sizes.index(13) + 3 :]) <= 4
    with pytest.raises(ResourceError):
        integrate(lambda v: (_ for _ in ()).throw(MemoryError()), x, base)
    with pytest.raises(RuntimeError, match="another"):
        integrate(lambda v: (_ for _ in ()).throw(RuntimeError("another")), x, base)


# Models -----------------------------------------------------------------------------------------


def test_captum_agrees_on_gpt2_of_transformers(tmp_path):
    attr = pytest.importorskip("captum.attr")
    import transformers

    sizes = dict(
        n_embd=16,
        n_layer=2,
        n_head=2,
        vocab_size=50,
        n_positions=40,
        bos_token_id=1,
        eos_token_id=1,
    )
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    randomise(theirs)
    theirs.save_pretrained(tmp_path)
    kit = load(tmp_path)
    ids, good, bad = torch.tensor([[5, 17, 3, 41, 8, 8]]), 7, 30

    def function(embeddings):
        logits = theirs(inputs_embeds=embeddings).logits[:, -1]
        return logits[:, good] - logits[:, bad]

    x = theirs.transformer.wte(ids).detach()
    goal = Goal(torch.tensor([good]), torch.tensor([bad]))
    for token, base in (("zero", torch.zeros_like(x)), (9, None)):
        base = theirs.transformer.wte(torch.full_like(ids, 9)).detach() if base is None else base
        options = dict(n_steps=64, method="riemann_middle", return_convergence_delta=True)
        wanted, gap = attr.IntegratedGradients(function).attribute(x, base, **options)
        found = integrated_gradients(
            MaskedInput(kit.hooked, kit.batch(ids), goal, token, rows=5), 64, limit=64
        )
        torch.testing.assert_close(found.scores.float(), wanted[0].sum(-1), atol=1e-6, rtol=1e-4)
        size = abs(found.value - found.baseline_value)
        assert found.completeness_error == pytest.approx(abs(float(gap)) / size, abs=1e-4)
        assert found.value == pytest.approx(float(function(x).detach()), abs=1e-4)
        assert found.baseline_value == pytest.approx(float(function(base).detach()), abs=1e-4)
    wanted = attr.InputXGradient(function).attribute(x.requires_grad_())[0].sum(-1)
    found = integrated_gradients(MaskedInput(kit.hooked, kit.batch(ids), goal), 0)
    torch.testing.assert_close(found.scores.float(), wanted.detach(), atol=1e-6, rtol=1e-4)


def asked(kit, one):
    """A batch of one row and a goal."""
    batch = kit.batch(one.inputs[None], None if one.target is None else one.target[None])
    return batch, Goal(torch.tensor([3]), torch.tensor([5]))


@pytest.mark.parametrize("name", EVERY)
def test_every_model_is_explained_completely(name):
    kit = small_kit(name)
    kit.model.double()
    batch, goal = asked(kit, example(kit, 6, 1, 7))
    signal = batch.inputs.dtype != torch.long
    batch = Batch(batch.inputs.double(), batch.target) if signal else batch
    tokens = MaskedInput(kit.hooked, batch, goal, "zero" if signal else 2)
    found = integrated_gradients(tokens, steps=100)
    assert found.scores.shape == (tokens.width,) and found.completeness_error < 0.02
    with torch.no_grad():
        logits = kit.model(batch)
    assert found.value == pytest.approx(float(goal(logits, batch)[0]))
    weight = attention_row(tokens)
    assert weight.shape == found.scores.shape and float(weight.sum()) == pytest.approx(1)
    assert not any(tap.fn for tap in kit.hooked.taps.values())


def test_a_baseline_of_a_token_is_the_model_on_that_token():
    kit = small_kit("bert")
    batch, goal = asked(kit, example(kit, 6, 1, 7))
    found = integrated_gradients(MaskedInput(kit.hooked, batch, goal, 11), 0)
    others = Batch(torch.full_like(batch.inputs, 11))
    with torch.no_grad():
        assert found.baseline_value == pytest.approx(float(goal(kit.model(others), others)[0]))


def test_the_vector_zero_is_no_baseline_without_positions():
    """RMS norm of zero has a slope of 1/√eps: the way from there is all in the first steps."""
    kit = small_kit("llama")
    batch, goal = asked(kit, example(kit, 6, 1, 7))
    with pytest.warns(RegardWarning, match="another baseline"):
        integrated_gradients(MaskedInput(kit.hooked, batch, goal), steps=50, limit=100)


def test_padding_gets_nothing_and_changes_nothing():
    kit = small_kit("gpt2")
    goal = Goal(torch.tensor([3]))
    plain = integrated_gradients(
        MaskedInput(kit.hooked, Batch(torch.tensor([[4, 9, 2]])), goal), 20
    )
    mask = torch.tensor([[False, False, True, True, True]])
    padded = MaskedInput(kit.hooked, Batch(torch.tensor([[7, 7, 4, 9, 2]]), mask=mask), goal)
    found = integrated_gradients(padded, 20)
    assert padded.columns.tolist() == [2, 3, 4]
    torch.testing.assert_close(found.scores, plain.scores, atol=1e-4, rtol=1e-4)
    row = torch.tensor([attention_row(padded).sum()])
    torch.testing.assert_close(row, torch.ones(1).double())


def test_tokens_that_are_always_there_get_no_share():
    kit, goal = small_kit("gpt2"), Goal(torch.tensor([3]))
    batch = Batch(torch.tensor([[4, 9, 2, 7]]))
    tokens = MaskedInput(kit.hooked, batch, goal, 11, players=[1, 3])
    found = integrated_gradients(tokens)
    others = Batch(torch.tensor([[4, 11, 2, 11]]))
    with torch.no_grad():
        wanted = float(goal(kit.model(others), others)[0])
    assert found.baseline_value == pytest.approx(wanted, abs=1e-5)
    assert len(found.scores) == 2 and found.completeness_error < 0.01


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_recurrent_language_model(cell):
    config = recurrent_lm(cell, 12, 16, 2, 30)
    model = model_class(config).fresh(config)
    randomise(model)
    batch = Batch(torch.tensor([[4, 9, 2, 7]]))
    tokens = MaskedInput(HookedModel(model), batch, Goal(torch.tensor([3])))
    found = integrated_gradients(tokens)
    assert found.completeness_error < 0.01
    x = model.front.tokens(batch.inputs).detach().requires_grad_()
    out, _ = model.decoder(x, model.decoder.start(1))
    value = model.head(out)[0, -1, 3]
    value.backward()
    wanted = (x.grad * x).sum(-1)[0].detach()
    near = integrated_gradients(tokens, 0)
    torch.testing.assert_close(near.scores.float(), wanted, atol=1e-5, rtol=1e-4)
    with pytest.raises(UsageError, match="attention"):
        attention_row(tokens)


def test_a_recurrent_translator_with_attention():
    config = recurrent_seq2seq("gru", 12, 12, 1, 30, "additive")
    model = model_class(config).fresh(config)
    batch = Batch(torch.tensor([[4, 9, 2, 7]]), torch.tensor([[1, 5]]))
    tokens = MaskedInput(HookedModel(model), batch, Goal(torch.tensor([3])))
    found = integrated_gradients(tokens)
    assert found.scores.shape == (4,) and found.completeness_error < 0.01
    weight = attention_row(tokens)
    assert weight.shape == (4,) and float(weight.sum()) == pytest.approx(1)


def test_attention_is_read_where_the_goal_is():
    kit = small_kit("bert")
    batch = Batch(torch.tensor([[4, 9, 2, 7]]))
    _, seen = kit.run(batch.inputs, taps="*.attn.pattern")
    for at in (0, 2):
        wanted = torch.stack([p[0, :, at] for p in seen.values()]).mean((0, 1)).double()
        goal = Goal(torch.tensor([3]), at=torch.tensor([at]))
        torch.testing.assert_close(attention_row(MaskedInput(kit.hooked, batch, goal)), wanted)


def test_a_head_that_reads_the_last_token_is_explained_there():
    config = small_kit("llama").model.config
    kit = small_kit("llama", head=replace(config.head, size=3, tied=False, take="last"))
    batch = Batch(torch.tensor([[4, 9, 2, 7]]))
    _, seen = kit.run(batch.inputs, taps="*.attn.pattern")
    tokens = MaskedInput(kit.hooked, batch, Goal(torch.tensor([1])))
    wanted = torch.stack([p[0, :, 3] for p in seen.values()]).mean((0, 1)).double()
    torch.testing.assert_close(attention_row(tokens), wanted)
    wanted = rollout(mix_residual(list(seen.values())))[0, 3].double()
    torch.testing.assert_close(follow_attention(tokens), wanted)


def test_attention_is_followed_down_to_the_input():
    kit = small_kit("bert")
    batch = Batch(torch.tensor([[4, 9, 2, 7]]))
    _, seen = kit.run(batch.inputs, taps="*.attn.pattern")
    tokens = MaskedInput(
        kit.hooked, batch, Goal(torch.tensor([3]), at=torch.tensor([2])), players=[1, 3]
    )
    wanted = rollout(mix_residual(list(seen.values())))[0, 2, [1, 3]].double()
    torch.testing.assert_close(follow_attention(tokens), wanted)


def test_attention_is_followed_through_the_encoder_of_a_pair():
    """The goal's row over the source, times the rollout of the encoder."""
    kit = small_kit("t5")
    batch = Batch(torch.tensor([[4, 9, 2, 7, 5]]), torch.tensor([[1, 5, 3]]))
    tokens = MaskedInput(kit.hooked, batch, Goal(torch.tensor([3])), players=[0, 2, 3])
    _, seen = kit.run(
        batch.inputs, batch.target, taps=["encoder.*.attn.pattern", "*.cross.pattern"]
    )
    cross = torch.stack([x[0, :, -1].mean(0) for n, x in seen.items() if ".cross." in n]).mean(0)
    below = [x for n, x in seen.items() if n.startswith("encoder.")]
    wanted = (cross @ rollout(mix_residual(below))[0])[[0, 2, 3]].double()
    torch.testing.assert_close(follow_attention(tokens), wanted)


def test_what_cannot_be_explained():
    kit, goal = small_kit("gpt2"), Goal(torch.tensor([3]))
    one = Batch(torch.tensor([[4, 9]]))
    set_precision(kit.model, "int8")
    with pytest.raises(UsageError, match="packed int8"):
        integrated_gradients(MaskedInput(kit.hooked, one, goal))


# Faithfulness -------------------------------------------------------------------------------------


PARTS = torch.tensor([1.0, 5.0, 2.0]).double()


def additive(kept):
    return kept.double() @ PARTS + 10


def test_curves_in_the_order_of_scores():
    found = deletion_and_insertion(additive, torch.tensor([0.1, 0.9, 0.5]))
    assert found.deletion.tolist() == [18, 13, 11, 10]
    assert found.insertion.tolist() == [10, 15, 17, 18]
    assert found.deletion_area == pytest.approx((1 / 2 + 3 / 8 + 1 / 8) / 3)
    assert found.insertion_area == pytest.approx((5 / 8 + 7 / 8 + 1 / 2) / 3)
    worst = deletion_and_insertion(additive, -PARTS)
    assert worst.deletion_area > found.deletion_area
    assert worst.insertion_area < found.insertion_area


def test_a_goal_that_tokens_lower():
    """The direction stays: to remove what supports it most still makes the goal fall most."""
    found = deletion_and_insertion(lambda kept: -additive(kept), -PARTS)
    assert (
        found.deletion_area
        < deletion_and_insertion(lambda kept: -additive(kept), PARTS).deletion_area
    )


def test_random_orders_of_a_sum_reach_a_half():
    deletion, insertion = random_areas(additive, 3, orders=400)
    assert deletion == pytest.approx(0.5, abs=0.02) and insertion == pytest.approx(0.5, abs=0.02)
    assert random_areas(additive, 3, seed=2) == random_areas(additive, 3, seed=2)
    assert random_areas(additive, 3, seed=2) != random_areas(additive, 3, seed=3)


def test_no_difference_no_area():
    found = deletion_and_insertion(lambda kept: torch.ones(len(kept)), PARTS)
    assert math.isnan(found.deletion_area) and math.isnan(found.insertion_area)


def test_rank_correlation():
    stats = pytest.importorskip("scipy.stats")
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        a = torch.randint(0, 5, (12,), generator=generator).double()
        b = torch.randn(12, generator=generator).double()
        assert ranks(a.double().numpy()).tolist() == stats.rankdata(a.numpy()).tolist()
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a.numpy(), b.numpy()).statistic)
    assert spearman(PARTS, PARTS.exp()) == pytest.approx(1)
    assert math.isnan(spearman(PARTS, torch.ones(3)))
