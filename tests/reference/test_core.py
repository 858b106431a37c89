"""The fast model in float64 against the executable specification (MISSION #29, #52).

Every parameter is random, norms and biases too; agreement is 1e-12 of the largest value.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.core.attention import Attention, View
from regard.core.block import Block, Context
from regard.core.config import BlockConfig
from regard.kit import Kit
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from tests.properties.threads import one_thread  # noqa: F401
from tests.reference import formal_algorithms as ref

D, HEADS, VOCAB, LENGTH = 12, 3, 19, 16
CAUSAL = Context(View(causal=True), View())


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def randomise(module, seed=0):
    """Every parameter, so that a swapped or forgotten one cannot pass."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return module.double().eval()


def agree(found, expected):
    assert found.shape == expected.shape and found.dtype == torch.float64
    assert (found - expected).abs().max() <= 1e-12 * expected.abs().max()


# From the state dict of a module to the parameters of the specification -------------------------


def pair(state, name):
    return state[f"{name}.weight"], state.get(f"{name}.bias")


def part(state, path):
    """The maps and the norm of an attention or an MLP, those that it has."""
    names = [n for n in ("norm", "q", "k", "v", "o", "up", "down") if f"{path}.{n}.weight" in state]
    return {name: pair(state, f"{path}.{name}") for name in names}


def block(state, path=""):
    parts = [n for n in ("attn", "cross", "mlp") if f"{path}{n}.norm.weight" in state]
    return {name: part(state, f"{path}{name}") for name in parts}


def stack(model, name):
    state = model.state_dict()
    depth = getattr(model.config, name).depth
    return [block(state, f"{name}.blocks.{layer}.") for layer in range(depth)]


def decoder():
    """GPT: pre-norm, exact GELU, learned positions, a final norm."""
    config = presets.gpt2(D, 2, HEADS, VOCAB, LENGTH)
    shape = replace(config.decoder.block, act="gelu")
    config = replace(config, decoder=replace(config.decoder, block=shape))
    model = randomise(Model(config))
    state = model.state_dict()
    return model, {
        "tokens": state["front.tokens.weight"],
        "positions": state["front.positions.weight"],
        "blocks": stack(model, "decoder"),
        "norm": pair(state, "decoder.norm"),
        "head": pair(state, "head.out"),
    }


def encoder():
    """BERT: post-norm, a norm on the embeddings, linear + GELU + norm before the scores."""
    model = randomise(Model(presets.bert(D, 2, HEADS, VOCAB, LENGTH)), 1)
    state = model.state_dict()
    return model, {
        "tokens": state["front.tokens.weight"],
        # One segment: its vector is the same for every token and can be part of the position.
        "positions": state["front.positions.weight"] + state["front.segments.weight"][0],
        "embed_norm": pair(state, "front.norm"),
        "blocks": stack(model, "encoder"),
        "final": {"linear": pair(state, "head.dense"), "norm": pair(state, "head.norm")},
        "head": pair(state, "head.out"),
    }


def encoder_decoder():
    """Vaswani 2017: post-norm, ReLU; learned positions in place of waves, as in the paper."""
    config = presets.transformer(D, 2, HEADS, VOCAB)
    text = replace(config.front, position="learned", length=LENGTH, scale=False)
    model = randomise(Model(replace(config, front=text, target=text)), 2)
    with torch.no_grad():
        model.target.positions.weight.copy_(model.front.positions.weight)  # one table in the paper
    state = model.state_dict()
    return model, {
        "tokens": state["front.tokens.weight"],
        "positions": state["front.positions.weight"],
        "encoder": stack(model, "encoder"),
        "decoder": stack(model, "decoder"),
        "head": pair(state, "head.out"),
    }


SOURCE = torch.tensor([3, 1, 4, 1, 5, 9, 2])
TARGET = torch.tensor([0, 8, 2, 8, 18])

# Parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["fused", "explicit"])
@pytest.mark.parametrize("heads", [1, 3, 6])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_multi_head(path, heads, causal):
    attention = randomise(Attention(BlockConfig(D, heads, 20), 0, cross=True))
    attention.at.pattern.fn = None if path == "fused" else (lambda x: x)
    W = part({f"a.{n}": p for n, p in attention.state_dict().items()}, "a")
    x, z = randn(5, D), randn(5, D, seed=1)
    mask = ref.causal(5) if causal else None
    found = attention(x[None], View(causal=causal), source=z[None])[0]
    agree(found, ref.mh_attention(x, z, W, heads, mask))
    if heads == 1:
        agree(found, ref.linear(ref.attention(x, z, W, mask), W["o"]))


@pytest.mark.parametrize("path", ["fused", "explicit"])
def test_rows_that_see_nothing(path):
    attention = randomise(Attention(BlockConfig(D, HEADS, 20), 0))
    attention.at.pattern.fn = None if path == "fused" else (lambda x: x)
    W = part({f"a.{n}": p for n, p in attention.state_dict().items()}, "a")
    x, mask = randn(4, D), randn(4, 4, seed=3) > 0.3
    mask[2] = False
    live = mask.any(-1)[None, None, :, None]
    found = attention(x[None], View(mask=mask[None, None] | ~live, live=live))[0]
    agree(found, ref.mh_attention(x, x, W, HEADS, mask))


@pytest.mark.parametrize("act", ["relu", "gelu"])
def test_pre_norm_block(act):
    module = randomise(Block(BlockConfig(D, HEADS, 20, act=act), 0))
    x, function = randn(6, D), {"relu": torch.relu, "gelu": ref.gelu}[act]
    W = block(module.state_dict())
    agree(
        module(x[None], CAUSAL)[0],
        ref.pre_norm_block(x, W, HEADS, function, 1e-5, ref.causal(6)),
    )


@pytest.mark.parametrize("cross", [False, True])
def test_post_norm_block(cross):
    config = BlockConfig(D, HEADS, 20, act="relu", norm_at="post", cross=cross)
    module = randomise(Block(config, 0))
    x, memory = randn(6, D), randn(4, D, seed=1) if cross else None
    W = block(module.state_dict())
    given = None if memory is None else memory[None]
    expected = ref.post_norm_block(x, W, HEADS, torch.relu, 1e-5, ref.causal(6), memory)
    agree(module(x[None], CAUSAL, given)[0], expected)


# Models ---------------------------------------------------------------------------------------


@torch.no_grad()
def test_decoder():
    model, P = decoder()
    agree(model(Batch(SOURCE[None]))[0].softmax(-1), ref.d_transformer(SOURCE, P, HEADS))


@torch.no_grad()
def test_encoder():
    model, P = encoder()
    agree(model(Batch(SOURCE[None]))[0].softmax(-1), ref.e_transformer(SOURCE, P, HEADS))


@torch.no_grad()
def test_encoder_decoder():
    model, P = encoder_decoder()
    found = model(Batch(SOURCE[None], TARGET[None]))[0].softmax(-1)
    agree(found, ref.ed_transformer(SOURCE, TARGET, P, HEADS))


@torch.no_grad()
@pytest.mark.parametrize("build", [decoder, encoder])
def test_strict_mode_too(build):
    model, P = build()
    formal = ref.d_transformer if build is decoder else ref.e_transformer
    found = Kit(model).logits(SOURCE[None], strict=True)[0].softmax(-1)
    agree(found, formal(SOURCE, P, HEADS))


@torch.no_grad()
@pytest.mark.parametrize("name", ["attn.norm", "mlp.norm", "attn.q", "attn.o", "mlp.up"])
def test_any_changed_parameter_would_show(name):
    model, P = decoder()
    changed = model.decoder.blocks[1].get_submodule(name)
    assert isinstance(changed, nn.Linear | nn.LayerNorm)
    changed.bias[0] += 0.1
    expected = ref.d_transformer(SOURCE, P, HEADS)
    same = (model(Batch(SOURCE[None]))[0].softmax(-1) - expected).abs().max()
    assert same <= 1e-12  # the specification reads the same tensors
    copied = {key: value.clone() for key, value in model.state_dict().items()}
    changed.bias[0] += 0.1
    P["blocks"] = [block(copied, f"decoder.blocks.{layer}.") for layer in range(2)]
    moved = ref.d_transformer(SOURCE, P, HEADS)
    assert (model(Batch(SOURCE[None]))[0].softmax(-1) - moved).abs().max() > 1e-6


# Losses and inference -------------------------------------------------------------------------


def loss(logits, ids):
    return F.cross_entropy(logits, ids, reduction="sum")


def test_loss_and_gradient_of_a_decoder():
    model, _ = decoder()
    found = loss(model(Batch(SOURCE[None]))[0, :-1], SOURCE[1:])
    names = [n for n, _ in model.named_parameters()]
    ours = torch.autograd.grad(found, list(model.parameters()))
    leaves = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}
    state = leaves | {"head.out.weight": leaves["front.tokens.weight"]}
    P = {
        "tokens": state["front.tokens.weight"],
        "positions": state["front.positions.weight"],
        "blocks": [block(state, f"decoder.blocks.{layer}.") for layer in range(2)],
        "norm": pair(state, "decoder.norm"),
        "head": pair(state, "head.out"),
    }
    expected = ref.d_training(SOURCE, P, heads=HEADS)
    agree(found.detach(), expected.detach())
    theirs = torch.autograd.grad(expected, list(leaves.values()))
    largest = max(float(g.abs().max()) for g in theirs)
    for name, one, other in zip(names, ours, theirs, strict=True):
        assert (one - other).abs().max() <= 1e-11 * largest, name


@torch.no_grad()
def test_loss_of_an_encoder():
    model, P = encoder()
    hidden = torch.tensor([False, True, False, False, True, False, True])
    logits = model(Batch(SOURCE.masked_fill(hidden, 18)[None]))[0]
    expected = ref.e_training(SOURCE, hidden, 18, P, heads=HEADS)
    agree(loss(logits[hidden], SOURCE[hidden]), expected)


@torch.no_grad()
def test_loss_of_an_encoder_decoder():
    model, P = encoder_decoder()
    logits = model(Batch(SOURCE[None], TARGET[None]))[0]
    agree(loss(logits[:-1], TARGET[1:]), ref.ed_training(SOURCE, TARGET, P, heads=HEADS))


@pytest.mark.parametrize("strict", [False, True])
def test_greedy_inference_of_a_decoder(strict):
    model, P = decoder()
    found = Kit(model).generate(SOURCE[None], max_new=8, strict=strict)[0]
    expected = ref.d_inference(SOURCE, P, 8, temperature=0.0, heads=HEADS)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("strict", [False, True])
def test_greedy_inference_of_an_encoder_decoder(strict):
    model, P = encoder_decoder()
    kit = Kit(model, config={"decoder_start_token_id": 0})
    found = kit.generate(SOURCE[None], max_new=LENGTH - 1, strict=strict)[0]
    expected = ref.ed_inference(SOURCE, P, 0, VOCAB, temperature=0.0, heads=HEADS)
    assert found.tolist() == expected.tolist()[1:]
