"""The best tokens of a vocabulary against a stable sort of all of it."""

from __future__ import annotations

import pytest
import torch

from regard.decode import top
from regard.decode.ranking import CHUNK, Scored, best_tokens, leading


def wanted(x, count):
    return x.double().sort(dim=-1, descending=True, stable=True).indices[..., :count]


@pytest.mark.parametrize("vocab", [1, 5, CHUNK, 3 * CHUNK, 10 * CHUNK, 10 * CHUNK + 1, 1999])
@pytest.mark.parametrize("count", [1, 4, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_best_tokens_equal_a_sort_of_all(vocab, count, dtype):
    """Few different values, so that most are equal; and all different."""
    generator = torch.Generator().manual_seed(vocab * count)
    few = torch.randint(-3, 4, (6, 2, vocab), generator=generator).to(dtype)
    few[0, 0] = -torch.inf
    few[1, :, ::2] = -torch.inf
    many = torch.randn(6, 2, vocab, generator=generator).to(dtype)
    for x in (few, many):
        found = best_tokens(x, min(count, vocab))
        assert torch.equal(found, wanted(x, count))
        assert torch.equal(Scored(x).best(), wanted(x, 1)[..., 0])


@pytest.mark.parametrize("short", [0, top.SHORT])  # by keys, by a sort
def test_leading_keeps_the_order_of_equals(short, monkeypatch):
    monkeypatch.setattr(top, "SHORT", short)
    x = torch.tensor([[0.0, -0.0, 1.0, -torch.inf, 1.0, torch.inf, -2.5, 0.0, -1e-40, 1e-40]])
    assert torch.equal(leading(x, 10), wanted(x, 10))
    assert leading(x, 3).tolist() == [[5, 2, 4]]
    assert leading(x[:, :2], 5).tolist() == [[0, 1]]  # fewer where there are no more
