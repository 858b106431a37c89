"""int8 products: a row alone and in company, the closed-form error, rows that are not finite."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decode.beam import BeamConfig
from regard.kit import Kit
from regard.model import int8, presets
from regard.model.int8 import (
    LEVELS,
    Pack,
    int8_map,
    pack_plain,
    peaks,
    to_levels,
)
from regard.model.model import Model
from regard.model.precision import forget_weights, set_precision
from regard.native.inference import NativeMap, library

USABLE: list[Pack] = [pack_plain] if library() is None else [pack_plain, NativeMap]
EACH = pytest.mark.parametrize("kernel", USABLE, ids=lambda pack: pack.__name__)
SHAPES = [(16, 8), (64, 37), (768, 50), (3072, 33), (5, 3), (1, 1)]  # inputs, outputs


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


Use = Callable[[Pack], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Make a kernel the one that is found."""
    return lambda kernel: monkeypatch.setattr(int8, "find_kernel", lambda: kernel)


@EACH
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_in_any_company(
    kernel: Pack, shape: tuple[int, int], use: Use
) -> None:
    use(kernel)
    inputs, outputs = shape
    run = int8_map(randn(outputs, inputs), randn(outputs, seed=1))
    one = randn(1, inputs, seed=2)
    alone = run(one)
    for count in (2, 3, 4, 7, 16, 32, 129):
        for place in {0, 1, count // 2, count - 1}:
            rows = randn(count, inputs, seed=count) * 100
            rows[place] = one
            assert torch.equal(run(rows)[place], alone[0])


@EACH
def test_the_order_of_rows_changes_nothing(kernel: Pack, use: Use) -> None:
    use(kernel)
    run, rows = int8_map(randn(40, 96), None), randn(32, 96, seed=1) * 10 ** randn(32, 1, seed=2)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(3))
    assert torch.equal(run(rows[order]), run(rows)[order])


@EACH
@settings(max_examples=20, deadline=None)
@given(
    inputs=st.sampled_from([1, 3, 16, 48, 512]),
    outputs=st.integers(1, 20),
    rows=st.integers(1, 9),
    size=st.sampled_from([1e-9, 1.0, 1e9]),
    seed=st.integers(0, 99),
)
def test_the_error_is_within_half_a_step_of_each_factor(
    kernel: Pack, inputs: int, outputs: int, rows: int, size: float, seed: int
) -> None:
    """|Δ(x·w)| ≤ Σ (|x| s_w + |w| s_x) / 2 + K s_x s_w / 4, with s the steps of row and output."""
    weight, bias, x = randn(outputs, inputs), randn(outputs, seed=1), randn(rows, inputs, seed=seed)
    x = x * size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "find_kernel", lambda: kernel)
        found = int8_map(weight, bias * size)(x).double()
    exact = x.double() @ weight.double().t() + (bias * size).double()
    row, output = peaks(x).double() / LEVELS, peaks(weight).double() / LEVELS
    bound = x.abs().sum(1, keepdim=True) * output.t() + row * weight.abs().sum(1)
    bound = bound / 2 + inputs * row * output.t() / 4
    slack = 1e-5 * (x.abs().double() @ weight.abs().double().t() + size * bias.abs())
    assert ((found - exact).abs() <= bound + slack).all()


@EACH
def test_whole_numbers_are_exact(kernel: Pack, use: Use) -> None:
    use(kernel)
    draw = torch.Generator().manual_seed(0)
    weight = torch.randint(-LEVELS, LEVELS + 1, (20, 3072), generator=draw).float()
    x = torch.randint(-LEVELS, LEVELS + 1, (9, 3072), generator=draw).float()
    weight[:, 0], x[:, 0] = LEVELS, LEVELS  # so that the steps are 1
    weight[0], x[0] = LEVELS, LEVELS  # the largest sum there is
    expected = x.double() @ weight.double().t()
    torch.testing.assert_close(int8_map(weight, None)(x).double(), expected, rtol=1e-6, atol=0)


@EACH
def test_zeros_give_the_bias(kernel: Pack, use: Use) -> None:
    use(kernel)
    weight, bias, rows = randn(12, 32), randn(12, seed=1), randn(5, 32, seed=2)
    weight[3], rows[2] = 0, 0
    found = int8_map(weight, bias)(rows)
    assert torch.equal(found[2], bias) and (found[:, 3] == bias[3]).all()


@EACH
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_row_that_is_not_finite_stays_alone(
    kernel: Pack, bad: float, place: int, use: Use
) -> None:
    use(kernel)
    run, rows = int8_map(randn(40, 64), randn(40, seed=1)), randn(7, 64, seed=2)
    clean = run(rows)
    rows[place, [5, 63]] = bad
    found = run(rows)
    others = [n for n in range(7) if n != place]
    assert torch.equal(found[others], clean[others])
    assert not found[place].isfinite().any()


def test_no_rows() -> None:
    assert int8_map(randn(8, 16), randn(8))(randn(0, 16)).shape == (0, 8)


def test_the_weights_may_change_afterwards() -> None:
    weight, bias, x = randn(8, 16), randn(8, seed=1), randn(3, 16, seed=2)
    run = int8_map(weight, bias)
    before = run(x)
    weight.zero_(), bias.zero_()
    assert torch.equal(run(x), before)


def test_a_model_without_its_float_weights_says_the_same() -> None:
    kits = []
    for forget in (False, True):
        model = Model.fresh(presets.transformer(32, 2, 2, 40, pre=True), seed=3)
        set_precision(model, "int8")
        if forget:
            forget_weights(model)
        kits.append(Kit(model))
    batch = kits[0].batch([[3, 4, 5], [6, 7]])
    found = [kit.search(batch, 6, BeamConfig(3)) for kit in kits]
    assert found[0] == found[1]
    before, after = (sum(p.numel() for p in kit.model.parameters()) for kit in kits)
    assert after < before / 2 and kits[1].model.front.tokens.weight.numel() == 32 * 40


def test_levels_of_a_kernel_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = 3 * torch.randn(9, 77, generator=torch.Generator().manual_seed(3))
    weight[1] = 0
    weight[2, 5], weight[3, 6] = torch.inf, torch.nan
    weight[4] = 1e-45  # so small that the step is 0
    weight[5, :4] = torch.tensor([1.5, 2.5, -0.5, 127.0])  # halves, to the even number
    weight[5, 4:] = 0
    whole, step = to_levels(weight)
    monkeypatch.setattr("regard.native.inference.to_levels", lambda weight: None)
    plain, plain_step = to_levels(weight)
    assert torch.equal(whole, plain) and torch.equal(step.nan_to_num(7), plain_step.nan_to_num(7))
