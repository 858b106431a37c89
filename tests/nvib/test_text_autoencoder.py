"""Autoencoders of texts: latents, folders, collapse, whole runs."""

from __future__ import annotations

import re
from dataclasses import asdict

import pytest
import torch

import regard
from regard.decode.loop import search_kit
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from regard.nvib.autoencoder import HOLDER, Autoencoder, LatentConfig, as_autoencoder, draw_prior
from regard.nvib.config import NVIBConfig
from regard.nvib.denoising import attach, bottlenecks, describe
from regard.nvib.text_autoencoder import judge_samples, measure_latents
from regard.train.config import DataConfig, NVAEConfig, TrainConfig

SOURCE = torch.randint(1, 50, (3, 7), generator=torch.Generator().manual_seed(2))
REAL = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
BATCH = Batch(SOURCE, SOURCE.roll(1, 1), source_mask=REAL)
NVIB = NVIBConfig()
TEXTS = ["a cat sat", "the dog ran away", "birds sing", "we saw a red house"] * 12


def made(latent: str = "nvib", config: NVIBConfig | None = None, noise: float = 0.0) -> Autoencoder:
    model = Model.fresh(presets.transformer(32, 2, 4, 50), seed=1).double()
    if latent != "none":
        attach(model, HOLDER, config or NVIB)
    own = as_autoencoder(model, LatentConfig(latent, noise, [4, 6])).double()
    torch.manual_seed(5)
    for part in bottlenecks(own).values():
        for linear in (part.mean, part.log_variance, part.log_alpha):
            torch.nn.init.normal_(linear.weight, std=0.1)
    return own


# Latents ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latent", "shape"),
    [("nvib", (3, 8, 65)), ("gaussian", (3, 7, 32)), ("pooled", (3, 1, 32)), ("none", (3, 7, 32))],
)
def test_shapes_of_latents(latent, shape):
    model = made(latent)
    memory = model.encode(Batch(SOURCE, mask=REAL))
    assert memory.x.shape == shape
    assert model.counts(memory) == ([1, 1, 1] if latent == "pooled" else [7, 4, 1])
    assert model(BATCH).isfinite().all()
    same = [model(BATCH) for _ in range(2)]
    assert torch.equal(*same)  # nothing is drawn outside training
    model.train()
    drawn = [model.encode(Batch(SOURCE, mask=REAL)).x for _ in range(2)]
    assert torch.equal(*drawn) == (latent == "none")


def test_gaussian_latents_cost_the_mean_of_their_divergences():
    model = made("gaussian", NVIBConfig(alpha_map="one"))
    model.encode(Batch(SOURCE, mask=REAL))
    own = model.bottleneck.last
    each = 0.5 * (own.log_variance.exp() + own.mean**2 - 1 - own.log_variance).mean(-1)
    expected = (each * own.real).sum(-1) / own.real.sum(-1)
    nats = model.bottleneck.divergence(own)
    assert (nats[:, 0] - expected).abs().max() < 1e-12 and nats[:, 1].abs().max() < 1e-12


def test_noise_deletes_tokens_in_training_alone():
    model, seen = made("none", noise=0.5), []
    model.encoder.at.embed.fn = lambda x: seen.append(x) or x
    model.eval()
    model.encode(Batch(SOURCE))
    model.train()
    torch.manual_seed(0)
    short = model.encode(Batch(SOURCE))
    assert short.real[:, 0].all() and 0 < (~short.real).sum() < 15
    row = int((~short.real).sum(-1).argmax())
    kept = short.real[row]
    alone = model.eval().encode(Batch(SOURCE[row : row + 1, kept]))
    assert (short.x[row, kept] - alone.x[0]).abs().max() < 1e-12  # as if it had not been there


def test_the_decoder_reads_what_the_last_layer_keeps():
    model = made("none")
    attach(model, "encoder.blocks.*")
    with torch.no_grad():
        for part in bottlenecks(model).values():
            part.log_alpha.bias.fill_(-9.0)
    assert not model.encode(Batch(SOURCE, mask=REAL)).real.any()
    assert model(BATCH).isfinite().all()


@pytest.mark.parametrize("latent", ["nvib", "gaussian", "pooled"])
def test_mixing_ends_at_the_two_texts(latent):
    model = made(latent)
    pair = [model.encode(Batch(SOURCE[row : row + 1, REAL[row]])) for row in (0, 1)]
    for share, expected in ((0.0, pair[0]), (1.0, pair[1])):
        mixed = model.mix(*pair, share)
        one, other = (model.decode(Batch(SOURCE[:1]), memory) for memory in (mixed, expected))
        assert (one - other).abs().max() < 1e-12
    middle = model.decode(Batch(SOURCE[:1]), model.mix(*pair, 0.5))
    assert (middle - model.decode(Batch(SOURCE[:1]), pair[0])).abs().max() > 1e-4


def test_latents_of_the_prior_are_read_as_points():
    model = made(config=NVIBConfig(delta=0.5))
    torch.manual_seed(0)
    memory = model.draw_memory(50)
    assert {*model.counts(memory)} == {4, 6} and memory.x.shape == (50, 7, 65)
    assert (memory.x[..., 32:64] == 0).all()  # no share of the query: nothing is uncertain
    assert made("pooled").draw_memory(5).x.shape == (5, 1, 32)
    with pytest.raises(UsageError, match="without latents"):
        made("none").draw_memory(1)


def test_mixtures_of_the_prior():
    """α₀ = 1 + Δ n, spread over n + 1 points of Normal(0, 1)."""
    torch.manual_seed(0)
    lengths = torch.tensor([4] * 20_000)
    own = draw_prior(lengths, 2, 0.5)
    weights, each, total = own.log_alpha.exp(), 3 / 5, 3.0
    expected = each * (total - each) / (total**2 * (total + 1))
    assert abs(weights[:, 2].var() - expected) < 0.002
    assert abs(own.mean.std() - 1) < 0.01 and (own.log_variance == -torch.inf).all()
    ragged = draw_prior(torch.tensor([1, 4]), 2, 0.5)
    assert (ragged.log_alpha[0, 2:] == -torch.inf).all() and ragged.real.sum() == 7


# Whole runs ---------------------------------------------------------------------------------------


def run(tmp_path, steps=4, out="run", **shape):
    text = tmp_path / "texts.txt"
    text.write_text("\n".join(TEXTS) + "\n")
    sizes = {"dim": 32, "depth": 1, "heads": 2} | shape
    pace = {"eval_every": steps // 2, "save_every": steps, "log_every": 1, "batch_tokens": 200}
    config = TrainConfig(steps=steps, **pace, lr=3e-3, warm_up=1, schedule="constant")
    data = DataConfig(tokens="chars")
    shape = NVAEConfig(**sizes)
    return regard.train.nvae(text, out=tmp_path / out, config=config, shape=shape, data=data)


def test_a_run_counts_kept_vectors_and_opens_again(tmp_path):
    done = run(tmp_path, nvib_layers=1, delta=0.5, noise=0.25)
    names = {"valid_kept.decoder.blocks.0.cross", "valid_kl_weights.encoder.blocks.0.attn"}
    assert names <= {*done.metrics[-1]}
    kit = regard.load(done.path)
    assert isinstance(kit.model, Autoencoder) and kit.model.latent.lengths[-1] == 19
    assert kit.model.latent.noise == 0.25 and kit.model.bottleneck.batches.item() == 4
    texts = ["a cat sat", "birds sing"]
    said = list(regard.nvib.reconstruct(kit, texts))
    assert [row.of for row in said] == [10, 11] and all(row.kept <= row.of for row in said)
    drawn = [regard.nvib.sample(kit, count=3).texts for _ in range(2)]
    assert drawn[0] == drawn[1] and len(drawn[0]) == 3
    steps = regard.nvib.interpolate(kit, *texts, steps=2).steps
    assert [round(step.share, 2) for step in steps] == [0, 0.33, 0.67, 1]
    assert [steps[0].text, steps[-1].text] == [row.said for row in said]


@pytest.mark.parametrize("latent", ["nvib", "pooled", "none"])
def test_a_folder_opens_as_it_was_saved(tmp_path, latent):
    model = made(latent, NVIBConfig(delta=0.5, kappa=2), noise=0.25).float()
    attach(model, "encoder.blocks.1.attn", NVIBConfig(threshold=0.3))
    Kit(model, config=Kit(model).fresh_config() | {"latent": asdict(model.latent)}).save(tmp_path)
    opened = regard.load(tmp_path).model
    assert opened.latent == model.latent and describe(opened) == describe(model)
    assert torch.equal(opened(BATCH), model(BATCH))


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    """The state of annealing too is in the checkpoint."""
    whole = run(tmp_path, steps=6, anneal=5, nvib_layers=1)
    half = run(tmp_path, steps=2, anneal=5, nvib_layers=1, out="half")
    onward = TrainConfig(steps=6, eval_every=3, save_every=6)
    after = regard.train.nvae(resume=half.out, config=onward)
    assert after.last_weights == whole.last_weights and after.steps == 6


def test_collapse_is_found_and_told(tmp_path, capsys):
    """Where all that passes is paid for a thousand times, nothing does."""
    done = run(tmp_path, kl_gaussian=1e3, kl_dirichlet=1e3)
    assert measure_latents(regard.load(done.path), TEXTS[:8])["collapsed"]
    assert "posterior collapse" in capsys.readouterr().err


@pytest.mark.parametrize("latent", ["nvib", "gaussian"])
def test_texts_are_said_again_alone_and_together(tmp_path, latent):
    done = run(tmp_path, steps=120, latent=latent, kl_gaussian=0.0, kl_dirichlet=0.0)
    kit = regard.load(done.path)
    alone = [regard.nvib.reconstruct(kit, text).said for text in TEXTS[:4]]
    assert [row.said for row in regard.nvib.reconstruct(kit, TEXTS[:4])] == alone
    found = search_kit(kit, kit.batch(TEXTS[:4]), 29)  # as any encoder-decoder answers
    assert [kit.text(row[0].tokens) for row in found] == alone
    assert len({*alone}) > 2 and len({len(text) for text in alone}) > 2
    told = measure_latents(kit, TEXTS[:8])
    assert not told["collapsed"] and told["told"] > 0.1


def test_training_keeps_some_vectors(tmp_path):
    """Neither all of them nor none, and the decoder listens to what is left."""
    done = run(tmp_path, steps=160, delta=0.2, anneal=80)
    scores = regard.evaluate.nvae(done.path, tmp_path / "texts.txt", count=8)
    assert 0.2 < scores.kept_share < 0.9 and not scores.collapsed and scores.told > 0.1


def test_scores(tmp_path):
    done = run(tmp_path)
    text = tmp_path / "texts.txt"
    scores = regard.evaluate.nvae(done.path, text, train=text, count=6, samples=5)
    assert scores.texts == 6 and sum(scores.histogram.values()) == 6
    assert scores.kept == sum(n * many for n, many in scores.histogram.items()) / 6
    assert min(scores.forward, scores.reverse, scores.reverse_of_texts) > 1
    own = regard.evaluate.nvae(done.path, text, count=6)
    assert own.forward is None and own.told == scores.told


def test_samples_that_are_the_texts_are_as_good_as_texts():
    train = [f"{a} {b} {c}" for a in "ab" for b in "cde" for c in "fg"]
    forward, reverse, most = judge_samples(train, train[::2], train)
    assert reverse == most and forward == pytest.approx(reverse, rel=0.2)
    assert judge_samples(["z z z z"] * 12, train[::2], train)[1] > 2 * most


def test_mistakes_are_said_without_a_traceback(tmp_path):
    with pytest.raises(UsageError, match="latent"):
        NVAEConfig(latent="all")
    with pytest.raises(UsageError, match="encoder-decoder"):
        as_autoencoder(Model.fresh(presets.bert(32, 1, 2, 50, 16)), LatentConfig("none"))
    (tmp_path / "texts.txt").write_text("a\n")
    with pytest.raises(UsageError, match="a new one"):
        regard.train.nvae(tmp_path / "texts.txt", data=DataConfig(init="fr-en"))
    with pytest.raises(DataError, match="without latents"):
        regard.nvib.sample("fr-en")
    (tmp_path / "one.txt").write_text("a cat sat\n")
    with pytest.raises(DataError, match="at least 2"):
        regard.evaluate.nvae(run(tmp_path, latent="none").path, tmp_path / "one.txt")


def test_a_config_that_was_changed_is_told_of(tmp_path):
    model = made().float()
    Kit(model, config=Kit(model).fresh_config() | {"latent": asdict(model.latent)}).save(tmp_path)
    config = tmp_path / "config.json"
    whole = config.read_text()
    for wrong in ('"latent": "all"', '"lengths": ["a"]', '"latnt": 1'):
        name = re.escape(wrong.split(":")[0].replace("latnt", "noise"))
        config.write_text(re.sub(name + r": (\"nvib\"|\[[^]]*\]|0.0)", wrong, whole, count=1))
        with pytest.raises(DataError, match=r"config\.json"):
            regard.load(tmp_path)
