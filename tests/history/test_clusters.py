"""Clusters against planted classes and brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from regard.errors import DataError, UsageError
from regard.history.clusters import (
    Bigrams,
    Joining,
    brown,
    share,
)
from tests.history.planted_classes import planted, same_split


def between(pairs, classes, k):
    """Counts (k, k) of neighbouring classes."""
    keys = classes[pairs.first] * k + classes[pairs.second]
    return np.bincount(keys, pairs.count, k * k).reshape(k, k)


def ami(counts):
    """Average mutual information, in bits, of counts (k, k) of neighbours."""
    before, after = counts.sum(1)[:, None], counts.sum(0)[None]
    return share(counts, before, after, int(counts.sum())).sum()


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
        itself = between(pairs, classes, vocab)[word, word]
        state.insert(word, follows, leads, itself, pairs.before[word], pairs.after[word])
    for _ in range(vocab - 3):
        a, b, least = state.best()
        full = between(pairs, classes, vocab)
        start, lost = ami(full), {}
        for i, j in combinations(np.unique(classes), 2):
            joined = np.where(classes == j, i, classes)
            lost[i, j] = start - ami(between(pairs, joined, vocab))
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
    full = ami(between(Bigrams(ids, bounds, len(truth)), made.classes, 6))
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
    with pytest.raises(UsageError, match=f"k = {k}"):
        brown(ids, bounds, 32, k)


def test_no_neighbours():
    with pytest.raises(DataError, match="no two words"):
        brown(np.array([0, 1]), np.array([0, 1, 2]), 2, 1)
