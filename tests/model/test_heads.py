"""Output heads: which positions, which transform, which scores."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from regard.errors import UsageError
from regard.model.config import HeadConfig
from regard.model.model import Head
from tests.properties.small_models import CONFIGS, assert_near, random_ids, randomise, small_kit

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def build(**options):
    head = Head(HeadConfig(**options), 8).eval()
    randomise(head)
    return head


def test_without_a_size_vectors_stay():
    assert torch.equal(build()(X), X)


@pytest.mark.parametrize("bias", [False, True])
def test_scores(bias):
    head = build(size=3, bias=bias)
    expected = X @ head.out.weight.T + (head.out.bias if bias else 0)
    torch.testing.assert_close(head(X), expected)
    assert (head.out.bias is not None) == bias


def test_transform_norm_and_scale_in_that_order():
    head = build(size=3, transform="gelu", norm=True, scale=0.5)
    dense = F.gelu(F.linear(X, head.dense.weight, head.dense.bias))
    normed = F.layer_norm(dense, (8,), head.norm.weight, head.norm.bias, 1e-5)
    torch.testing.assert_close(head(X), F.linear(normed * 0.5, head.out.weight))


def test_the_first_token_is_taken_wherever_padding_put_it():
    head = build(size=3, take="first")
    assert torch.equal(head(X), head.out(X[:, 0]))
    real = torch.tensor([[False, False, True, True, True], [True, True, False, False, False]])
    assert torch.equal(head(X, real), head.out(torch.stack([X[0, 2], X[1, 0]])))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_class_is_the_same_alone_and_padded(side, strict):
    kit = small_kit("bert", head=HeadConfig(4, take="first", transform="tanh", bias=True))
    rows = [random_ids(n, n) for n in (3, 9)]
    ids, mask = torch.zeros(2, 10, dtype=torch.long), torch.zeros(2, 10, dtype=torch.bool)
    for row, given in enumerate(rows):
        at = slice(0, len(given)) if side == "right" else slice(10 - len(given), 10)
        ids[row, at], mask[row, at] = given, True
    found = kit.logits(ids, mask=mask, strict=strict)
    for scores, given in zip(found, rows, strict=True):
        alone = kit.logits(given[None], strict=strict)[0]
        assert torch.equal(scores, alone) if strict else assert_near(scores, alone) is None


def test_wrong_names_get_the_nearest():
    with pytest.raises(UsageError, match="did you mean tanh"):
        build(transform="tanhh")
    with pytest.raises(UsageError, match="did you mean first"):
        replace(CONFIGS["vit"].head, take="frist")
