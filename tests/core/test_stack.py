"""Stack: depth, final norm, positions inside attention, and what each token may see."""

from __future__ import annotations

import pytest
import torch

from regard.core import mask as masks
from regard.core.attention import View
from regard.core.block import Context
from regard.core.config import BlockConfig, StackConfig
from regard.core.stack import Stack, cross_view, join_view

PLAIN = Context(View(), View())


def build(depth=2, seed=0, position="none", final_norm=True, **options):
    stack = Stack(
        StackConfig(BlockConfig(12, 3, 20, **options), depth, position, final_norm=final_norm)
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return stack.eval()


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def allowed(view, count, keys, batch=1):
    """The mask of a view as booleans (B, 1, T, S), however it is stored."""
    if view.mask is None:
        whole = masks.causal(count, keys) if view.causal else torch.ones(1, 1, count, keys).bool()
        return whole.expand(batch, 1, count, keys)
    mask = view.mask if view.mask.dtype == torch.bool else view.mask > -torch.inf
    live = torch.ones(1, dtype=torch.bool) if view.live is None else view.live
    return (mask & live)[:, :1].expand(batch, 1, count, keys)


def test_blocks_in_order_then_the_norm():
    stack, x = build(), randn(2, 5, 12)
    expected = stack.norm(stack.blocks[1](stack.blocks[0](x, PLAIN), PLAIN))
    assert torch.equal(stack(x, PLAIN), expected)
    bare = build(final_norm=False)
    assert torch.equal(bare(x, PLAIN), bare.blocks[1](bare.blocks[0](x, PLAIN), PLAIN))
    assert not any(name.startswith("norm") for name, _ in bare.named_parameters())


def test_no_blocks_is_the_norm_alone():
    stack, x = build(depth=0), randn(2, 5, 12)
    assert torch.equal(stack(x, PLAIN), stack.norm(x))


def test_taps_at_both_ends():
    stack, x, seen = build(), randn(1, 3, 12), {}
    for name in ("embed", "final"):
        getattr(stack.at, name).fn = lambda value, name=name: seen.setdefault(name, value)
    out = stack(x, PLAIN)
    assert torch.equal(seen["embed"], x) and torch.equal(seen["final"], out)


# Views ----------------------------------------------------------------------------------------

PLACES = torch.arange(6)[None]


def test_an_encoder_sees_all_and_a_decoder_what_came_before():
    x = randn(1, 6, 12)
    assert allowed(build().view(x, PLACES), 6, 6).all()
    view = build(causal=True).view(x, PLACES)
    assert view.mask is None and view.causal  # left to the kernel
    one = build(causal=True).view(x[:, :1], PLACES[:, :1])
    assert one.mask is None and not one.causal


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("position", ["none", "relative", "alibi"])
def test_views_against_brute_force(causal, window, position):
    """Padding, documents, order and window together, for each pair of tokens."""
    stack = build(position=position, causal=causal, window=window)
    real = torch.tensor(
        [[False, True, True, True, True, True], [True, True, True, True, False, False]]
    )
    document = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 0, 0]])
    positions = masks.positions(real, document)
    view = stack.view(randn(2, 6, 12), positions, real, document)
    found = allowed(view, 6, 6, batch=2)
    for b in range(2):
        for i in range(6):
            for j in range(6):
                behind = int(positions[b, i] - positions[b, j])
                expected = (
                    bool(real[b, j])
                    and document[b, i] == document[b, j]
                    and (not causal or j <= i)
                    and (window is None or behind < window)
                )
                assert bool(found[b, 0, i, j]) == expected, (b, i, j)


@pytest.mark.parametrize("position", ["relative", "alibi"])
def test_a_bias_is_shared_by_all_blocks(position):
    stack = build(position=position, causal=True)
    view = stack.view(randn(1, 6, 12), PLACES)
    expected = stack.bias(PLACES, PLACES).masked_fill(~masks.causal(6, 6), -torch.inf)
    assert torch.equal(view.mask, expected)
    assert sum("bias.weight" in name for name, _ in stack.named_parameters()) <= 1


def test_positions_inside_attention_follow_the_given_positions():
    """Rotary, relative and ALiBi see distances only: the same shift for all changes nothing."""
    x = randn(1, 6, 12).double()
    for position in ("rotary", "relative", "alibi"):
        stack = build(position=position, causal=True).double()
        out, moved, stretched = (
            stack(x, Context(stack.view(x, places), View()))
            for places in (PLACES, PLACES + 40, PLACES * 3)
        )
        torch.testing.assert_close(out, moved, rtol=0, atol=1e-10)
        assert (out - stretched).abs().max() > 1e-3


def test_a_window_wider_than_the_sequence_is_no_window():
    x = randn(1, 6, 12)
    wide, plain = build(causal=True, window=6), build(causal=True)
    views = [stack.view(x, PLACES) for stack in (wide, plain)]
    assert torch.equal(*(allowed(view, 6, 6) for view in views))


def test_cross_views():
    real = torch.tensor([[True, False, True], [False, False, False]])
    view = cross_view(real)
    found = allowed(view, 4, 3, 2)
    assert torch.equal(found, real[:, None, None].expand(2, 1, 4, 3))
    queries, keys = torch.tensor([[0, 1, 2]]), torch.tensor([[1, 1, 0]])
    packed = allowed(cross_view(None, (queries, keys)), 3, 3)
    assert packed[0, 0].tolist() == [[False, False, True], [True, True, False], [False] * 3]
    assert cross_view() == View()


def test_joining_a_mask_and_a_bias():
    allow = torch.tensor([[[[True, False], [False, False]]]])
    bias = torch.ones(1, 2, 2, 2)
    view = join_view(allow, bias)
    assert view.mask[0, 0].tolist() == [[1.0, -torch.inf], [1.0, 1.0]]
    assert view.live.flatten().tolist() == [True, False]
    assert join_view(bias).mask is bias
    assert join_view(allow, dead=False).mask is allow
