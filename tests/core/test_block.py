"""Block: one wiring for every part (MISSION #44, #46)."""

from __future__ import annotations

import pytest
import torch

from regard.core.attention import View
from regard.core.block import Block, Context
from regard.core.config import BlockConfig

PLAIN = Context(View(), View())


def build(seed=0, **options):
    block = Block(BlockConfig(12, 3, 20, **options), 0)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return block.eval()


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def silence(block):
    """Zero weights and biases of the last map of each part."""
    for part in filter(None, (block.attn, block.cross)):
        part.o.weight.zero_()
        part.o.bias.zero_()
    block.mlp.down.weight.zero_()
    block.mlp.down.bias.zero_()


@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
@pytest.mark.parametrize("cross", [False, True])
def test_a_silent_pre_norm_block_is_the_identity(norm, cross):
    block = build(norm=norm, cross=cross)
    x, memory = randn(2, 5, 12), randn(2, 4, 12, seed=1) if cross else None
    assert not torch.equal(block(x, PLAIN, memory), x)
    silence(block)
    assert torch.equal(block(x, PLAIN, memory), x)


def test_a_silent_post_norm_block_is_two_norms():
    block, x = build(norm_at="post"), randn(2, 5, 12)
    silence(block)
    assert torch.equal(block(x, PLAIN), block.mlp.norm(block.attn.norm(x)))


@pytest.mark.parametrize("cross", [False, True])
def test_pre_norm_by_hand(cross):
    block, x, memory = build(cross=cross), randn(2, 5, 12), randn(2, 4, 12, seed=1)
    expected = x + block.attn(block.attn.norm(x), View())
    if cross:
        expected = expected + block.cross(block.cross.norm(expected), View(), source=memory)
    expected = expected + block.mlp(block.mlp.norm(expected))
    assert torch.equal(block(x, PLAIN, memory if cross else None), expected)


@pytest.mark.parametrize("cross", [False, True])
def test_post_norm_by_hand(cross):
    block, x = build(cross=cross, norm_at="post"), randn(2, 5, 12)
    memory = randn(2, 4, 12, seed=1)
    expected = block.attn.norm(x + block.attn(x, View()))
    if cross:
        expected = block.cross.norm(expected + block.cross(expected, View(), source=memory))
    expected = block.mlp.norm(expected + block.mlp(expected))
    assert torch.equal(block(x, PLAIN, memory if cross else None), expected)


@pytest.mark.parametrize("norm_at", ["pre", "post"])
def test_without_the_shortcut(norm_at):
    block, x = build(norm_at=norm_at), randn(2, 5, 12)
    block.residual = False
    if norm_at == "pre":
        middle = block.attn(block.attn.norm(x), View())
        expected = block.mlp(block.mlp.norm(middle))
    else:
        middle = block.attn.norm(block.attn(x, View()))
        expected = block.mlp.norm(block.mlp(middle))
    assert torch.equal(block(x, PLAIN), expected)
    silence(block)
    if norm_at == "pre":
        assert torch.equal(block(x, PLAIN), torch.zeros_like(x))  # nothing carries the input on


@pytest.mark.parametrize("norm_at", ["pre", "post"])
def test_equivariant_without_positions(norm_at):
    block, x = build(norm_at=norm_at).double(), randn(2, 6, 12).double()
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    moved = block(x[:, order], PLAIN)
    torch.testing.assert_close(moved, block(x, PLAIN)[:, order], rtol=0, atol=1e-12)


def test_the_stream_is_tapped_before_between_and_after():
    block, x, seen = build(cross=True), randn(1, 3, 12), {}
    for name in ("pre", "mid", "post"):
        tap = getattr(block.at, f"resid_{name}")
        tap.fn = lambda value, name=name: seen.setdefault(name, value)
    out = block(x, PLAIN, randn(1, 2, 12, seed=1))
    assert torch.equal(seen["pre"], x) and torch.equal(seen["post"], out)
    assert torch.equal(seen["mid"], x + block.attn(block.attn.norm(x), View()))  # before cross


def test_post_norm_taps_the_stream_after_the_norm():
    block, x, seen = build(norm_at="post"), randn(1, 3, 12), {}
    block.at.resid_mid.fn = lambda value: seen.setdefault("mid", value)
    block(x, PLAIN)
    assert torch.equal(seen["mid"], block.attn.norm(x + block.attn(x, View())))


def test_dropout_is_on_the_parts_and_not_on_the_shortcut():
    block, x = build(dropout=1.0), randn(2, 3, 12)
    assert torch.equal(block.train()(x, PLAIN), x)
    assert not torch.equal(block.eval()(x, PLAIN), x)


@pytest.mark.parametrize("norm_at", ["pre", "post"])
@pytest.mark.parametrize("gated", [False, True])
def test_gradients_in_float64(norm_at, gated):
    block = Block(BlockConfig(4, 2, 6, cross=True, norm_at=norm_at, gated=gated), 0).double()
    torch.manual_seed(0)
    x, memory = (torch.randn(1, n, 4).double().requires_grad_() for n in (3, 2))
    view = Context(View(causal=True), View())
    assert torch.autograd.gradcheck(lambda x, m: block(x, view, m), (x, memory), fast_mode=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 3e-2), (torch.float16, 2e-2)])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_narrow_dtypes(dtype, tolerance, norm):
    block, x = build(norm=norm), randn(2, 7, 12)
    expected = block(x, PLAIN)
    found = block.to(dtype)(x.to(dtype), PLAIN)
    assert found.dtype == dtype
    assert (found.float() - expected).abs().max() <= tolerance * expected.abs().max()


def test_parameter_names_read_like_sentences():
    names = {name for name, _ in build(cross=True, gated=True).named_parameters()}
    attention = {f"{map}.{p}" for map in ("q", "k", "v", "o", "norm") for p in ("weight", "bias")}
    mlp = {f"{map}.{p}" for map in ("up", "gate", "down", "norm") for p in ("weight", "bias")}
    assert names == (
        {f"attn.{n}" for n in attention}
        | {f"cross.{n}" for n in attention}
        | {f"mlp.{n}" for n in mlp}
    )
