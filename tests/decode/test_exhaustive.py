"""Exhaustive search and Viterbi's."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from regard.decode.beam import length_penalty
from regard.decode.exhaustive import exhaustive
from regard.errors import UsageError
from tests.decode.toy import hashed, scored

# exhaustive --------------------------------------------------------------------------------------


def log_probs(rule, first=0):
    return lambda prefixes: torch.stack(
        [rule(row, first).log_softmax(-1) for row in prefixes.tolist()]
    )


def test_against_a_plain_enumeration():
    rule, penalty = hashed(3, 5), length_penalty("length", 0.7)
    wanted = []
    for length in (1, 2, 3, 4):
        for words in itertools.product(range(3), repeat=length):
            if 0 not in words[:-1] and (words[-1] == 0 or length == 4):
                value = scored(rule, list(words))
                wanted.append((words[-1] != 0, -value / penalty(length), list(words)))
    found = exhaustive(log_probs(rule), 3, 4, {0}, count=99, penalty=penalty)
    assert len(found) == len(wanted) == 1 + 2 + 4 + 8 * 3
    for hypothesis, (unfinished, score, words) in zip(found, sorted(wanted), strict=True):
        assert hypothesis.tokens == words and hypothesis.finished != unfinished
        assert hypothesis.score == pytest.approx(-score, abs=1e-5)
    assert sum(math.exp(h.logprob) for h in found) == pytest.approx(1, abs=1e-5)


def test_it_refuses_what_would_not_end():
    with pytest.raises(UsageError, match=r"10\^9 = 1,000,000,000 sequences[\s\S]*use beam search"):
        exhaustive(log_probs(hashed(10, 0)), 10, 9, ())


# viterbi -----------------------------------------------------------------------------------------


def viterbi(start, move, length):
    """Best sequence of `length` states and its log-probability, in O(length · K²) (Viterbi 1967).

    start (K,) and move (K, K) are log-probabilities: of the first state, and of column j after i.
    """
    best, back = start, []
    for _ in range(length - 1):
        best, parent = (best[:, None] + move).max(0)  # over the state before
        back.append(parent)
    path = [int(best.argmax())]
    for parent in reversed(back):
        path.append(int(parent[path[-1]]))
    return path[::-1], float(best.max())


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
