"""n-gram models against dicts and recursion, and what holds for every one of them."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from regard.errors import UsageError
from regard.history.config import Smoothing
from regard.history.ngrams import count_ngrams
from regard.history.smoothing import USUAL, discounts, train_ngrams
from tests.history.naive_ngrams import Add, KneserNey, WittenBell, distribution

START, END, VOCAB = 0, 1, 9
NAIVE = {
    "kneser-ney": KneserNey,
    "witten-bell": WittenBell,
    "add": Add,
}


def sentences(count=60, seed=0, vocab=VOCAB):
    """Words that follow one another by a skewed rule, ids from 2 on; the last two are rare."""
    dice = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words, word = [], int(dice.integers(2, vocab - 2))
        for _ in range(int(dice.integers(1, 12))):
            words.append(word)
            near = 2 + (word * 3 + int(dice.geometric(0.5))) % (vocab - 4)
            word = near if dice.random() < 0.9 else int(dice.integers(2, vocab - 1))
        made.append([START, *words, END])
    return made


def flat(rows):
    return np.array([w for row in rows for w in row])


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("way", NAIVE)
def test_it_is_what_the_paper_prints(way, order):
    vocab = 40
    rows = sentences(150, vocab=vocab)
    if order > 2:  # a text that is large enough to estimate all discounts
        assert discounts(count_ngrams(flat(rows), vocab, order, START)[-1].count) != USUAL
    model = train_ngrams(flat(rows), vocab, order, way, k=0.3, start=START)
    naive = NAIVE[way](rows, vocab, order, START, k=0.3)
    for row in [*sentences(20, seed=1, vocab=vocab), [START, 39, 39, 38, 2, 39, END]]:
        found = model.logprobs(row)
        assert np.isnan(found[0])
        for n in range(1, len(row)):
            wanted = naive.p(tuple(row[max(0, n - order + 1) : n]), row[n])
            assert found[n] == pytest.approx(np.log(wanted), abs=1e-9), (row, n)


@pytest.mark.parametrize("start", [START, None])
@pytest.mark.parametrize("way", get_args(Smoothing))
def test_probabilities_sum_to_one_and_agree_with_the_text(way, start):
    rows = sentences()
    model = train_ngrams(flat(rows), VOCAB, 4, way, start=start)
    texts = [[START, 3, 4], [8, 8, 8], [2], [], [START], [4, 3, 2, 5], rows[0][:5], rows[1][:3]]
    for context in texts:
        log = distribution(model, context)
        assert np.exp(log).sum() == pytest.approx(1, abs=1e-9), context
        for word in range(VOCAB):
            if word != start:
                found = model.logprobs([*context, word])[-1]
                assert found == pytest.approx(log[word], abs=1e-9)


def test_counts_are_those_of_the_text():
    ids = np.array([0, 2, 3, 2, 3, 1, 0, 2, 3, 1])
    one, two, three = count_ngrams(ids, 4, 3, start=0)
    assert one.count.tolist() == [2, 2, 3, 3]
    pairs = {
        (int(c), int(w)): int(n) for c, w, n in zip(two.context, two.word, two.count, strict=True)
    }
    assert pairs == {(0, 2): 2, (2, 3): 3, (3, 1): 2, (3, 2): 1}  # none over a beginning
    names = list(pairs)
    found = {
        (*names[c], int(w)): (names[s], int(n))
        for c, w, s, n in zip(three.context, three.word, three.suffix, three.count, strict=True)
    }
    assert found == {
        (0, 2, 3): ((2, 3), 2),
        (2, 3, 1): ((3, 1), 2),
        (2, 3, 2): ((3, 2), 1),
        (3, 2, 3): ((2, 3), 1),
    }


def test_add_k_goes_from_plain_counts_to_all_alike():
    ids = flat(sentences())
    plain = np.exp(distribution(train_ngrams(ids, VOCAB, 2, "add", 1e-12), [3]))
    follow = np.bincount(ids[1:][ids[:-1] == 3], minlength=VOCAB)
    np.testing.assert_allclose(plain, follow / follow.sum(), atol=1e-9)
    alike = np.exp(distribution(train_ngrams(ids, VOCAB, 2, "add", 1e12), [3]))
    np.testing.assert_allclose(alike, 1 / VOCAB, atol=1e-9)
    zero = train_ngrams(ids, VOCAB, 2, "add", 0.0)
    np.testing.assert_allclose(np.exp(distribution(zero, [3])), follow / follow.sum(), atol=1e-12)


def test_a_trigram_cannot_look_further_back():
    model = train_ngrams(flat(sentences()), VOCAB, 3)
    assert np.array_equal(distribution(model, [2, 3, 4]), distribution(model, [7, 3, 4]))


def test_longer_contexts_fit_the_training_text_better():
    ids = flat(sentences())
    plain = [train_ngrams(ids, VOCAB, n, "add", 0.0).logprobs(ids)[5:].sum() for n in range(1, 5)]
    assert plain == sorted(plain)
    held = flat(sentences(seed=1))  # of other sentences, some length is best and longer ones worse
    unseen = [train_ngrams(ids, VOCAB, n, "add", 0.1).logprobs(held).sum() for n in range(1, 5)]
    assert 0 < int(np.argmax(unseen)) < 3


def test_bad_settings():
    with pytest.raises(UsageError, match="k = -1"):
        train_ngrams(np.array([1, 2, 1, 2, 2]), 3, way="add", k=-1)
