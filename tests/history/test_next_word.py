"""A softmax over the mean of vectors: what it computes, what it learns, what it cannot see."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import DataError
from regard.history.next_word import WINDOW, NextWord, token_vectors, train_next_word


def random_model(vocab=7, dim=3):
    dice = torch.Generator().manual_seed(0)
    sizes = (vocab, dim), (vocab, dim), (vocab,)
    return NextWord(*(torch.randn(size, generator=dice, dtype=torch.float64) for size in sizes))


def test_probabilities_are_those_of_the_formula():
    model, ids = random_model(), np.random.default_rng(0).integers(0, 7, 1300)
    found = model.logprobs(ids)
    for place in (0, 1, 2, WINDOW, WINDOW + 3, 1024, 1299):  # 1024: the second batch of places
        before = ids[max(0, place - WINDOW) : place]
        mean = model.vectors[before].mean(0) if len(before) else torch.zeros(3, dtype=torch.float64)
        scores = (model.weight @ mean + model.bias).log_softmax(0)
        assert found[place] == pytest.approx(float(scores[ids[place]]), abs=1e-12)


def test_a_mean_knows_no_order_and_no_word_beyond_its_window():
    model = random_model()
    a, b = (
        model.logprobs(np.array([1, 2, 3, 4, 5, 6])),
        model.logprobs(np.array([5, 4, 3, 2, 1, 6])),
    )
    assert a[-1] == pytest.approx(b[-1], abs=1e-12)
    far = model.logprobs(np.array([0, 1, 2, 3, 4, 5, 6]))
    assert far[-1] == pytest.approx(a[-1], abs=1e-12)


def cycle(count=3000):
    """Two words that follow each other, another pair that does so, with changes between."""
    dice = np.random.default_rng(1)
    made: list[int] = []
    while len(made) < count:
        made += [0, 1] * 8 if dice.random() < 0.5 else [2, 3] * 8
    return np.array(made[:count])


def test_it_learns_more_than_the_unigram_and_the_same_every_time():
    ids = cycle()
    vectors = token_vectors(ids, 5, 8, epochs=3)
    assert vectors.shape == (5, 8) and not vectors[4].any()  # the last is not in the text
    none, steps = train_next_word(ids, vectors, 1)
    some, _ = train_next_word(ids, vectors, 200)
    again, _ = train_next_word(ids, vectors, 200)
    assert steps == 1 and np.array_equal(some.logprobs(ids), again.logprobs(ids))
    unigram = -np.mean(np.log(np.bincount(ids)[ids] / len(ids)))
    assert -none.logprobs(ids).mean() == pytest.approx(unigram, abs=0.05)
    assert -some.logprobs(ids).mean() < unigram - 0.2
    assert some.parameters == 5 * 8 * 2 + 5


def test_seconds_end_it_too():
    ids = cycle(200)
    _, steps = train_next_word(ids, token_vectors(ids, 4, 4, epochs=1), None, seconds=0.0)
    assert steps == 1


def test_one_word_alone_has_no_vectors():
    with pytest.raises(DataError, match="1 different tokens"):
        token_vectors(np.zeros(10, int), 3, 4)
