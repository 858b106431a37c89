"""Initialisation: the table of core/init.py, row by row, and seeds (MISSION N12)."""

from __future__ import annotations

import pytest
import torch

from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model, initialise

DEPTH = 3


@pytest.fixture(scope="module")
def models():
    """A decoder, a relative encoder-decoder, an encoder over patches and one over mel."""
    configs = [
        presets.gpt2(96, DEPTH, 4, vocab=300, length=64),
        presets.t5(96, DEPTH, 4, 128, head_dim=24, vocab=300),
        presets.vit(96, DEPTH, 4, patch=4, side=16),
        presets.whisper(96, DEPTH, 4, vocab=300),
    ]
    return [Model.fresh(config) for config in configs]


@torch.no_grad()
def test_every_parameter_follows_the_table(models):
    small = 0.02 / (2 * DEPTH) ** 0.5
    counted = dict.fromkeys(["table", "output", "norm", "bias", "relative", "conv"], 0)
    for model in models:
        convolutions = tuple(
            name
            for name, part in model.named_modules()
            if isinstance(part, torch.nn.modules.conv._ConvNd)
        )
        for name, p in model.named_parameters():
            if name.endswith("bias.weight"):  # relative
                row, good = "relative", bool((p == 0).all())
            elif name.endswith("norm.weight"):
                row, good = "norm", bool((p == 1).all())
            elif name.endswith(".bias"):
                row, good = "bias", bool((p == 0).all())
            elif name.removesuffix(".weight") in convolutions:
                reach = p[0].numel() ** -0.5
                row, good = "conv", 0.9 * reach < float(p.abs().max()) <= reach
            elif name.endswith(("attn.o.weight", "cross.o.weight", "mlp.down.weight")):
                row, good = "output", abs(float(p.std()) / small - 1) < 0.05
            elif name.endswith("cls"):
                continue
            else:
                row, good = "table", abs(float(p.std()) / 0.02 - 1) < 0.05
                good = good and abs(float(p.mean())) < 0.002
            assert good, name
            counted[row] += 1
    assert all(counted.values()), counted


def test_the_same_seed_gives_the_same_weights_and_another_others():
    config = presets.gpt2(16, 2, 2, vocab=20, length=8)
    torch.manual_seed(1)
    first = Model.fresh(config, seed=5)
    torch.manual_seed(2)  # the global generator must not matter, nor be touched
    state = torch.get_rng_state()
    second, third = Model(config), Model.fresh(config, seed=6)
    torch.set_rng_state(state)
    initialise(second, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    for (name, one), two, three in zip(
        first.named_parameters(), second.parameters(), third.parameters(), strict=True
    ):
        assert torch.equal(one, two)
        if one.dim() > 1:
            assert not torch.equal(one, three), name


def test_initialising_twice_changes_nothing():
    model = Model.fresh(presets.vit(16, 2, 2, patch=4, side=8), seed=3)
    before = {name: p.clone() for name, p in model.named_parameters()}
    initialise(model, seed=3)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


@torch.no_grad()
def test_a_fresh_model_starts_near_the_uniform_guess():
    """Loss of the first step is log V, as it should be before anything is learnt."""
    model = Model.fresh(presets.gpt2(64, 4, 4, vocab=100, length=32))
    ids = torch.randint(0, 100, (4, 32), generator=torch.Generator().manual_seed(0))
    logits = model(Batch(ids))[:, :-1].flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
    assert abs(float(loss) - torch.log(torch.tensor(100.0))) < 0.1
