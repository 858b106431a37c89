"""Viterbi against exhaustive search on random Markov tables."""

from __future__ import annotations

import pytest
import torch

from regard.decode.exhaustive import exhaustive
from regard.decode.beam import length_penalty
from regard.decode.exhaustive import viterbi
from regard.errors import UsageError


@pytest.mark.parametrize("seed", range(50))
def test_equals_exhaustive(seed):
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(4, generator=generator, dtype=torch.double).log_softmax(-1)
    move = (2 * torch.randn(4, 4, generator=generator, dtype=torch.double)).log_softmax(-1)

    def log_probs(prefixes):
        return start[None] if prefixes.shape[1] == 0 else move[prefixes[:, -1]]

    for length in (1, 5):
        path, value = viterbi(start, move, length)
        best = exhaustive(log_probs, 4, length, (), penalty=length_penalty("none"))[0]
        assert path == best.tokens and value == pytest.approx(best.logprob, abs=1e-9)


def test_of_equals_the_lowest():
    assert viterbi(torch.zeros(3), torch.zeros(3, 3), 4)[0] == [0, 0, 0, 0]


def test_no_states():
    with pytest.raises(UsageError, match="1 or more"):
        viterbi(torch.zeros(2), torch.zeros(2, 2), 0)
