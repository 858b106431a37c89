"""Attention as kernel regression: worked examples and laws (MISSION #28–#31, #37–#40)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import regard
from regard import attend, attention, kernel_regression
from regard.core.similarity import SIMILARITIES, distance, dot, gaussian, similarity, weigh
from regard.errors import DataError, UsageError

shapes = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.integers(1, 4))


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def qkv(shape, seed=0):
    rows, columns, width, out = shape
    return randn(rows, width, seed=seed), randn(columns, width, seed=seed + 1), randn(columns, out)


def mix(q, k, scale):
    """A similarity of the caller's own."""
    return (q @ k.transpose(-1, -2)).tanh() * scale


KINDS = [*SIMILARITIES, mix]

# Worked examples ------------------------------------------------------------------------------


def test_weights_times_values_of_the_lecture():
    """Log-weights as queries and one-hot keys make softmax give the weights back."""
    weights = torch.tensor([[0.6, 0.1, 0.3], [0.3, 0.5, 0.2], [0.2, 0.1, 0.7]]).double()
    values = torch.tensor([[2.0, 1.0], [-0.5, 2.0], [-1.0, -0.5]]).double()
    out, found = regard.attend(weights.log(), torch.eye(3).double(), values, scale=1.0)
    expected = torch.tensor([[0.85, 0.65], [0.15, 1.2], [-0.35, 0.05]]).double()
    torch.testing.assert_close(found, weights, rtol=0, atol=1e-7)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-7)


def test_kernel_regression_of_the_lecture():
    x = torch.tensor([1.36, 3.40, 6.05], dtype=torch.float64)
    y = torch.tensor([1.79, -1.77, -2.17], dtype=torch.float64)
    prediction, weights = regard.kernel_regression(x, y, 4.21)
    assert [round(w, 5) for w in weights.tolist()] == [0.08744, 0.67248, 0.24008]
    assert round(float(prediction), 5) == -1.55474


def test_bandwidth_from_nearest_neighbour_to_mean():
    x = torch.tensor([1.36, 3.40, 6.05], dtype=torch.float64)
    y = torch.tensor([1.79, -1.77, -2.17], dtype=torch.float64)
    near, _ = regard.kernel_regression(x / 1e-4, y, 4.21 / 1e-4)
    far, _ = regard.kernel_regression(x / 1e6, y, 4.21 / 1e6)
    assert float(near) == -1.77
    assert abs(float(far) - float(y.mean())) < 1e-5


def test_kernel_regression_by_the_nadaraya_watson_formula():
    x, y, query = randn(7, 2), randn(7, 3, seed=1), randn(4, 2, seed=2)
    kernel = torch.exp(-((query[:, None] - x) ** 2).sum(-1) / 2)
    expected = kernel @ y / kernel.sum(-1, keepdim=True)
    found, _ = regard.kernel_regression(x, y, query, kind="gaussian")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_attention_without_weights():
    x, z = randn(4, 3), randn(5, 3, seed=1)
    torch.testing.assert_close(regard.attention(x), (x @ x.T).softmax(-1) @ x)
    torch.testing.assert_close(regard.attention(x, z), (x @ z.T).softmax(-1) @ z)


# Kernels --------------------------------------------------------------------------------------


def test_kernels_by_their_formulas():
    q, k = randn(3, 4), randn(5, 4, seed=1)
    apart = (q[:, None] - k[None]).norm(dim=-1)
    torch.testing.assert_close(dot(q, k, 0.3), q @ k.T * 0.3)
    torch.testing.assert_close(distance(q, k, 0.3), -apart * 0.3)
    torch.testing.assert_close(gaussian(q, k, 0.3), -apart.square() * 0.3 / 2)


@settings(max_examples=30, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99))
def test_gaussian_is_dot_when_keys_have_one_norm(shape, seed):
    q, k, v = qkv(shape, seed)
    k = F.normalize(k, dim=-1) * 1.7
    one, weights = regard.attend(q, k, v, kind="gaussian")
    other, expected = regard.attend(q, k, v, kind="dot")
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_gaussian_is_not_dot_otherwise():
    q, k, v = qkv((3, 4, 3, 2))
    gap = regard.attend(q, k, v, kind="gaussian")[0] - regard.attend(q, k, v)[0]
    assert gap.abs().max() > 1e-2


@pytest.mark.parametrize("width", [4, 64, 256])
def test_variance_of_a_product_is_the_width(width):
    """Why the scores are divided by sqrt(E)."""
    q, k = randn(8000, width), randn(8000, width, seed=1)
    products = (q * k).sum(-1)
    assert abs(float(products.var()) / width - 1) < 0.08
    assert abs(float((products * width**-0.5).var()) - 1) < 0.08


def test_large_scores_saturate_the_gradient():
    q = randn(1, 8).requires_grad_()
    k, v = randn(5, 8, seed=1), randn(5, 1, seed=2)
    slopes = [
        float(torch.autograd.grad(regard.attend(q, k, v, scale=s)[0].sum(), q)[0].norm()) / s
        for s in (0.1, 100.0)
    ]
    assert slopes[1] < 1e-6 < slopes[0]


# Laws -----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99), kind=st.sampled_from(KINDS))
def test_rows_are_distributions_and_outputs_in_the_convex_hull(shape, seed, kind):
    q, k, v = qkv(shape, seed)
    allow = randn(shape[0], shape[1], seed=seed + 5) > -0.5
    out, weights = regard.attend(q, k, v, allow, kind)
    assert (weights >= 0).all() and (weights[~allow] == 0).all()
    torch.testing.assert_close(weights.sum(-1), allow.any(-1).double(), rtol=0, atol=1e-12)
    for direction in randn(10, shape[3], seed=seed + 6):  # a hull is what no direction can leave
        for row in range(shape[0]):
            if allow[row].any():
                reach, along = v[allow[row]] @ direction, out[row] @ direction
                assert reach.min() - 1e-12 <= along <= reach.max() + 1e-12


@settings(max_examples=30, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99), kind=st.sampled_from(KINDS))
def test_permutations(shape, seed, kind):
    q, k, v = qkv(shape, seed)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(n, generator=generator) for n in shape[:2])
    out, weights = regard.attend(q, k, v, kind=kind)
    moved, weights_moved = regard.attend(q[rows], k[columns], v[columns], kind=kind)
    torch.testing.assert_close(moved, out[rows], rtol=0, atol=1e-12)
    torch.testing.assert_close(weights_moved, weights[rows][:, columns], rtol=0, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99))
def test_special_queries_and_keys(shape, seed):
    q, k, v = qkv(shape, seed)
    mean, _ = regard.attend(torch.zeros_like(q), k, v)
    torch.testing.assert_close(mean, v.mean(0).expand_as(mean), rtol=0, atol=1e-12)
    one, weights = regard.attend(q, k[:1], v[:1])
    assert torch.equal(one, v[:1].expand_as(one)) and (weights == 1).all()
    biased, _ = regard.attend(q, k + randn(shape[2], seed=seed + 3), v)
    torch.testing.assert_close(biased, regard.attend(q, k, v)[0], rtol=0, atol=1e-10)
    best = (q @ k.T).argmax(-1)
    sharp, _ = regard.attend(q, k, v, scale=1e9)
    torch.testing.assert_close(sharp, v[best], rtol=0, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    shape=shapes,
    seed=st.integers(0, 99),
    masked=st.booleans(),
)
def test_parity_with_the_fused_kernel(batch, heads, shape, seed, masked):
    rows, columns, width, out = shape
    q = randn(batch, heads, rows, width, seed=seed)
    k = randn(batch, heads, columns, width, seed=seed + 1)
    v = randn(batch, heads, columns, out, seed=seed + 2)
    allow = randn(batch, 1, rows, columns, seed=seed + 3) > -1 if masked else None
    if allow is not None:
        allow[..., 0] = True
    expected = F.scaled_dot_product_attention(q, k, v, allow)
    torch.testing.assert_close(regard.attend(q, k, v, allow)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fully_masked_row_is_zero_with_finite_gradients(kind):
    q, k, v = (x.requires_grad_() for x in qkv((3, 4, 3, 2)))
    allow = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    out, weights = regard.attend(q, k, v, allow, kind)
    assert (out[1] == 0).all() and (weights[1] == 0).all() and (out[0] != 0).any()
    (out.square().sum() + weights.square().sum()).backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert (q.grad[1] == 0).all()


def test_masked_values_do_not_matter_however_large():
    q, k, v = qkv((2, 3, 3, 2))
    allow = torch.tensor([[True, True, False]] * 2)
    before, _ = regard.attend(q, k, v, allow)
    k[2], v[2] = 1e6, -1e6
    assert torch.equal(regard.attend(q, k, v, allow)[0], before)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    q, k, v = qkv((3, 4, 3, 2))
    allow = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(lambda *x: regard.attend(*x, allow, kind)[0], inputs)


def test_scores_of_any_size_stay_finite():
    scores = torch.tensor([[1e4, -1e4, 0.0]])
    assert torch.equal(weigh(scores, None), torch.tensor([[1.0, 0.0, 0.0]]))


# Refusals -------------------------------------------------------------------------------------


def test_widths_that_differ_are_printed():
    with pytest.raises(DataError, match=r"q \(2, 3\), k \(4, 5\), v \(4, 1\)"):
        regard.attend(torch.zeros(2, 3), torch.zeros(4, 5), torch.zeros(4, 1))
    with pytest.raises(DataError, match="one length"):
        regard.attend(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(5, 1))


def test_no_keys_and_no_points():
    with pytest.raises(DataError, match="no keys"):
        regard.attend(torch.zeros(2, 3), torch.zeros(0, 3), torch.zeros(0, 1))
    with pytest.raises(DataError, match="no points"):
        regard.kernel_regression(torch.zeros(0), torch.zeros(0), 1.0)


def test_a_similarity_that_returns_nan_is_named():
    def broken(q, k, scale):
        return (q @ k.T) * torch.nan

    with pytest.raises(DataError, match="broken returned NaN"):
        regard.attend(*qkv((2, 3, 2, 1)), kind=broken)


def test_an_unknown_similarity_gets_the_nearest():
    with pytest.raises(UsageError, match=r"'gausian'[\s\S]*did you mean gaussian"):
        similarity("gausian")
    assert similarity(mix) is mix


# Small functions say what is wrong (issue 23, defect 20) ------------------------------------------


def test_lists_and_arrays_are_numbers_too():
    lists = [[1.0, 0.0], [0.0, 2.0]]
    expected = attention(torch.tensor(lists))
    assert torch.equal(attention(lists), expected)
    assert torch.equal(attention([[1, 0], [0, 2]]), expected)
    assert torch.equal(attention(np.array(lists, dtype=np.float32)), expected)
    out, weights = kernel_regression([1.36, 3.40, 6.05], [1.79, -1.77, -2.17], 4.21)
    assert float(out) == pytest.approx(-1.5547, abs=1e-4)
    wide = torch.tensor(lists, dtype=torch.float64)
    assert attend(wide, lists, lists)[0].dtype == torch.float64


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(q=None, k=randn(3, 4), v=randn(3, 4)), "q of type NoneType"),
        (dict(q=[[1.0], [1.0, 2.0]], k=randn(3, 4), v=randn(3, 4)), "q of type list"),
        (dict(q=randn(2, 4), k=randn(4), v=randn(3, 4)), r"k \(4,\)"),
        (dict(q=randn(2, 5, 4), k=randn(3, 6, 4), v=randn(3, 6, 4)), r"q \(2, 5, 4\), k \(3, 6"),
        (dict(q=randn(2, 4), k=randn(3, 4), v=randn(3, 4), allow=torch.ones(5, 5) > 0), "allow"),
        (dict(q=randn(2, 4), k=randn(3, 4), v=randn(3, 4), allow=torch.ones(2, 3)), "float32"),
        (dict(q=randn(2, 4), k=randn(3, 4), v=randn(3, 4), allow="causal"), "allow of type str"),
        (dict(q=randn(2, 4), k=randn(3, 4), v=randn(3, 4), scale="big"), "scale"),
    ],
)
def test_bad_arguments_of_attend_are_named(given, words):
    with pytest.raises(DataError, match=words) as caught:
        attend(**given)
    assert caught.value.expected


def test_attention_of_one_vector_says_what_it_wants():
    with pytest.raises(DataError, match=r"\(4,\)"):
        attention(randn(4))
    with pytest.raises(DataError, match="x of type str"):
        attention("the cat")
    with pytest.raises(DataError, match="query"):
        kernel_regression([1.0, 2.0], [1.0, 2.0], "here")
