"""The GPU kernel of a search, against torch; skipped where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from regard.decode.ranking import Scored, best_tokens, chunk_maxima

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
