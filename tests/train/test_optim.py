"""AdamW's groups, learning rates, the running mean, clipping, the search for bad numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.model.model import Model
from regard.model.presets import gpt2
from regard.train.config import TrainConfig
from regard.train.optim import (
    Mean,
    build_optimizer,
    clip,
    first_bad,
    orthogonal,
    rate_at,
)


def make():
    return Model.fresh(gpt2(8, 1, 2, 11, 6))


def test_only_matrices_are_decayed():
    model = make()
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, plain = build_optimizer(model, TrainConfig()).param_groups
    assert decayed["weight_decay"] == 0.1 and plain["weight_decay"] == 0
    assert all(p.dim() == 2 for p in decayed["params"])
    spared = {names[id(p)] for p in plain["params"]}
    assert "front.tokens.weight" in spared and any("norm" in name for name in spared)
    assert len(decayed["params"]) + len(plain["params"]) == len(names)


def test_the_running_mean_is_the_recursion():
    model = nn.Linear(3, 2)
    mean = Mean(model, 0.9)
    wanted = model.weight.detach().clone()
    for step in range(1, 20):
        with torch.no_grad():
            model.weight += 1
        mean.update(model)
        decay = min(0.9, (1 + step) / (10 + step))
        wanted = decay * wanted + (1 - decay) * model.weight.detach()
    torch.testing.assert_close(mean.weights[0], wanted)
    before = model.weight.detach().clone()
    mean.swap(model)
    torch.testing.assert_close(model.weight.detach(), wanted)
    mean.swap(model)
    assert torch.equal(model.weight, before)


def test_clipping_scales_to_the_norm_and_zero_leaves_all():
    model = nn.Linear(4, 4)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert clip(model, 0.0) == pytest.approx(20**0.5)
    assert torch.equal(model.weight.grad, torch.ones(4, 4))
    clip(model, 1.0)
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert norm == pytest.approx(1.0, rel=1e-5)


def test_the_first_bad_tensor_is_named():
    model = make()
    assert first_bad(model) is None
    model.decoder.blocks[0].mlp.up.weight.grad = torch.full((32, 8), torch.nan)
    assert first_bad(model) == "gradient of decoder.blocks.0.mlp.up.weight"


def random_matrices(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(3, 12, 5), (2, 5, 12), (1, 8, 8)])
def test_orthogonal_keeps_singular_vectors_and_evens_singular_values(shape):
    x = random_matrices(*shape)
    made = orthogonal(x)
    left, sizes, right = torch.linalg.svd(x, full_matrices=False)
    inside = left.mT @ made @ right.mT  # diagonal where the vectors are kept
    new = inside.diagonal(dim1=1, dim2=2)
    assert torch.allclose(inside, torch.diag_embed(new), atol=1e-9)
    assert new.min() > 0.65 and new.max() < 1.25 and sizes.max() / sizes.min() > 1.3


def test_muon_moves_matrices_as_torch_does_and_the_rest_as_adamw_does():
    config = TrainConfig(optimizer="muon", lr=0.02, weight_decay=0.1)
    ours, theirs = make(), make()
    optimizer = build_optimizer(ours, config)
    inside = [p for p in theirs.decoder.blocks.parameters() if p.dim() == 2]
    assert {p.shape for p in optimizer.param_groups[0]["params"]} == {p.shape for p in inside}
    ids = {id(p) for p in inside}
    rest = [p for p in theirs.parameters() if id(p) not in ids]
    peers = [
        torch.optim.Muon(inside, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=0.02, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    torch.manual_seed(1)
    for _ in range(4):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        for one in (optimizer, *peers):
            one.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if id(b) in ids:  # torch's products are in bfloat16
            assert torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), 0) > 0.999, name
            torch.testing.assert_close(a, b, rtol=0, atol=0.02)
        else:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


# Learning rates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "rate"), [(4000, 6.99e-4), (1, 1.747e-7), (100_000, 1.398e-4)])
def test_the_values_of_2017(step, rate):
    peak = 512**-0.5 * 4000**-0.5
    made = peak * rate_at("inverse_sqrt", step, 4000, 100_000)
    assert made == pytest.approx(rate, rel=5e-4)
    assert made == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-12)


@pytest.mark.parametrize("name", ["constant", "inverse_sqrt", "cosine"])
def test_all_warm_up_to_the_peak_and_stay_positive(name):
    rates = [rate_at(name, step, 10, 100) for step in range(1, 101)]
    assert rates[4] == pytest.approx(0.5) and rates[9] == pytest.approx(1.0)
    assert all(0 < rate <= 1 for rate in rates)


def test_a_cosine_ends_at_the_floor():
    assert rate_at("cosine", 100, 10, 100, 0.1) == pytest.approx(0.1)
    assert rate_at("cosine", 5, 0, 5, 0.0) == pytest.approx(0, abs=1e-12)
