"""word2vec as a language model: what it computes, what it learns, what it cannot see."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import DataError
from regard.history.config import Word2VecConfig
from regard.history.rungs import WINDOW, NextWord, choose_scale, train_next_word


def random_model(vocab=7, dim=3):
    dice = torch.Generator().manual_seed(0)
    sizes = (vocab, dim), (vocab, dim), (vocab,)
    parts = (torch.randn(size, generator=dice, dtype=torch.float64) for size in sizes)
    return NextWord(*parts, 0.7)


def test_probabilities_are_those_of_the_formula():
    model, ids = random_model(), np.random.default_rng(0).integers(0, 7, 1300)
    found = model.logprobs(ids)
    for place in (0, 1, 2, WINDOW, WINDOW + 3, 1024, 1299):  # 1024: the second batch of places
        before = ids[max(0, place - WINDOW) : place]
        mean = model.inputs[before].mean(0) if len(before) else torch.zeros(3, dtype=torch.float64)
        scores = (0.7 * model.outputs @ mean + model.counts).log_softmax(0)
        assert found[place] == pytest.approx(float(scores[ids[place]]), abs=1e-12)


def test_a_mean_knows_no_order_and_no_word_beyond_its_window():
    model = random_model()
    a, b = (model.logprobs(np.array(row)) for row in ([1, 2, 3, 4, 5, 6], [5, 4, 3, 2, 1, 6]))
    assert a[-1] == pytest.approx(b[-1], abs=1e-12)
    far = model.logprobs(np.array([0, 1, 2, 3, 4, 5, 6]))
    assert far[-1] == pytest.approx(a[-1], abs=1e-12)


def topics(count=6000, seed=1):
    """A text that speaks of one thing, words 0 to 9, then of the other, 10 to 19, and so on."""
    dice = np.random.default_rng(seed)
    made = [dice.integers(0, 10, 30) + 10 * int(dice.integers(2)) for _ in range(count // 30)]
    return np.concatenate(made)


def small(**more):
    return Word2VecConfig("cbow", 8, WINDOW, min_count=1, epochs=20, **more)


def test_without_a_scale_it_is_the_unigram():
    ids = topics()
    model = train_next_word(ids, 21, small())
    counts = np.append(np.bincount(ids), 0.5)
    assert not model.inputs[20].any()  # the last is not in the text
    expected = np.log(counts / counts.sum())[ids]
    np.testing.assert_allclose(model.logprobs(ids), expected, atol=1e-5)
    assert model.parameters == 21 * 8 * 2 + 21 + 1


def test_with_a_scale_it_knows_the_topic():
    ids, valid, test = topics(), topics(1500, 2), topics(3000, 3)
    plain = train_next_word(ids, 20, small())
    model = choose_scale(plain, valid)
    unigram, found = -plain.logprobs(test).mean(), -model.logprobs(test).mean()
    # Within a topic of 10 words, ln 10 is the best there is; the unigram has ln 20.
    assert unigram == pytest.approx(np.log(20), abs=0.01)
    assert np.log(10) < found < np.log(10) + 0.25
    assert model.a > 0
    for more in (0.1, -0.1):  # no other scale suits the text better
        other = NextWord(model.inputs, model.outputs, model.counts, model.a + more)
        assert other.logprobs(valid[:1024]).mean() <= model.logprobs(valid[:1024]).mean()


def test_the_same_with_any_number_of_workers():
    ids = topics(1500)
    one, two = (train_next_word(ids, 20, small(), workers=workers) for workers in (1, 2))
    assert torch.equal(one.inputs, two.inputs) and torch.equal(one.outputs, two.outputs)


def test_one_word_alone_has_no_vectors():
    with pytest.raises(DataError, match="1 different tokens"):
        train_next_word(np.zeros(10, int), 3, small())
