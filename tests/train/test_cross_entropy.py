"""Chunked linear map and cross-entropy against torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.errors import DataError
from regard.train import cross_entropy
from regard.train.cross_entropy import (
    CPU_BYTES,
    GPU_BYTES,
    IGNORE,
    chunk_rows,
    linear_cross_entropy,
)


def make(n=23, d=5, v=11, bias=True, dtype=torch.float64):
    torch.manual_seed(0)
    x = torch.randn(n, d, dtype=dtype, requires_grad=True)
    w = torch.randn(v, d, dtype=dtype, requires_grad=True)
    b = torch.randn(v, dtype=dtype, requires_grad=True) if bias else None
    labels = torch.randint(0, v, (n,))
    labels[::4] = IGNORE
    return x, w, b, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 4, 64])
def test_value_and_gradients_are_torchs(smoothing, bias, rows):
    x, w, b, labels = make(bias=bias)
    held = [t for t in (x, w, b) if t is not None]
    total, plain = linear_cross_entropy(x, w, b, labels, smoothing, rows)
    mine = torch.autograd.grad(total * 0.7, held)
    logits = F.linear(x, w, b)
    same = dict(ignore_index=IGNORE, reduction="sum")
    wanted = F.cross_entropy(logits, labels, label_smoothing=smoothing, **same)
    theirs = torch.autograd.grad(wanted * 0.7, held)
    assert abs(total - wanted) <= 1e-12 * abs(wanted)
    assert abs(plain - F.cross_entropy(logits, labels, **same)) <= 1e-12 * abs(plain)
    for a, c in zip(mine, theirs, strict=True):
        assert (a - c).abs().max() <= 1e-12


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_r_drop_adds_both_divergences_of_two_rows(rows):
    x, w, b, labels = make(n=24)
    labels[1::2] = labels[::2]
    total, plain = linear_cross_entropy(x, w, b, labels, 0.1, rows, r_drop=5.0)
    mine = torch.autograd.grad(total, (x, w, b))
    logits = F.linear(x, w, b)
    same = dict(ignore_index=IGNORE, reduction="sum")
    logs = logits.log_softmax(-1)[labels != IGNORE]
    p, q = logs[::2], logs[1::2]
    apart = F.kl_div(p, q, reduction="sum", log_target=True)
    apart = apart + F.kl_div(q, p, reduction="sum", log_target=True)
    wanted = F.cross_entropy(logits, labels, label_smoothing=0.1, **same) + 2.5 * apart
    assert abs(total - wanted) <= 1e-12 * abs(wanted)
    assert abs(plain - F.cross_entropy(logits, labels, **same)) <= 1e-12 * abs(plain)
    for a, c in zip(mine, torch.autograd.grad(wanted, (x, w, b)), strict=True):
        assert (a - c).abs().max() <= 1e-12


def test_gradcheck():
    x, w, b, labels = make(n=6, d=3, v=4)

    def total(*inputs):
        return linear_cross_entropy(*inputs, labels, 0.1, 2)[0]

    assert torch.autograd.gradcheck(total, (x, w, b))


def test_the_gradient_by_the_logits_is_softmax_minus_target():
    logits = torch.randn(3, 7, dtype=torch.float64)
    labels = torch.tensor([2, IGNORE, 5])
    gradient = cross_entropy.chunk_loss(logits, None, labels, 0.1)[2]
    target = torch.full((3, 7), 0.1 / 7, dtype=torch.float64)
    target[0, 2] += 0.9
    target[2, 5] += 0.9
    wanted = logits.softmax(-1) - target
    wanted[1] = 0
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-14)


def test_no_full_logits_are_ever_made(monkeypatch):
    x, w, b, labels = make(n=50, v=13)
    seen = []
    real = cross_entropy.chunk_loss

    def spy(logits, *rest):
        seen.append(tuple(logits.shape))
        return real(logits, *rest)

    monkeypatch.setattr(cross_entropy, "chunk_loss", spy)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        total, _ = linear_cross_entropy(x, w, b, labels, rows=8)
    total.backward()
    assert seen == [(8, 13)] * 6 + [(2, 13)]
    assert (50, 13) not in [tuple(shape) for shape in kept]


def test_all_ignored_is_zero_with_zero_gradient():
    x, w, b, labels = make()
    total, plain = linear_cross_entropy(x, w, b, torch.full_like(labels, IGNORE), 0.1)
    total.backward()
    assert total == plain == 0 and not x.grad.any() and not w.grad.any() and not b.grad.any()


@pytest.mark.parametrize(("count", "vocab"), [(1, 1), (0, 5), (4096, 50_257), (7, 10**9)])
def test_chunks_stay_below_the_limit(count, vocab):
    for device, most in (("cpu", CPU_BYTES), ("cuda", GPU_BYTES)):
        rows = chunk_rows(count, vocab, device)
        assert rows >= 1 and (rows == 1 or 4 * rows * vocab <= most)


@pytest.mark.parametrize("wrong", [7, -1, 10**9])
def test_a_label_outside_the_range_is_named_with_its_place(wrong):
    x, w = torch.randn(6, 4), torch.randn(7, 4)
    labels = torch.tensor([0, 1, IGNORE, wrong, 6, 2])
    with pytest.raises(DataError, match=f"label {wrong} at row 3") as caught:
        linear_cross_entropy(x, w, None, labels)
    assert "0 to 6" in caught.value.expected


def test_labels_of_another_number_or_kind_are_refused():
    x, w = torch.randn(6, 4), torch.randn(7, 4)
    with pytest.raises(DataError, match=r"labels \(5,\)"):
        linear_cross_entropy(x, w, None, torch.zeros(5).long())
    with pytest.raises(DataError, match="float32"):
        linear_cross_entropy(x, w, None, torch.zeros(6))
