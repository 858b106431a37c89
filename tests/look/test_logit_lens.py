"""The last layer of the lens is the model; the parts of a logit sum to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.errors import UsageError
from regard.kit import Kit
from regard.look.edits import zero
from regard.look.hooks import HookedModel
from regard.look.logit_lens import (
    copy_score,
    direct_attribution,
    follow_token,
    head_outputs,
    lens_scores,
)
from regard.look.patching import Goal
from regard.model.batch import Batch
from regard.model.config import HeadConfig
from regard.model.model import Model
from regard.model.presets import recurrent_lm
from regard.model.recurrent import Recurrent
from tests.look.planted import planted_induction
from tests.properties.small_models import (
    CONFIGS,
    EVERY,
    VOCAB,
    example,
    random_ids,
    randomise,
    small_kit,
)

T, S = 8, 6
LINEAR = ["gpt2", "llama", "window", "alibi", "t5", "transformer-pre", "vit", "whisper"]


def two_rows(kit):
    """Two different rows; of texts, one padded on the right and one on the left."""
    ones = [example(kit, T, seed, S) for seed in (1, 2)]
    inputs = torch.stack([one.inputs for one in ones])
    target = None if ones[0].target is None else torch.stack([one.target for one in ones])
    mask = None
    if kit.model.config.front.kind == "text" or target is not None:
        mask = torch.ones(2, T, dtype=torch.bool)
        mask[0, -2:], mask[1, :3] = False, False
    return Batch(inputs, target, mask=mask)


def goals(kit):
    size = kit.model.config.head.size
    good, bad = torch.tensor([3, size - 1]), torch.tensor([0, 2])
    yield Goal(good)
    yield Goal(good, bad)
    yield Goal(good, bad, kind="logprob")
    if kit.model.config.head.take == "all":
        yield Goal(good, bad, at=torch.tensor([1, 4]))


# The logit lens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_the_last_layer_gives_the_models_scores(name):
    kit = small_kit(name)
    batch = two_rows(kit)
    with torch.no_grad():
        logits = kit.model(batch)
    found = lens_scores(kit.hooked, batch)
    assert found.shape == (3, *logits.shape)
    torch.testing.assert_close(found[-1], logits)
    assert not torch.allclose(found[0], logits, atol=1e-2)
    if logits.dim() == 3:
        columns = torch.tensor([[1, 5], [6, 3]])
        some = lens_scores(kit.hooked, batch, columns)
        torch.testing.assert_close(some[:, 1, 0], found[:, 1, 6])
        torch.testing.assert_close(some[:, 0, 1], found[:, 0, 5])


@torch.no_grad()
def test_a_layer_is_a_model_without_the_later_blocks():
    kit = small_kit("llama")
    batch = two_rows(kit)
    stack = CONFIGS["llama"].decoder
    for depth in (0, 1):
        less = Model(replace(CONFIGS["llama"], decoder=replace(stack, depth=max(depth, 1)))).eval()
        own = kit.model.state_dict()
        less.load_state_dict({k: own[k] for k in less.state_dict()})
        if depth == 0:
            del less.decoder.blocks[0]
        torch.testing.assert_close(lens_scores(kit.hooked, batch)[depth], less(batch))


def test_standing_counts_the_better_ones():
    scores = torch.tensor([[[1.0, 3.0, 2.0, 0.0]], [[0.0, -1.0, 5.0, 5.0]]])  # (2, 1, 4)
    probability, rank = follow_token(scores, torch.tensor([2]))
    assert rank.tolist() == [[2], [1]]
    torch.testing.assert_close(probability, scores.softmax(-1)[..., 2])


# Direct attribution -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", LINEAR)
def test_parts_sum_to_the_goal(name):
    kit = small_kit(name)
    batch = two_rows(kit)
    for goal in goals(kit):
        found = direct_attribution(kit.hooked, batch, goal)
        assert found.error.abs().max() < 1e-4
        assert found.goal.abs().min() > 0.01 and found.values.abs().max() > 0.1
    with torch.no_grad():
        torch.testing.assert_close(found.goal, goal(kit.model(batch), batch))


@pytest.mark.parametrize("name", LINEAR)
def test_exact_in_double(name):
    """With a bias and a factor in the output head too."""
    config = replace(CONFIGS[name], head=replace(CONFIGS[name].head, bias=True, scale=0.7))
    model = Model(config).eval()
    randomise(model)
    kit = Kit(model.double())
    batch = two_rows(kit)
    if batch.inputs.is_floating_point():
        batch = replace(batch, inputs=batch.inputs.double())
    for goal in goals(kit):
        found = direct_attribution(kit.hooked, batch, goal)
        assert found.error.abs().max() < 1e-9
        names = [part.name for part in found.parts]
        assert len(set(names)) == len(names) and "bias of the output head" in names


@torch.no_grad()
def test_a_heads_part_is_what_goes_when_the_norm_stays():
    """Against the stream itself: zero a head, run on with the old scale, compare the logits."""
    kit = small_kit("gpt2")
    batch = two_rows(kit)
    goal = next(goals(kit))
    found = direct_attribution(kit.hooked, batch, goal)
    values = {(p.kind, p.block, p.head): v for p, v in zip(found.parts, found.values, strict=True)}
    last = "decoder.blocks.1.resid_post"
    frozen = {"decoder.blocks.1.mlp.out", last}
    _, before = kit.hooked.run(batch, frozen)
    edits = {"decoder.blocks.1.attn.z": zero(head=2)}
    _, after = kit.hooked.run(batch, [*frozen, "decoder.blocks.1.resid_mid"], edits)
    moved = after["decoder.blocks.1.resid_mid"] + before["decoder.blocks.1.mlp.out"]
    x, norm = before[last], kit.model.decoder.norm
    scale = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
    logits = [
        kit.model.head((y - y.mean(-1, keepdim=True)) * scale * norm.weight + norm.bias)
        for y in (x, moved)
    ]
    lost = goal(logits[0], batch) - goal(logits[1], batch)
    torch.testing.assert_close(values["head", 1, 2], lost, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
@torch.no_grad()
def test_heads_mlps_and_biases_make_the_stream(name):
    kit = small_kit(name)
    batch = two_rows(kit)
    _, seen = kit.hooked.run(batch, "decoder.*")
    total = seen["decoder.embed"]
    for n, block in enumerate(kit.model.decoder.blocks):
        for kind in ("attn", "cross") if block.cross is not None else ("attn",):
            path = f"decoder.blocks.{n}.{kind}"
            out = head_outputs(kit.hooked, seen[f"{path}.z"], path)
            assert out.shape == (2, T, 4, 32)
            bias = getattr(block, kind).o.bias
            total = total + out.sum(2) + (0 if bias is None else bias)
            if bias is not None:
                torch.testing.assert_close(out.sum(2) + bias, seen[f"{path}.out"])
        total = total + seen[f"decoder.blocks.{n}.mlp.out"]
    torch.testing.assert_close(total, seen["decoder.blocks.1.resid_post"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_neurons_sum_to_their_mlp(name):
    kit = small_kit(name)
    batch, goal = two_rows(kit), next(goals(kit))
    found = direct_attribution(kit.hooked, batch, goal)
    each = direct_attribution(kit.hooked, batch, goal, neurons=True)
    for n, block in enumerate(kit.model.decoder.blocks):
        (place,) = (i for i, p in enumerate(found.parts) if (p.kind, p.block) == ("mlp", n))
        mine = [i for i, p in enumerate(each.parts) if p.layer == found.parts[place].layer]
        bias = [i for i in mine if each.parts[i].kind == "bias"]
        assert len(mine) == block.mlp.up.out_features + len(bias) and len(bias) == hasbias(block)
        torch.testing.assert_close(each.values[mine].sum(0), found.values[place])
    assert each.error.abs().max() < 1e-4


def hasbias(block):
    """How many biases a block's MLP adds to the stream."""
    return int(block.mlp.down.bias is not None)


def test_where_it_does_not_apply_it_says_why():
    kit = small_kit("transformer")
    batch, goal = two_rows(kit), Goal(torch.tensor([1, 2]))
    with pytest.raises(UsageError, match="post-norm"):
        direct_attribution(kit.hooked, batch, goal)
    lstm = HookedModel(Recurrent.fresh(recurrent_lm("lstm", 8, 8, 1, 20)))
    with pytest.raises(UsageError, match="recurrent"):
        direct_attribution(lstm, Batch(torch.zeros(2, 3).long()), goal)
    with pytest.raises(UsageError, match="recurrent"):
        lens_scores(lstm, Batch(torch.zeros(2, 3).long()))
    head = HeadConfig(VOCAB, transform="gelu")
    kit = small_kit("gpt2", head=head)
    with pytest.raises(UsageError, match="non-linear"):
        direct_attribution(kit.hooked, two_rows(kit), goal)
    kit = small_kit("gpt2")
    with pytest.raises(UsageError, match="no sum"):
        direct_attribution(kit.hooked, two_rows(kit), replace(goal, kind="logprob"))
    kit.model.decoder.blocks[0].residual = False
    with pytest.raises(UsageError, match="shortcut"):
        direct_attribution(kit.hooked, two_rows(kit), goal, neurons=True)


# The planted model ------------------------------------------------------------------------------


def test_the_planted_induction_head_writes_the_answer():
    model = planted_induction()
    half = torch.randperm(24, generator=torch.Generator().manual_seed(1))[:10]
    batch = Batch(torch.cat([half, half[:4]])[None])
    found = direct_attribution(HookedModel(model), batch, Goal(half[4:5]))
    best = found.parts[int(found.values[:, 0].argmax())]
    assert (best.kind, best.block, best.head) == ("head", 1, 2)
    assert found.values.max() > 9.5 and found.error.abs() < 1e-4
    scores = lens_scores(HookedModel(model), batch, torch.tensor([[13]]))
    probability, rank = follow_token(scores, half[4])
    assert rank[-1] == 1
    assert probability[1] < 0.1 < probability[2]


def test_who_copies():
    hooked = HookedModel(planted_induction())
    batch = Batch(torch.randperm(24, generator=torch.Generator().manual_seed(1))[None, :20])
    assert copy_score(hooked, 1, 2, batch, top=1) == 1.0
    assert copy_score(hooked, 1, 0, batch, top=1) < 0.3
    with pytest.raises(UsageError, match="pre-norm"):
        copy_score(small_kit("bert").hooked, 0, 0, Batch(random_ids(5, 0)[None]))


def test_copying_values_of_grouped_heads():
    """A head that shares its values with a neighbour reads those of its own group."""
    kit = small_kit("llama")  # 4 heads, 2 groups
    attention = kit.model.decoder.blocks[1].attn
    with torch.no_grad():
        attention.v.weight[:8] = 0  # the first group has no values: its heads favour nothing
    batch = Batch(random_ids(20, 0)[None] % 20 + 40)
    found = [copy_score(kit.hooked, 1, head, batch, top=40) for head in range(4)]
    assert found[0] == found[1] != found[2]
