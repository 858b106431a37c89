"""Denoising attention against its formulas, ordinary attention, and Bayes' rule by integration."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import regard
from regard.core.attention import Attention, View
from regard.core.config import BlockConfig
from regard.core.tap import taps
from regard.decode.beam import BeamConfig
from regard.decode.loop import run_search
from regard.errors import UsageError
from regard.kit import Kit
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from regard.nvib.bottleneck import Bottleneck, Mixture, Reading, draw, read_draw, read_mean
from regard.nvib.config import NVIBConfig, Temperatures
from regard.nvib.conversion import Prior, convert
from regard.nvib.denoising import Denoising, attach, bottlenecks, detach, put_on


def fixed(dim: int = 16, heads: int = 4) -> Denoising:
    """An attention with drawn weights."""
    block = BlockConfig(dim, heads, 32)
    model = torch.nn.Module()
    model.attn = Attention(block, 0, cross=True)
    put_on(model, "attn", NVIBConfig())
    torch.manual_seed(3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.double().attn


def mixture(rows: int = 2, count: int = 6, dim: int = 16) -> Mixture:
    """Drawn components, the last of the second row being padding."""
    draw = torch.Generator().manual_seed(5)
    normal = (torch.randn(rows, count, n, generator=draw).double() for n in (dim, dim, 1))
    mean, log_variance, log_alpha = normal
    real = torch.ones(rows, count, dtype=torch.bool)
    real[1:, -1] = False
    return Mixture(mean, log_variance, log_alpha[..., 0], real)


def by_hand(part: Denoising, y: Tensor, own: Mixture, mean_form: bool) -> Tensor:
    """The formulas of the paper, head by head, in the space of the vectors (float64)."""
    width, root = part.width, math.sqrt(part.width)
    heads = []
    log_pi = own.log_weights()
    for head in range(part.heads):
        rows = slice(head * width, (head + 1) * width)
        w_q, w_k, w_v = (m.weight[rows] for m in (part.q, part.k, part.v))
        q = y @ w_q.T + part.q.bias[rows]
        if mean_form:
            u = q @ w_k  # (B, T, P)
            var = own.log_variance.exp()[:, None]  # (B, 1, N, P)
            mu, total = own.mean[:, None], var + root
            score = (u[:, :, None] * mu / total).sum(-1) + log_pi[:, None]
            score = score - 0.5 * (mu**2 / total + total.log()).sum(-1)
            w = score.softmax(-1)[..., None]
            m = (w * var / total).sum(2) * u + (w * root / total * mu).sum(2)
            heads.append(m @ w_v.T + part.v.bias[rows])
        else:
            z = own.mean
            k, v = z @ w_k.T + part.k.bias[rows], z @ w_v.T + part.v.bias[rows]
            score = q @ k.mT / root + log_pi[:, None] - (z**2).sum(-1)[:, None] / (2 * root)
            heads.append(score.softmax(-1) @ v)
    return torch.cat(heads, -1) @ part.o.weight.T + part.o.bias


def answer(part: Denoising, y: Tensor, reading: Reading) -> Tensor:
    part.read = lambda *seen: reading
    return part(y, View())


Y = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(1)).double()


def test_the_mean_form_is_the_formula():
    own = mixture()
    part = fixed()
    close = answer(part, Y, read_mean(own, 2.0)) - by_hand(part, Y, own, mean_form=True)
    assert close.abs().max() < 1e-12


def test_the_sampled_form_is_the_formula():
    own = mixture()
    part = fixed()
    close = answer(part, Y, read_draw(own.mean, own.log_weights(), 2.0))
    assert (close - by_hand(part, Y, own, mean_form=False)).abs().max() < 1e-12


def test_without_variance_the_mean_form_is_the_sampled_form():
    own = mixture()
    own = own._replace(log_variance=torch.full_like(own.mean, -200.0))
    one = answer(fixed(), Y, read_mean(own, 2.0))
    other = answer(fixed(), Y, read_draw(own.mean, own.log_weights(), 2.0))
    assert (one - other).abs().max() < 1e-10


@pytest.mark.parametrize(("bias", "near"), [(0.0, 10.0), (5.0, 1.0), (10.0, 1e-2), (30.0, 1e-11)])
def test_its_limit_is_ordinary_attention(bias, near):
    """Pseudo-counts exp(|x|² / 2s + bias) undo the penalty on long vectors and drown the prior."""
    model = torch.nn.Module()
    model.attn = Attention(BlockConfig(16, 4, 32), 0)
    torch.manual_seed(3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.double().eval()
    plain = model.attn(Y, View())
    put_on(model, "attn", NVIBConfig(spread=0))
    held = model.attn.bottleneck
    with torch.no_grad():
        held.log_variance.bias.fill_(-200.0)
        held.log_alpha.weight[0, :16] = 1 / (2 * math.sqrt(4))
        held.log_alpha.bias.fill_(bias)
    far = (model.attn(Y, View()) - plain).abs().max()
    assert near * 1e-4 < far < near  # falls as exp(−bias)


def test_components_that_are_the_prior_answer_with_the_query():
    zero = torch.zeros(2, 6, 16).double()
    own = mixture()._replace(mean=zero, log_variance=zero)
    part = fixed()
    expected = []
    for head in range(4):
        rows = slice(head * 4, head * 4 + 4)
        u = (Y @ part.q.weight[rows].T + part.q.bias[rows]) @ part.k.weight[rows]
        expected.append(u / (1 + 2.0) @ part.v.weight[rows].T + part.v.bias[rows])
    expected = torch.cat(expected, -1) @ part.o.weight.T + part.o.bias
    assert (answer(part, Y, read_mean(own, 2.0)) - expected).abs().max() < 1e-12


def test_components_are_a_set():
    own, order = mixture(), torch.tensor([3, 0, 5, 1, 4, 2])
    turned = Mixture(*(t[:, order] for t in own))
    for read in (read_mean, lambda m, s: read_draw(m.mean, m.log_weights(), s)):
        one, other = (answer(fixed(), Y, read(m, 2.0)) for m in (own, turned))
        assert (one - other).abs().max() < 1e-12


def test_a_component_in_two_halves_is_one_component():
    own = mixture()
    twice = Mixture(*(torch.cat([t, t[:, 2:3]], 1) for t in own))
    log_alpha = twice.log_alpha.clone()
    log_alpha[:, [2, -1]] -= math.log(2)
    one = answer(fixed(), Y, read_mean(own, 2.0))
    other = answer(fixed(), Y, read_mean(twice._replace(log_alpha=log_alpha), 2.0))
    assert (one - other).abs().max() < 1e-12


def test_bayes_rule_by_integration():
    """One number, one head: E[v | u] of a mixture of three Gaussians, on a fine grid.

    Their variances are alike: u² is then the same for all, and left out without harm.
    """
    own = Mixture(
        torch.tensor([0.0, 1.5, -2.0]).double().view(1, 3, 1),
        torch.full((1, 3, 1), 0.3, dtype=torch.float64).log(),
        torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64).log().view(1, 3),
        torch.ones(1, 3, dtype=torch.bool),
    )
    part = fixed(dim=1, heads=1)
    y = torch.tensor([[[3.0]]], dtype=torch.float64)
    u = (y * part.q.weight + part.q.bias) * part.k.weight  # noise of variance √1
    v = torch.linspace(-20, 20, 400_001, dtype=torch.float64)
    prior = sum(
        math.exp(a) / 3.5 * torch.exp(-((v - m) ** 2) / (2 * s)) / math.sqrt(s)
        for a, m, s in zip(
            own.log_alpha[0].tolist(), own.mean[0, :, 0].tolist(), [0.3] * 3, strict=True
        )
    )
    weight = prior * torch.exp(-((u.flatten() - v) ** 2) / 2)
    mean = (weight * v).sum() / weight.sum()
    expected = (mean * part.v.weight + part.v.bias) * part.o.weight + part.o.bias
    assert (answer(part, y, read_mean(own, 1.0)) - expected).abs().max() < 1e-8


# On models ----------------------------------------------------------------------------------------


def tiny() -> Model:
    return Model.fresh(presets.transformer(32, 2, 4, 50), seed=1).double()


SOURCE = torch.randint(0, 50, (3, 7), generator=torch.Generator().manual_seed(2))
TARGET = torch.randint(0, 50, (3, 5), generator=torch.Generator().manual_seed(3))
REAL = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]


def random(model: Model) -> Model:
    """Bottlenecks that are no identity."""
    torch.manual_seed(7)
    for held in bottlenecks(model).values():
        for linear in (held.mean, held.log_variance, held.log_alpha):
            torch.nn.init.normal_(linear.weight, std=0.1)
    return model


def test_attach_and_detach_leave_a_model_as_it_was():
    model, batch = tiny(), Batch(SOURCE, TARGET, source_mask=REAL)
    before, names = model(batch), [name for name, _ in model.named_parameters()]
    done = attach(model, "*.attn")
    assert len(done.attentions) == 4 and not done.skipped
    assert set(names) < {name for name, _ in model.named_parameters()}
    assert not torch.equal(model(batch), before)
    detach(model)
    assert torch.equal(model(batch), before)
    assert [name for name, _ in model.named_parameters()] == names


def test_padding_changes_nothing():
    model = tiny()
    attach(model, "*")
    random(model)
    alone = [
        model(Batch(SOURCE[n : n + 1, :size], TARGET[n : n + 1]))
        for n, size in enumerate((7, 4, 1))
    ]
    together = model(Batch(SOURCE, TARGET, source_mask=REAL))
    assert (together - torch.cat(alone)).abs().max() < 1e-12
    held = bottlenecks(model)["encoder.blocks.1.attn"]
    nats = held.divergence(held.last)
    model(Batch(SOURCE[1:2, :4], TARGET[1:2]))
    assert (held.divergence(held.last) - nats[1]).abs().max() < 1e-12


def test_causal_attention_does_not_look_ahead():
    model = Model.fresh(presets.gpt2(32, 2, 4, 50, 16)).double()
    attach(model, "decoder.blocks.*")
    random(model)
    ids = SOURCE.clone()
    before = model(Batch(ids))
    ids[:, 4:] = (ids[:, 4:] + 1) % 50
    after = model(Batch(ids))
    apart = (before - after).abs().amax((0, 2))
    assert (apart[:4] < 1e-12).all() and apart[4] > 1e-3 and before.isfinite().all()


@pytest.mark.parametrize("pair", [True, False])
def test_a_cache_gives_the_same_answers(pair):
    model = tiny() if pair else Model.fresh(presets.gpt2(32, 2, 4, 50, 16)).double()
    attach(model, "*")
    random(model)
    cache, whole = (
        model.cache(3, 8),
        Batch(SOURCE, TARGET, source_mask=REAL) if pair else Batch(TARGET),
    )
    steps = []
    for n in range(5):
        one = TARGET[:, n : n + 1]
        steps.append(model(Batch(SOURCE, one, source_mask=REAL) if pair else Batch(one), cache))
    assert (torch.cat(steps, 1) - model(whole)).abs().max() < 1e-12


@pytest.mark.parametrize("driver", ["plain", "fixed"])
def test_searches_read_mixtures(driver):
    """Of a batch with beams as of each source alone, whatever the driver."""
    model = tiny().float()
    attach(model, "*")
    random(model)
    batch, how = Batch(SOURCE, TARGET[:, :1], source_mask=REAL), BeamConfig(3)
    together = run_search(model, batch, 6, how, driver=driver)
    for row, size in enumerate((7, 4, 1)):
        one = Batch(SOURCE[row : row + 1, :size], TARGET[row : row + 1, :1])
        (alone,) = run_search(model, one, 6, how)
        assert [h.tokens for h in alone] == [h.tokens for h in together[row]]
        ids = torch.tensor([[*TARGET[row, :1].tolist(), *alone[0].tokens]])
        logits = model(replace(one, target=ids[:, :-1])).log_softmax(-1)
        whole = logits.gather(-1, ids[:, 1:, None]).sum().item()
        assert abs(whole - alone[0].logprob) < 1e-4


def test_looking_at_patterns_changes_nothing():
    model = tiny()
    attach(model, "encoder.blocks.*")
    random(model)
    batch, places, seen = Batch(SOURCE, TARGET, source_mask=REAL), taps(model), {}
    fused = model(batch)
    for place in ("pattern", "scores", "k", "z", "bottleneck.log_alpha", "bottleneck.kl"):
        name = f"encoder.blocks.1.attn.{place}"
        places[name].fn = lambda x, name=place: seen.setdefault(name, x)
    assert (model(batch) - fused).abs().max() < 1e-12
    pattern = seen["pattern"]
    assert pattern.shape == (3, 4, 7, 8)  # the prior is the first key
    assert (pattern.sum(-1) - 1).abs().max() < 1e-12 and (pattern[1, :, :, 5:] == 0).all()
    assert seen["bottleneck.log_alpha"].shape == (3, 7) and seen["bottleneck.kl"].shape == (3, 2)


def test_vectors_that_are_dropped_are_not_read_and_all_may_be():
    model = tiny()
    attach(model, "decoder.blocks.*.cross")
    batch = Batch(SOURCE, TARGET, source_mask=REAL)
    with torch.no_grad():
        for held in bottlenecks(model).values():
            held.log_alpha.bias.fill_(-99.0)  # below the threshold: only the prior is left
    model(batch)
    one = model(Batch((SOURCE + 1) % 50, TARGET, source_mask=REAL))
    assert torch.equal(one, model(batch)) and one.isfinite().all()
    held = bottlenecks(model)["decoder.blocks.0.cross"]
    assert held.last.kept(0.1).sum() == 3  # the prior's


@pytest.mark.parametrize(
    ("preset", "why"),
    [("llama", "rotary"), ("qwen", "normalised"), ("distance", "dot products")],
)
def test_what_cannot_denoise_is_skipped_and_named(preset, why):
    config = presets.gpt2(32, 1, 4, 50, 16)
    if preset == "llama":
        config = presets.llama(32, 1, 4, 4, 64, 50, 16)
    else:
        change = {"qk_norm": True} if preset == "qwen" else {"similarity": "distance"}
        stack = config.decoder
        config = replace(config, decoder=replace(stack, block=replace(stack.block, **change)))
    done = attach(Model.fresh(config), "decoder.*")
    assert not done.attentions and why in done.skipped.pop("decoder.blocks.0.attn")
    assert not done.skipped


def test_a_wrong_name_is_refused():
    with pytest.raises(UsageError, match="no attention named"):
        attach(tiny(), "encoder.blocks.9")


def test_what_is_no_opened_model_is_refused():
    kit = Kit(tiny())
    for wrong in ("folder", None, kit.model):
        with pytest.raises(UsageError, match=r"a Kit\n.*regard\.load"):
            regard.nvib.attach(wrong)
        with pytest.raises(UsageError, match="a Kit"):
            regard.nvib.detach(wrong)
    with pytest.raises(UsageError, match="no attention named '3'"):
        regard.nvib.attach(kit, 3)
    with pytest.raises(UsageError, match=r"config = 0\.25"):
        regard.nvib.attach(kit, "*", 0.25)
    regard.nvib.attach(kit)
    regard.nvib.detach(kit)
    assert {type(m) for m in kit.model.modules() if isinstance(m, Attention)} == {Attention}


def test_grouped_keys_in_an_encoder():
    config = presets.bert(32, 1, 4, 50, 16)
    stack = config.encoder
    block = replace(stack.block, kv_heads=2)
    grouped = Model.fresh(replace(config, encoder=replace(stack, block=block))).double()
    whole = Model.fresh(config).double()
    weights = grouped.state_dict()
    for part in ("k", "v"):
        for leaf, width in (("weight", 32), ("bias", 1)):
            name = f"encoder.blocks.0.attn.{part}.{leaf}"
            by_group = weights[name].view(2, 8, width)
            weights[name] = by_group.repeat_interleave(2, 0).view(whole.state_dict()[name].shape)
    whole.load_state_dict(weights)
    for model in (grouped, whole):
        attach(model, "*")
    assert (grouped(Batch(SOURCE)) - whole(Batch(SOURCE))).abs().max() < 1e-12


def test_a_draw_in_training_is_read_by_the_sampled_form():
    model = tiny()
    attach(model, "encoder.blocks.0", NVIBConfig(kappa=3))
    part = model.encoder.blocks[0].attn.train()
    y = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(0)).double()
    torch.manual_seed(11)
    out = part(y, View(torch.arange(7).lt(5)[None, None, None]))
    torch.manual_seed(11)
    real = (torch.arange(7) < 5).expand(2, 7)
    z, log_weights = draw(part.bottleneck(y, real), 3)
    own = Mixture(z, z, log_weights, torch.ones_like(log_weights, dtype=torch.bool))
    assert z.shape == (2, 24, 32)
    assert (out - by_hand(part, y, own, mean_form=False)).abs().max() < 1e-12
    assert isinstance(part.bottleneck, Bottleneck)


def test_what_is_no_config_leaves_the_model_as_it_is():
    model = tiny()
    with pytest.raises(AttributeError):
        attach(model, "*", 0.25)
    assert {type(m) for m in model.modules() if isinstance(m, Attention)} == {Attention}


def test_a_regularised_attention_gets_no_bottleneck():
    model = tiny()
    name = "decoder.blocks.1.cross"
    site = model.get_submodule(name)
    prior = Prior(torch.zeros(32).double(), torch.ones(32).double(), 0.5, 0.8)
    convert(site, prior, Temperatures())
    assert attach(model, "*").skipped == {name: "regularised: `regard.nvib.restore` first"}
