"""Clusters against planted classes and brute force, and the identities of class n-grams."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from regard.errors import DataError, UsageError
from regard.history.cluster import (
    Bigrams,
    Joining,
    ami,
    brown,
    exchange,
    k_means,
    train_class_ngrams,
)
from regard.history.smooth import train_ngrams


def planted(tokens=50_000, k=4, each=8, seed=0):
    """A source of classes: ids by frequency, the class of each, sentences of 20 words."""
    dice = np.random.default_rng(seed)
    follow = dice.dirichlet(np.full(k, 0.4), k)
    inside = dice.dirichlet(np.full(each, 3.0), k)
    classes, words = np.zeros(tokens, int), np.zeros(tokens, int)
    for n in range(tokens):
        chance = follow[classes[n - 1]] if n % 20 else np.full(k, 1 / k)
        classes[n] = dice.choice(k, p=chance)
        words[n] = classes[n] * each + dice.choice(each, p=inside[classes[n]])
    rank = np.argsort(np.argsort(-np.bincount(words, minlength=k * each), kind="stable"))
    truth = np.zeros(k * each, int)
    truth[rank] = np.arange(k * each) // each
    return rank[words], np.arange(0, tokens + 1, 20), truth


def same_split(a, b):
    """Whether two labellings differ by names only: V-measure 1."""
    return len({*zip(a, b, strict=True)}) == len(set(a)) == len(set(b))


@pytest.fixture(scope="module")
def text():
    return planted()


def test_planted_classes_are_found(text):
    ids, bounds, truth = text
    made = brown(ids, bounds, len(truth), 4)
    assert same_split(made.classes, truth)
    assert len(set(made.bits)) == 4 and sorted(made.bits) == made.bits
    for a, b in combinations(made.bits, 2):  # no class stands on the way to another
        assert not b.startswith(a)


def test_exchange_mends_a_bad_start_and_never_loses(text):
    ids, bounds, truth = text
    pairs = Bigrams(ids, bounds, len(truth))
    start = np.random.default_rng(3).integers(4, size=len(truth))
    found, before = start, ami(pairs.between(start, 4))
    for _ in range(8):
        found = exchange(ids, bounds, found, 4, rounds=1)
        after = ami(pairs.between(found, 4))
        assert after >= before - 1e-9
        before = after
    assert same_split(found, truth)
    assert (exchange(ids, bounds, found, 4) == found).all()


def test_losses_are_those_of_the_definition(text):
    """After any inserts and joins, kept losses equal AMI before less AMI after, pair by pair."""
    ids, bounds, truth = text
    vocab = len(truth)
    pairs = Bigrams(ids, bounds, vocab)
    classes = np.arange(vocab)
    state = Joining(vocab, pairs.total)
    for word in range(vocab):
        before = np.where(np.arange(vocab) < word, classes, -1)
        follows, leads = pairs.beside(word, before, vocab)
        itself = pairs.between(classes, vocab)[word, word]
        state.insert(word, follows, leads, itself, pairs.before[word], pairs.after[word])
    for _ in range(vocab - 3):
        a, b, least = state.best()
        full = pairs.between(classes, vocab)
        start, lost = ami(full), {}
        for i, j in combinations(np.unique(classes), 2):
            joined = np.where(classes == j, i, classes)
            lost[i, j] = start - ami(pairs.between(joined, vocab))
            assert state.loss[i, j] == pytest.approx(lost[i, j], abs=1e-9)
        assert least >= -1e-12  # AMI never rises by joining
        assert least == pytest.approx(min(lost.values()), abs=1e-9)
        state.join(a, b)
        classes[classes == b] = a
    dead = ~state.alive
    assert np.isinf(state.loss[dead]).all() and np.isinf(state.loss[:, dead]).all()


def test_joining_to_a_tree_loses_all_there_is(text):
    ids, bounds, truth = text
    made = brown(ids, bounds, len(truth), 6)
    full = ami(Bigrams(ids, bounds, len(truth)).between(made.classes, 6))
    assert min(made.losses) >= -1e-12
    assert sum(made.losses) == pytest.approx(full, abs=1e-9)  # one class says nothing of the next


def test_ami_by_hand():
    assert ami(np.array([[2.0, 0.0], [0.0, 2.0]])) == 1
    assert ami(np.array([[1.0, 1.0], [1.0, 1.0]])) == 0


def test_one_class_and_as_many_as_words(text):
    ids, bounds, truth = text
    assert brown(ids, bounds, len(truth), 1).bits == ["0"]
    assert len(set(brown(ids, bounds, len(truth), len(truth)).classes)) == len(truth)


@pytest.mark.parametrize("k", [0, 33])
def test_more_classes_than_words(text, k):
    ids, bounds, truth = text
    for call in (
        lambda: brown(ids, bounds, 32, k),
        lambda: exchange(ids, bounds, truth, k),
        lambda: k_means(np.eye(32, dtype=np.float32), k),
    ):
        with pytest.raises(UsageError, match=f"k = {k}"):
            call()


def test_no_neighbours():
    with pytest.raises(DataError, match="no two words"):
        brown(np.array([0, 1]), np.array([0, 1, 2]), 2, 1)


def test_k_means_finds_heaps_and_keeps_no_cluster_empty():
    dice = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), 40)
    x = (dice.normal(0, 10, (5, 8))[truth] + dice.normal(0, 0.3, (200, 8))).astype(np.float32)
    assert same_split(k_means(x, 5, seed=1), truth)
    assert (k_means(x, 5, seed=1) == k_means(x, 5, seed=1)).all()
    same = np.repeat(x[:2], 10, 0)
    assert len(set(k_means(same, 2).tolist())) == 2
    with pytest.raises(DataError, match="2 different vectors"):
        k_means(same, 4)
    centres = k_means(x, 7)
    assert len(set(centres.tolist())) == 7


# n-grams over classes -----------------------------------------------------------------------------


def rows(seed=0, count=400, vocab=12):
    """Sentences 0 … 1 of ids from 2 on."""
    dice = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        made += [0, *(2 + dice.geometric(0.3, 6) % (vocab - 2)), 1]
    return np.array(made)


@pytest.mark.parametrize("way", ["add", "kneser-ney", "witten-bell", "katz"])
@pytest.mark.parametrize("order", [2, 3])
def test_each_word_its_class_is_the_word_model(way, order):
    ids = rows()
    made = train_class_ngrams(ids, np.arange(12), order, way, 0.5, start=0)
    plain = train_ngrams(ids, 12, order, way, 0.5, start=0)
    np.testing.assert_array_equal(made.logprobs(rows(1)), plain.logprobs(rows(1)))


def test_one_class_is_the_unigram():
    ids = rows()
    classes = np.array([0, *[1] * 11])
    made = train_class_ngrams(ids, classes, 2, "add", 0, start=0)
    plain = train_ngrams(ids, 12, 1, "add", 0, start=0)
    np.testing.assert_array_equal(made.logprobs(ids), plain.logprobs(ids))
    free = ids[ids > 1] - 2
    one = train_class_ngrams(free, np.zeros(10, int), 2, "add", 0)
    np.testing.assert_array_equal(
        one.logprobs(free), train_ngrams(free, 10, 1, "add", 0).logprobs(free)
    )


def test_probabilities_sum_to_one():
    classes = np.array([0, 1, *[2, 3] * 5])
    made = train_class_ngrams(rows(), classes, 3, start=0)
    for context in ([0], [0, 3, 4], [5, 5]):
        log = made.distribution(np.array(context))
        assert np.exp(log).sum() == pytest.approx(1, abs=1e-9)
        for word in range(1, 12):
            assert made.logprobs(np.array([*context, word]))[-1] == pytest.approx(log[word])


def test_classes_help_where_text_is_short():
    """Held-out perplexity below the plain model's, on little text of a class source (row 15)."""
    ids, _, truth = planted(3000, each=25)
    train, test = ids[:2000], ids[2000:]
    plain = train_ngrams(train, 100, 2)
    made = train_class_ngrams(train, truth, 2)
    seen = np.isfinite(made.logprobs(test))
    assert made.logprobs(test)[seen].mean() > plain.logprobs(test)[seen].mean() + 0.1


def test_wrong_classes():
    with pytest.raises(UsageError, match="has other words"):
        train_class_ngrams(rows(), np.zeros(12, int), start=0)
    with pytest.raises(DataError, match="ids from 0 to 12"):
        train_class_ngrams(rows(), np.arange(12), start=0).logprobs(np.array([0, 12]))
