"""Attention: fused and explicit, self and cross, many heads and few (MISSION #29–#36)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from regard.core import mask as masks
from regard.core.attention import Attention, View
from regard.core.config import BlockConfig
from regard.core.position import Rotary
from regard.core.stack import join_view

PATHS = pytest.mark.parametrize("path", ["fused", "explicit"])


def build(dim=12, heads=3, seed=0, cross=False, **options) -> Attention:
    """Every parameter random, biases too."""
    attention = Attention(BlockConfig(dim, heads, 8, **options), 0, cross)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return attention


def take(attention: Attention, path: str) -> Attention:
    """A listener at the pattern makes the attention explicit."""
    attention.at.pattern.fn = None if path == "fused" else (lambda x: x)
    return attention


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_hand(attention, x, source, allow=None):
    """The definition, head by head; returns the output and each head's part of it."""
    heads, groups, width = attention.heads, attention.groups, attention.width
    q, k, v = attention.q(x), attention.k(source), attention.v(source)
    parts = []
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        group = head // (heads // groups)
        shared = slice(group * width, (group + 1) * width)
        scores = q[..., own] @ k[..., shared].transpose(-1, -2) / width**0.5
        if allow is not None:
            scores = scores.masked_fill(~allow[:, 0], -torch.inf)
        z = scores.softmax(-1) @ v[..., shared]
        parts.append(z @ attention.o.weight[:, own].T)
    bias = 0 if attention.o.bias is None else attention.o.bias
    return sum(parts) + bias


@PATHS
@settings(max_examples=15, deadline=None)
@given(
    batch=st.integers(1, 3),
    target=st.integers(1, 6),
    source=st.integers(1, 6),
    heads=st.sampled_from([(1, 1), (2, 1), (3, 3), (4, 2), (4, 1), (6, 3)]),
    seed=st.integers(0, 99),
)
def test_sum_over_heads(path, batch, target, source, heads, seed):
    """Y = Σ_h W_o^h head_h for one head, several, grouped and a single key-value head."""
    count, groups = heads
    attention = take(build(12, count, seed, cross=True, kv_heads=groups), path).double()
    x, z = randn(batch, target, 12).double(), randn(batch, source, 12, seed=1).double()
    allow = torch.rand(batch, 1, target, source) > 0.4
    allow[..., 0] = True
    found = attention(x, View(mask=allow), source=z)
    torch.testing.assert_close(found, by_hand(attention, x, z, allow), rtol=0, atol=1e-12)


def test_self_attention_is_cross_attention_to_oneself():
    attention, x = build(), randn(2, 5, 12)
    assert torch.equal(attention(x, View()), attention(x, View(), source=x))


@PATHS
def test_all_key_value_heads_is_plain_multi_head(path):
    plain, grouped = build(12, 3), build(12, 3, kv_heads=3)
    x = randn(2, 5, 12)
    assert torch.equal(take(plain, path)(x, View()), take(grouped, path)(x, View()))


@PATHS
def test_grouped_queries_are_multi_head_with_repeated_keys(path):
    """Each key-value head copied to its queries gives the same as sharing it."""
    grouped, plain = build(12, 6, kv_heads=2), build(12, 6)
    with torch.no_grad():
        plain.q.load_state_dict(grouped.q.state_dict())
        plain.o.load_state_dict(grouped.o.state_dict())
        for name in ("k", "v"):
            ours, theirs = getattr(plain, name), getattr(grouped, name)
            rows = theirs.weight.view(2, 2, 12).repeat_interleave(3, 0).flatten(0, 1)
            ours.weight.copy_(rows)
            ours.bias.copy_(theirs.bias.view(2, 2).repeat_interleave(3, 0).flatten())
    x = randn(2, 5, 12)
    found, expected = (take(a, path)(x, View(causal=True)) for a in (grouped, plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_parity_with_torch_multi_head_attention():
    attention = build(12, 3)
    torchs = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        three = [attention.q, attention.k, attention.v]
        torchs.in_proj_weight.copy_(torch.cat([part.weight for part in three]))
        torchs.in_proj_bias.copy_(torch.cat([part.bias for part in three]))
        torchs.out_proj.load_state_dict(attention.o.state_dict())
    x, z = randn(2, 4, 12), randn(2, 6, 12, seed=1)
    expected, weights = torchs(x, z, z, average_attn_weights=False)
    torch.testing.assert_close(attention(x, View(), source=z), expected, rtol=0, atol=1e-6)
    seen = []
    attention.at.pattern.fn = lambda p: seen.append(p) or p
    attention(x, View(), source=z)
    torch.testing.assert_close(seen[0], weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("similarity", ["dot", "gaussian", "distance"])
def test_other_similarities_in_the_layer(similarity):
    """Only dot has a fused kernel; the others are explicit whoever listens."""
    attention = build(12, 3, similarity=similarity)
    x = randn(2, 5, 12)
    q, k, v = (
        part(x).unflatten(-1, (3, 4)).transpose(1, 2)
        for part in (attention.q, attention.k, attention.v)
    )
    scale = 4**-0.5
    apart = (q[:, :, :, None] - k[:, :, None]).norm(dim=-1)
    scores = {
        "dot": q @ k.transpose(-1, -2) * scale,
        "gaussian": -apart.square() * scale / 2,
        "distance": -apart * scale,
    }[similarity]
    z = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(attention(x, View()), attention.o(z), rtol=0, atol=1e-5)


def test_gaussian_equals_dot_with_keys_of_one_norm():
    """A norm on the keys whose weight is constant makes them all equally long."""
    dot, gaussian = (
        build(12, 3, qk_norm=True, eps=1e-14, similarity=kind) for kind in ("dot", "gaussian")
    )
    with torch.no_grad():
        for attention in (dot, gaussian):
            attention.k_norm.weight.fill_(1.3)
    x = randn(2, 5, 12).double()
    found, expected = (attention.double()(x, View()) for attention in (gaussian, dot))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)


def test_norm_on_queries_and_keys():
    attention, x = build(12, 3, qk_norm=True), randn(1, 4, 12)
    seen = {}
    attention.at.q.fn = lambda q: seen.setdefault("q", q)
    attention(x, View())
    plain = attention.q(x).unflatten(-1, (3, 4))
    expected = F.rms_norm(plain, (4,), attention.q_norm.weight, 1e-5)
    torch.testing.assert_close(seen["q"], expected)


def test_scale_is_a_choice():
    free, fixed = build(12, 3), build(12, 3, scale=4**-0.5)
    x = randn(1, 4, 12)
    assert torch.equal(free(x, View()), fixed(x, View()))
    assert not torch.equal(free(x, View()), build(12, 3, scale=1.0)(x, View()))


# Laws -----------------------------------------------------------------------------------------


@PATHS
@settings(max_examples=15, deadline=None)
@given(target=st.integers(1, 6), source=st.integers(1, 6), seed=st.integers(0, 99))
def test_permutations_leave_what_they_should(path, target, source, seed):
    attention = take(build(seed=seed, cross=True), path).double()
    x, z = randn(1, target, 12, seed=seed).double(), randn(1, source, 12, seed=seed + 1).double()
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(n, generator=generator) for n in (target, source))
    out = attention(x, View(), source=z)
    moved = attention(x[:, rows], View(), source=z[:, columns])
    torch.testing.assert_close(moved, out[:, rows], rtol=0, atol=1e-12)


@PATHS
def test_zero_queries_average_and_one_key_answers_alone(path):
    attention, z = take(build(cross=True), path).double(), randn(2, 6, 12).double()
    with torch.no_grad():
        attention.q.weight.zero_()
        attention.q.bias.zero_()
    mean = attention.o(attention.v(z).mean(1, keepdim=True))
    found = attention(randn(2, 3, 12).double(), View(), source=z)
    torch.testing.assert_close(found, mean.expand(2, 3, 12), rtol=0, atol=1e-12)
    seen = []
    other = take(build(cross=True, seed=4), path)
    other.at.z.fn = lambda value: seen.append(value) or value
    one = randn(2, 1, 12)
    other(randn(2, 3, 12), View(), source=one)
    value = other.v(one).unflatten(-1, (3, 4)).expand(2, 3, 3, 4)
    assert torch.equal(seen[0], value)


@PATHS
def test_key_bias_changes_nothing(path):
    attention, x = take(build(), path).double(), randn(2, 5, 12).double()
    before = attention(x, View(causal=True))
    with torch.no_grad():
        attention.k.bias.add_(randn(12, seed=3).double())
    torch.testing.assert_close(attention(x, View(causal=True)), before, rtol=0, atol=1e-12)


def test_patterns_are_distributions_and_z_in_the_hull_of_the_values():
    attention, x, seen = build(), randn(2, 6, 12), {}
    for name in ("pattern", "z", "v"):
        getattr(attention.at, name).fn = lambda value, name=name: seen.setdefault(name, value)
    attention(x, View(causal=True))
    pattern, z, v = seen["pattern"], seen["z"], seen["v"]
    assert (pattern >= 0).all() and (pattern.triu(1) == 0).all()
    torch.testing.assert_close(pattern.sum(-1), torch.ones(2, 3, 6))
    lowest, highest = v.cummin(1).values, v.cummax(1).values  # of the keys each query may see
    assert (z >= lowest - 1e-6).all() and (z <= highest + 1e-6).all()


# Masks and shapes -----------------------------------------------------------------------------


@PATHS
def test_fully_masked_rows_are_zero_with_finite_gradients(path):
    """Row 1 of the first sequence may see nothing; all of the second sequence may see nothing."""
    attention = take(build(bias=("q", "k", "v")), path)
    allow = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    allow[0, 0, 1], allow[1] = False, False
    x = randn(2, 3, 12).requires_grad_()
    seen = []
    if path == "explicit":
        attention.at.pattern.fn = lambda p: seen.append(p) or p
    out = attention(x, join_view(allow))
    assert (out[0, 1] == 0).all() and (out[1] == 0).all() and (out[0, 0] != 0).all()
    assert all((p[0, :, 1] == 0).all() and (p[1] == 0).all() for p in seen)
    out.square().sum().backward()
    assert x.grad.isfinite().all() and x.grad[0].abs().max() > 0
    assert all(p.grad.isfinite().all() for p in attention.parameters() if p.grad is not None)


@PATHS
def test_fully_masked_rows_with_a_bias(path):
    attention = take(build(bias=("q", "k", "v")), path)
    allow = torch.tensor([[[[True, False], [False, False]]]])
    x = randn(1, 2, 12).requires_grad_()
    out = attention(x, join_view(allow, randn(1, 3, 2, 2, seed=5)))
    assert (out[0, 1] == 0).all() and out.isfinite().all()
    out.sum().backward()
    assert x.grad.isfinite().all()


@PATHS
def test_a_bias_is_added_to_the_scores(path):
    attention = take(build(), path).double()
    x, bias = randn(2, 4, 12).double(), randn(1, 3, 4, 4, seed=2).double()
    allow = masks.causal(4, 4)
    q, k, v = (
        part(x).unflatten(-1, (3, 4)).transpose(1, 2)
        for part in (attention.q, attention.k, attention.v)
    )
    scores = (q @ k.transpose(-1, -2) / 2 + bias).masked_fill(~allow, -torch.inf)
    expected = attention.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
    found = attention(x, join_view(allow, bias, dead=False))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@PATHS
def test_the_causal_flag_is_the_causal_mask(path):
    attention, x = take(build(), path), randn(2, 5, 12)
    flag, mask = View(causal=True), View(mask=masks.causal(5, 5))
    torch.testing.assert_close(attention(x, flag), attention(x, mask), rtol=0, atol=1e-6)


@PATHS
def test_an_empty_memory_answers_nothing(path):
    """No key at all: the answer is the output bias alone, and gradients are finite."""
    attention = take(build(cross=True, kv_heads=1), path)
    x = randn(2, 3, 12).requires_grad_()
    out = attention(x, View(), source=torch.zeros(2, 0, 12))
    assert torch.equal(out, attention.o.bias.expand(2, 3, 12))
    out.sum().backward()
    assert x.grad is None or (x.grad == 0).all()


@PATHS
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 1), (3, 1, 4), (2, 0, 2)])
def test_small_shapes(path, shape):
    batch, length, heads = shape
    attention = take(build(8, heads), path)
    x = randn(batch, length, 8)
    out = attention(x, View(causal=length > 1))
    assert out.shape == x.shape and out.isfinite().all()
    if length:
        torch.testing.assert_close(out[:, 0], attention.o(attention.v(x[:, 0])))


@PATHS
def test_rotation_turns_queries_and_keys_but_not_values(path):
    attention, x, seen = take(build(12, 3), path), randn(1, 5, 12), {}
    for name in "qkv":
        getattr(attention.at, name).fn = lambda value, name=name: seen.setdefault(name, value)
    rotation = Rotary(4, 1e4)(torch.arange(5)[None] + 3, x)
    attention(x, View(causal=True, rotation=rotation))
    plain = attention.v(x).unflatten(-1, (3, 4))
    assert torch.equal(seen["v"], plain)
    for name, part in (("q", attention.q), ("k", attention.k)):
        unturned = part(x).unflatten(-1, (3, 4))
        torch.testing.assert_close(seen[name].norm(dim=-1), unturned.norm(dim=-1))
        assert not torch.allclose(seen[name], unturned, atol=1e-2)


@PATHS
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_in_float64(path, groups):
    attention = take(build(4, 2, kv_heads=groups), path).double()
    x = randn(1, 3, 4).double().requires_grad_()
    names = [name for name, _ in attention.named_parameters() if "norm" not in name]
    weights = [attention.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def call(x, *values):
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(attention, given, (x, View(causal=True)))

    assert torch.autograd.gradcheck(call, (x, *weights))


@PATHS
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 3e-2), (torch.float16, 2e-2)])
def test_narrow_dtypes(path, dtype, tolerance):
    attention = take(build(32, 4, seed=2), path)
    x = randn(2, 9, 32) * 0.5
    expected = attention(x, View(causal=True))
    found = attention.to(dtype)(x.to(dtype), View(causal=True))
    assert found.dtype == dtype
    gap = (found.float() - expected).abs().max() / expected.abs().max()
    assert gap <= tolerance


def test_fused_unless_somebody_listens(monkeypatch):
    attention, x, calls = build(), randn(1, 3, 12), []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or kernel(*a, **k)
    )
    attention(x, View())
    assert len(calls) == 1
    for name in ("scores", "pattern"):
        getattr(attention.at, name).fn = lambda value: value
        attention(x, View())
        getattr(attention.at, name).fn = None
    assert len(calls) == 1
    attention.at.z.fn = attention.at.q.fn = lambda value: value
    attention(x, View())
    assert len(calls) == 2


@pytest.mark.parametrize("bias", [("q", "k", "v", "o"), (), ("q", "v", "o")])
@pytest.mark.parametrize("cross", [False, True])
def test_joined_products_of_training_give_what_single_ones_give(bias, cross) -> None:
    torch.manual_seed(0)
    attention = Attention(BlockConfig(12, 6, 8, kv_heads=2, bias=bias), 0, cross=cross).double()
    x, source = torch.randn(2, 5, 12).double(), torch.randn(2, 4, 12).double()
    results = []
    for mode in (True, False):
        attention.train(mode)
        attention.zero_grad()
        out = attention(x, View(), source=source if cross else None)
        out.square().sum().backward()
        results.append(
            [
                out.detach(),
                *(p.grad.clone() for n, p in attention.named_parameters() if "norm" not in n),
            ]
        )
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-12)
