"""Norms against torch and the formulas of the lecture (MISSION #45)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.core.norm import RMSNorm, build_norm
from regard.errors import UsageError


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("eps", [1e-12, 1e-5, 0.1])
def test_layer_norm_by_its_formula(eps):
    norm = build_norm("layer", 9, eps)
    with torch.no_grad():
        norm.weight.copy_(randn(9, seed=1))
        norm.bias.copy_(randn(9, seed=2))
    x = randn(4, 9) * 3 + 2
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)  # biased
    expected = norm.weight * centred / (variance + eps).sqrt() + norm.bias
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("eps", [1e-6, 1e-5, 0.1])
def test_rms_norm_against_torch(eps):
    ours, theirs = RMSNorm(9, eps), nn.RMSNorm(9, eps)
    with torch.no_grad():
        for norm in (ours, theirs):
            norm.weight.copy_(randn(9, seed=1))
    x = randn(4, 9) * 3 + 2
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(dim=st.integers(2, 40), seed=st.integers(0, 99), shift=st.floats(-5, 5))
def test_mean_zero_variance_one(dim, seed, shift):
    x = randn(3, dim, seed=seed).double() * 2 + shift
    out = build_norm("layer", dim, 1e-12).double()(x)
    torch.testing.assert_close(out.mean(-1), torch.zeros(3).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(out.var(-1, correction=0), torch.ones(3).double(), atol=1e-6, rtol=0)
    square = RMSNorm(dim, 1e-12).double()(x).square().mean(-1)
    torch.testing.assert_close(square, torch.ones(3).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_constant_vector_stays_finite_with_finite_gradients(kind, value):
    x = torch.full((2, 8), value, requires_grad=True)
    out = build_norm(kind, 8, 1e-5)(x)
    out.sum().backward()
    assert out.isfinite().all() and x.grad.isfinite().all()
    if kind == "layer" or value == 0:
        assert (out.abs() < 1e-2).all()  # nothing but the bias is left
    else:
        torch.testing.assert_close(out, torch.ones(2, 8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rms_norm_takes_its_mean_wide(dtype):
    """300² overflows float16, and the mean of many squares loses bits in bfloat16."""
    x = (randn(4, 64) * 300).to(dtype)
    out = RMSNorm(64, 1e-6).to(dtype)(x)
    expected = RMSNorm(64, 1e-6)(x.float())
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, rtol=1e-2, atol=1e-2)


def test_none_is_the_identity_and_a_wrong_name_is_refused():
    x = randn(2, 3)
    assert build_norm("none", 3, 1e-5)(x) is x
    with pytest.raises(UsageError, match="layer, rms or none"):
        build_norm("batch", 3, 1e-5)
