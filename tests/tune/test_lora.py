"""LoRA on models: the start, what is trained, several adapters, merging, packed bases."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch

import regard
from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.precision import set_precision
from regard.train.config import LoRA
from regard.tune import lora

VARIANTS = [LoRA(r=3), LoRA(r=3, rslora=True, alpha=5), LoRA(r=3, dora=True)]


def adapter_parameters(model, name=""):
    """The parameters of one adapter, or of all, by name."""
    return {n: p for n, p in model.named_parameters() if f".adapters.{name}" in n}


def draw_weights(model, name="default", seed=1):
    """Give an adapter weights as if it were trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter_parameters(model, name).values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)


@pytest.fixture
def model():
    return regard.build(regard.model.presets.llama(16, 2, 4, 2, 32, 50, 64), seed=3).model


@pytest.fixture
def batch():
    return Batch(torch.arange(40).reshape(2, 20))


@pytest.mark.parametrize("config", VARIANTS, ids=str)
@pytest.mark.parametrize("train", [False, True])
def test_model_starts_bit_identical_and_names_stay(model, batch, config, train):
    names = [name for name, _ in model.named_parameters()]
    before = model.train(train)(batch)
    if (
        train
    ):  # in training q, k and v are one product: a map that does nothing more is called alone
        lora.attach(model, LoRA(r=1, targets=("*.attn.{q,k,v}",)))
        before = model(batch)
        lora.detach(model)
        config = replace(config, targets=("*.attn.{q,k,v}",))
    lora.attach(model, config)
    assert torch.equal(model(batch), before)
    assert [n for n, _ in model.named_parameters() if ".adapters." not in n] == names
    draw_weights(model)
    assert not torch.allclose(model(batch), before, atol=1e-3)
    with lora.adapters_off(model):
        assert torch.equal(model(batch), before)
    assert not torch.allclose(model(batch), before, atol=1e-3)


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_gradients_reach_the_adapter_only(model, batch, config):
    lora.attach(model, config)
    draw_weights(model)
    model.train()(batch).square().sum().backward()
    own = adapter_parameters(model)
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None and parameter.grad.any()) == (name in own), name
    assert len(own) == 2 * 2 * (3 if config.dora else 2)


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_output_is_the_closed_form(model, config):
    """Against float64: W + scale B A, its rows set to the magnitude where there is one."""
    config = replace(config, targets=("*.mlp.up",))
    lora.attach(model, config)
    draw_weights(model)
    linear = model.decoder.blocks[0].mlp.up
    low = linear.adapters["default"]
    scale = (config.alpha or 6) / (3**0.5 if config.rslora else 3)
    whole = linear.weight.double() + scale * low.b.double() @ low.a.double()
    if config.dora:
        whole *= (low.magnitude.double() / whole.norm(dim=1))[:, None]
    x = torch.randn(2, 5, 16)
    expected = x.double() @ whole.T
    assert torch.allclose(linear(x).double(), expected, atol=1e-5)
    assert torch.allclose(linear.merged().double(), whole, atol=1e-5)


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_merged_answers_as_unmerged(model, batch, config):
    lora.attach(model, config)
    draw_weights(model)
    before, base = model(batch), model.decoder.blocks[0].attn.q.weight.clone()
    lora.merge(model)
    assert type(model.decoder.blocks[0].attn.q) is torch.nn.Linear
    assert (model(batch) - before).abs().max() <= 1e-4
    delta = model.decoder.blocks[0].attn.q.weight - base
    if not config.dora:
        assert torch.linalg.matrix_rank(delta.double(), rtol=1e-4) == 3


def test_full_rank_fits_any_change():
    linear = torch.nn.Linear(6, 5)
    model = torch.nn.Sequential(linear)
    lora.attach(model, LoRA(r=5, alpha=5, targets=("0",)))
    target = linear.weight.detach() + torch.randn(5, 6)
    low = linear.adapters["default"]
    optimizer = torch.optim.LBFGS(low.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (linear.weight + low.scale * low.b @ low.a - target).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert (linear.merged() - target).abs().max() < 1e-4


def test_dropout_is_on_in_training_only(model, batch):
    lora.attach(model, LoRA(r=3, dropout=0.5))
    draw_weights(model)
    assert torch.equal(model(batch), model(batch))
    model.train()
    assert not torch.equal(model(batch), model(batch))


def test_two_adapters_are_switched_and_mixed(model, batch):
    base = model(batch)
    lora.attach(model, LoRA(r=2), "a")
    draw_weights(model, "a", 1)
    lora.attach(model, LoRA(r=3, dora=True, targets=("*.attn.q", "*.mlp.down")), "b")
    draw_weights(model, "b", 2)
    both = {}
    for name in ("a", "b"):
        lora.switch(model, name)
        both[name] = model(batch)
        assert lora.shares(model) == {"a": float(name == "a"), "b": float(name == "b")}
    assert not torch.allclose(both["a"], both["b"], atol=1e-3)
    lora.switch(model, None)
    assert torch.equal(model(batch), base)
    lora.switch(model, {"a": 0.25, "b": 0.5})
    q = model.decoder.blocks[0].attn.q
    a, b = q.adapters["a"], q.adapters["b"]
    for low, share in ((a, 0.25), (b, 0.5)):
        assert low.share == share
    a.share = b.share = 1.0
    deltas = a.delta(q.weight), b.delta(q.weight)
    lora.switch(model, {"a": 0.25, "b": 0.5})
    x = torch.randn(1, 4, 16)
    weight = q.weight + 0.25 * deltas[0] + 0.5 * deltas[1]
    assert torch.allclose(q(x), x @ weight.T, atol=1e-5)
    mixed = model(batch)
    lora.merge(model)
    assert torch.allclose(model(batch), mixed, atol=1e-4)


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_adapter_on_a_packed_base(model, batch, config):
    """Beside an int8 base the adapter adds what it adds beside the weights it stands for."""
    set_precision(model, "int8")
    before = model(batch)
    joint = model.decoder.blocks[0].attn.joint
    assert joint is not None
    lora.attach(model, config)
    assert torch.equal(model(batch), before)
    draw_weights(model)
    q, x = model.decoder.blocks[0].attn.q, torch.randn(2, 3, 16)
    low = q.adapters["default"]
    assert torch.allclose(q(x) - q.kind.forward(q, x), x @ low.delta(q.weight).T, atol=2e-2)
    assert not torch.allclose(model(batch), before, atol=1e-3)
    with pytest.raises(UsageError, match="int8"):
        lora.merge(model)
    lora.detach(model)
    assert torch.equal(model(batch), before) and model.decoder.blocks[0].attn.joint is not None


@pytest.mark.parametrize("config", VARIANTS[::2], ids=str)
def test_a_step_is_one_graph(model, batch, config):
    """`--compile` records a step as one graph, also while adapters are switched."""
    lora.attach(model, config)
    draw_weights(model)
    run = torch.compile(Model.hidden, fullgraph=True, backend="eager")
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        on, plain = run(model, batch, None), Model.hidden(model, batch, None)
        with lora.adapters_off(model):
            off = run(model, batch, None)
    assert torch.allclose(on, plain, atol=1e-2) and not torch.allclose(off, on, atol=1e-1)


def digest(model):
    held = [
        p.detach().numpy().tobytes() for n, p in model.named_parameters() if "adapters" not in n
    ]
    return hashlib.sha256(b"".join(held)).hexdigest()


def test_detach_gives_the_model_back(model, batch):
    before, bits = model(batch), digest(model)
    lora.attach(model, LoRA(r=4))
    draw_weights(model)
    lora.detach(model)
    assert torch.equal(model(batch), before) and digest(model) == bits
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (LoRA(r=17), ["r = 17", "decoder.blocks.0.attn.q", "16 × 16", "at most 16"]),
        (LoRA(r=9, targets=("*.attn.k",)), ["r = 9", "8 × 16", "at most 8"]),
        (LoRA(targets=("*.attn.p",)), ["*.attn.p", "decoder.blocks.*.attn"]),
        (LoRA(targets=("head.out",)), ["head.out"]),
    ],
)
def test_what_cannot_be_attached_is_refused(model, config, words):
    with pytest.raises(UsageError) as caught:
        lora.attach(model, config)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not lora.adapted(model) and all(p.requires_grad for p in model.parameters())


def test_settings_are_read_and_written_as_words():
    text = "r=4,alpha=16,dropout=0.1,rslora,dora,targets=*.attn.{q,v},*.mlp.up"
    config = LoRA(4, 16, ("*.attn.{q,v}", "*.mlp.up"), 0.1, True, True)
    assert LoRA.parse(text) == config and str(config) == text
    assert LoRA.parse("r=8") == LoRA() and str(LoRA()) == "r=8"
    for wrong in ("rank=8", "r=x", "r=0", "dropout=1", "r=8,dora=maybe", "r=2.5", ""):
        with pytest.raises(UsageError):
            LoRA.parse(wrong)
