"""The loss of bottlenecks, and folders that hold them."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.errors import DataError
from regard.interop.families import bind
from regard.kit import Kit
from regard.loading import load_kit
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from regard.nvib.bottleneck import kl_dirichlet, kl_gaussian
from regard.nvib.config import NVIBConfig
from regard.nvib.denoising import Denoising, attach, bottlenecks, describe
from regard.nvib.elbo import elbo
from regard.train.objectives import token_loss

SOURCE = torch.randint(1, 50, (3, 7), generator=torch.Generator().manual_seed(2))
REAL = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
LABELS = SOURCE.masked_fill(~REAL, -100)
BATCH = Batch(SOURCE, SOURCE.roll(1, 1), source_mask=REAL)
CROSS = "decoder.blocks.0.cross"


def made(config: NVIBConfig | None = None, pattern: str = CROSS) -> Model:
    model = Model.fresh(presets.transformer(32, 2, 4, 50), seed=1).double()
    attach(model, pattern, config)
    torch.manual_seed(5)
    for part in bottlenecks(model).values():
        for linear in (part.mean, part.log_variance, part.log_alpha):
            torch.nn.init.normal_(linear.weight, std=0.1)
    return model


def test_without_weights_the_loss_is_the_plain_one():
    model = made(NVIBConfig(kl_gaussian=0.0, kl_dirichlet=0.0)).train()
    torch.manual_seed(0)
    loss = elbo(model, BATCH, LABELS)
    torch.manual_seed(0)
    assert torch.equal(loss.sum, token_loss(model, BATCH, LABELS).sum)
    assert loss.figures[f"kl_vectors.{CROSS}"] > 0


def test_divergences_are_added_by_their_weights_and_depth():
    config = NVIBConfig(delta=0.5, kl_gaussian=0.3, kl_dirichlet=2.0)
    model = made(config, "*coder.blocks.1")
    loss, tokens = elbo(model, BATCH, LABELS), REAL.sum(-1)
    assert all(part.last is None for part in bottlenecks(model).values())
    expected = token_loss(model, BATCH, LABELS).sum  # which reads the mixtures again
    for depth, part in enumerate(bottlenecks(model).values(), 1):
        nats = 0.3 * kl_gaussian(part.last) + 2.0 * kl_dirichlet(part.last, config)
        expected = expected + depth * (tokens * nats).sum()
    assert depth == 3 and abs(loss.sum - expected) < 1e-9
    names = {"kept.encoder.blocks.1.attn", "kept_share.decoder.blocks.1.cross"}
    assert set(loss.figures) > names and len(loss.figures) == 12
    assert loss.figures["kept.encoder.blocks.1.attn"] <= (tokens * tokens).sum()


def test_any_split_of_a_batch_has_the_same_loss():
    model = made()
    whole = elbo(model, BATCH, LABELS)
    parts = []
    for rows in (slice(0, 1), slice(1, 3)):
        some = BATCH.each(lambda x, rows=rows: x[rows])
        parts.append(elbo(model, some, LABELS[rows]))
    assert abs(whole.sum - sum(part.sum for part in parts)) < 1e-9
    for name, value in whole.figures.items():
        assert abs(value - sum(part.figures[name] for part in parts)) < 1e-9


def test_weights_are_annealed_in_a_line_and_only_in_training():
    model = made(NVIBConfig(anneal=4, kl_gaussian=1.0)).eval()
    full = elbo(model, BATCH, LABELS)
    assert full.sum > full.plain and bottlenecks(model)[CROSS].batches == 0
    model.train()
    shares = []
    for _ in range(6):
        torch.manual_seed(0)
        loss = elbo(model, BATCH, LABELS)
        shares.append(loss.sum.item() - loss.plain.item())
    assert shares[3] == pytest.approx(shares[5]) and shares[0] == pytest.approx(shares[3] / 4)


def test_a_batch_that_is_read_twice_counts_divergences_once():
    model = made(NVIBConfig(kl_gaussian=1.0))
    once, twice = (
        elbo(model, BATCH, LABELS),
        elbo(model, BATCH, LABELS, 0.0, "no", False, None, 1.0),
    )
    assert abs(once.sum - twice.sum) < 1e-9  # no dropout: the two readings agree


def test_gradients_reach_every_weight():
    model = made(NVIBConfig(kappa=2)).train()
    elbo(model, BATCH, LABELS).sum.backward()
    held = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert all(p.grad is not None and p.grad.isfinite().all() for p in held.values())
    assert held[f"{CROSS}.bottleneck.log_alpha.weight"].grad.abs().sum() > 0
    assert f"{CROSS}.bottleneck.batches" not in held


# Folders ------------------------------------------------------------------------------------------


def test_a_folder_holds_bottlenecks(tmp_path):
    model = made(NVIBConfig(delta=0.5, kappa=2)).float()
    attach(model, "encoder.blocks.1", NVIBConfig(threshold=0.3))
    Kit(model).save(tmp_path)
    kit = load_kit(tmp_path)
    assert describe(kit.model) == describe(model) and len(bottlenecks(model)) == 2
    assert torch.equal(kit.model(BATCH), model(BATCH))
    regard.nvib.detach(kit)
    kit.save(tmp_path / "without")
    assert not bottlenecks(load_kit(tmp_path / "without").model)


@pytest.mark.parametrize(
    "wrong", [{"encoder.blocks.9.attn": {}}, {CROSS: {"delta": 3}}, {CROSS: {"size": 1}}, [], 3]
)
def test_a_folder_with_wrong_bottlenecks_is_refused(tmp_path, wrong):
    Kit(made().float()).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"nvib": wrong}))
    with pytest.raises(DataError, match="nvib|bottleneck"):
        load_kit(tmp_path)


def test_a_family_with_a_bottleneck_is_a_folder_of_our_own(tmp_path):
    kit = Kit(Model.fresh(presets.bert(32, 2, 4, 50, 16)), None, bind("BertForMaskedLM"))
    done = regard.nvib.attach(kit, "encoder.blocks.0")
    assert done.attentions == ["encoder.blocks.0.attn"] and done.skipped == {}
    kit.save(tmp_path)
    assert "encoder.blocks.0.attn.bottleneck.mean.weight" in load_file(
        tmp_path / "model.safetensors"
    )
    assert isinstance(load_kit(tmp_path).model.encoder.blocks[0].attn, Denoising)
    regard.nvib.detach(kit)
    assert not bottlenecks(kit.model)
