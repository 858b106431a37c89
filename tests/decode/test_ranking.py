"""The best tokens of a vocabulary against a stable sort of all of it."""

from __future__ import annotations

import pytest
import torch

from regard.decode.ranking import CHUNK, Scored, best_tokens, chunk_maxima, leading

# ranking -----------------------------------------------------------------------------------------


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


def test_leading_keeps_the_order_of_equals():
    x = torch.tensor([[0.0, -0.0, 1.0, -torch.inf, 1.0, torch.inf, -2.5, 0.0, -1e-40, 1e-40]])
    assert torch.equal(leading(x, 10), wanted(x, 10))
    assert leading(x, 3).tolist() == [[5, 2, 4]]
    assert leading(x[:, :2], 5).tolist() == [[0, 1]]  # fewer where there are no more


# kernels -----------------------------------------------------------------------------------------


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "vocab"), [(1, 7), (3, 64), (70, 32_000), (5, 50_257)])
def test_scores_read_once(dtype: torch.dtype, rows: int, vocab: int) -> None:
    torch.manual_seed(0)
    wide = torch.randn(rows, vocab + 15, device="cuda").to(dtype)
    logits = wide[:, :vocab]  # rows need not lie one after the other
    logits[0, : vocab // 2] = -torch.inf
    scored = Scored(logits)
    assert scored.norm is not None
    wanted = logits.float().logsumexp(-1)
    torch.testing.assert_close(scored.norm, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(scored.maxima, chunk_maxima(logits))
    best = logits.float().sort(dim=-1, descending=True, stable=True).indices
    assert torch.equal(scored.best(), best[:, 0])
    count = min(10, vocab)
    assert torch.equal(scored.top(count), best[:, :count])
    assert torch.equal(best_tokens(logits, count), best[:, :count])
    token = best[:, :count]
    log = logits.float().log_softmax(-1).gather(-1, token)
    torch.testing.assert_close(scored.logprob(token), log, rtol=1e-5, atol=1e-5)
