"""Positions against their formulas and against transformers (MISSION #48, #49)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.t5.modeling_t5 import T5Attention

from regard.core.config import RotaryScaling
from regard.core.position import (
    Alibi,
    Learned,
    RelativeBias,
    Rotary,
    Sinusoidal,
    rotate,
    sinusoidal,
    sinusoidal_2d,
)

# Sinusoidal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 6, 7, 64])
def test_sinusoidal_formula(dim):
    """PE[n, 2i] = sin(n / 10000^(2i/D)), PE[n, 2i + 1] = cos of the same; odd ends with a sine."""
    found = sinusoidal(torch.arange(50), dim)
    assert found.shape == (50, dim)
    for n in (0, 1, 7, 49):
        for column in range(dim):
            angle = n / 10000 ** (2 * (column // 2) / dim)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert abs(float(found[n, column]) - expected) < 1e-12


@pytest.mark.parametrize("dim", [6, 7])
def test_halves_are_the_same_waves_in_another_order(dim):
    alternating, halves = (sinusoidal(torch.arange(9), dim, halves) for halves in (False, True))
    order = [*range(0, dim, 2), *range(1, dim, 2)]
    assert torch.equal(halves, alternating[:, order])


@settings(max_examples=30, deadline=None)
@given(n=st.integers(0, 5000), offset=st.integers(0, 500), pairs=st.integers(1, 16))
def test_a_shift_is_a_rotation(n, offset, pairs):
    """The linear-offset property: PE[n + k] is one rotation, the same for all n, of PE[n]."""
    dim = 2 * pairs
    here, there = sinusoidal(torch.tensor([n, n + offset]), dim)
    angle = offset * 1e4 ** (-torch.arange(pairs).double() * 2 / dim)
    sin, cos = here[0::2], here[1::2]
    moved = torch.stack(
        (sin * angle.cos() + cos * angle.sin(), cos * angle.cos() - sin * angle.sin()), -1
    )
    torch.testing.assert_close(moved.flatten(), there, rtol=0, atol=1e-9)


def test_products_depend_on_the_distance_and_norms_are_equal():
    waves = sinusoidal(torch.arange(40), 12)
    products = waves @ waves.T
    for distance in range(10):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[0].expand_as(along), rtol=0, atol=1e-10)
    torch.testing.assert_close(products.diagonal(), torch.full((40,), 6.0).double())


@pytest.mark.parametrize("dim", [8, 9])
def test_rows_below_ten_thousand_are_unique(dim):
    waves = sinusoidal(torch.arange(10_000), dim)
    assert len(waves.round(decimals=9).unique(dim=0)) == 10_000


def test_the_module_is_the_function_and_has_no_limit():
    module = Sinusoidal(6)
    positions = torch.tensor([[0, 5, 123_456]])
    assert torch.equal(module(positions), sinusoidal(positions, 6))
    assert module.size is None and not list(module.parameters())


def test_two_dimensional_waves_are_row_and_column():
    found = sinusoidal_2d(3, 4, 10)
    assert found.shape == (12, 10)
    for row in range(3):
        for column in range(4):
            expected = torch.cat([sinusoidal(torch.tensor(n), 5) for n in (row, column)])
            assert torch.equal(found[row * 4 + column], expected)
    assert sinusoidal_2d(2, 2, 7).shape == (4, 7)


def test_learned_positions_are_rows_after_their_offset():
    table = Learned(10, 3, offset=2)
    with torch.no_grad():
        table.weight.copy_(torch.arange(30.0).view(10, 3))
    assert table.size == 8
    assert torch.equal(table(torch.tensor([[0, 7]])), table.weight[[2, 9]][None])


def test_a_table_holds_the_same_waves():
    """Inside the table, past its end, and after a look-up in a search."""
    part, end = Sinusoidal(12, halves=True), Sinusoidal.held
    for rows in ([[0], [5], [end - 1]], [[3], [end]], [[0, 1, 2]], [[]], []):
        positions = torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1 if rows else 1)
        with torch.inference_mode():
            found = part(positions)
        assert torch.equal(found, sinusoidal(positions, 12, halves=True))
    assert part.table is not None and not part.table.is_inference()


# Rotary ---------------------------------------------------------------------------------------


def turn(x, position, width=8):
    rotary = Rotary(width, 1e4)
    return rotate(x[None, None, None], rotary(torch.tensor([[position]]), x)).flatten()


@settings(max_examples=30, deadline=None)
@given(
    m=st.integers(0, 400), n=st.integers(0, 400), shift=st.integers(0, 400), seed=st.integers(0, 99)
)
def test_rotary_products_depend_on_the_distance_only(m, n, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 8, dtype=torch.float64, generator=generator)
    here = turn(q, m) @ turn(k, n)
    there = turn(q, m + shift) @ turn(k, n + shift)
    assert abs(float(here - there)) < 1e-10
    assert abs(float(turn(q, m).norm() - q.norm())) < 1e-12
    assert torch.equal(turn(q, 0), q)


def test_rotary_by_complex_numbers():
    """Pair (i, i + K/2) is a complex number, multiplied by e^(i n θ), θ = base^(−2i/K)."""
    x = torch.randn(1, 5, 2, 8, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 2, 30, 4]])
    found = rotate(x, Rotary(8, 500.0)(positions, x))
    theta = 500.0 ** (-torch.arange(0, 8, 2).double() / 8)
    spin = torch.polar(torch.ones(()).double(), positions[..., None] * theta)[:, :, None]
    expected = torch.complex(x[..., :4], x[..., 4:]) * spin
    torch.testing.assert_close(found, torch.cat((expected.real, expected.imag), -1))


def test_rotary_distance_matters():
    q, k = torch.randn(2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert abs(float(turn(q, 5) @ turn(k, 2) - turn(q, 6) @ turn(k, 2))) > 1e-3


@pytest.mark.parametrize("factor", [8.0, 32.0])
@pytest.mark.parametrize("length", [512, 8192])
def test_llama3_scaling_against_transformers(factor, length):
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=length * 16,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": length,
        },
    )
    expected, factor_on_waves = ROPE_INIT_FUNCTIONS["llama3"](config, device="cpu")
    ours = Rotary(64, 5e5, RotaryScaling(factor, 1.0, 4.0, length))
    found = ours.rates(torch.float32, torch.device("cpu"))
    assert factor_on_waves == 1.0
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    plain = Rotary(64, 5e5).rates(torch.float32, torch.device("cpu"))
    assert torch.equal(found[0], plain[0])  # fast waves are kept, slow ones stretched
    torch.testing.assert_close(found[-1], plain[-1] / factor)


def test_rotary_angles_are_wide_in_narrow_models():
    """bfloat16 cannot hold position 1001: the angle must be taken before the cast."""
    cos, sin = Rotary(8, 1e4)(torch.tensor([[1001]]), torch.zeros(1, dtype=torch.bfloat16))
    assert cos.dtype == torch.bfloat16
    assert abs(float(cos[0, 0, 0, 0]) - math.cos(1001)) < 4e-3
    assert abs(float(sin[0, 0, 0, 0]) - math.sin(1001)) < 4e-3


# Biases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (64, 256), (32, 1000)])
def test_buckets_against_transformers(causal, buckets, distance):
    offset = torch.arange(-1100, 1101)
    ours = RelativeBias(2, buckets, distance, causal).bucket(offset)
    theirs = T5Attention._relative_position_bucket(offset, not causal, buckets, distance)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("causal", [False, True])
def test_relative_bias_looks_up_key_minus_query(causal):
    bias = RelativeBias(3, 8, 20, causal)
    with torch.no_grad():
        bias.weight.copy_(torch.arange(24.0).view(8, 3))
    queries, keys = torch.tensor([[3, 4]]), torch.tensor([[0, 3, 9]])
    found = bias(queries, keys)
    assert found.shape == (1, 3, 2, 3)
    for t, query in enumerate([3, 4]):
        for s, key in enumerate([0, 3, 9]):
            row = int(bias.bucket(torch.tensor(key - query)))
            assert torch.equal(found[0, :, t, s], bias.weight[row])


def test_alibi_slopes_and_penalties():
    """H = 8: slopes 1/2, 1/4 … 1/256; the bias is minus slope times distance."""
    found = Alibi(8)(torch.arange(4)[None], torch.arange(4)[None])
    assert found.shape == (1, 8, 4, 4)
    slopes = -found[0, :, 1, 0]
    assert slopes.tolist() == [2.0**-n for n in range(1, 9)]
    assert torch.equal(found[0, :, 3, 0], -3 * slopes)
    assert (found.diagonal(dim1=-2, dim2=-1) == 0).all()
    halves = -Alibi(4)(torch.tensor([[1]]), torch.tensor([[0]])).flatten()
    assert halves.tolist() == [2.0**-n for n in (2, 4, 6, 8)]


@pytest.mark.parametrize("bias", [Alibi(4), RelativeBias(4, 8, 20, True)])
def test_biases_depend_on_the_distance_only(bias):
    here = bias(torch.arange(6)[None], torch.arange(6)[None])
    there = bias(torch.arange(6)[None] + 31, torch.arange(6)[None] + 31)
    assert torch.equal(here, there)
