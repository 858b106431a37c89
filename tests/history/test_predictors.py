"""Predictors, and arithmetic coding with them: a decoder that stands here only, and sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import DataError
from regard.history import shannon
from regard.history.ngram_model import NgramPredictor
from regard.history.predictors import Adaptive, StepPredictor
from regard.history.shannon import arithmetic_code
from regard.history.smoothing import train_ngrams
from tests.history.naive_ngrams import distribution


class Fixed:
    """The same probabilities always."""

    def __init__(self, p):
        self.p, self.vocab = np.asarray(p, float), len(p)

    def start(self, rows):
        self.rows = rows

    def predict(self):
        return np.tile(self.p, (self.rows, 1))

    def read(self, words):
        assert words.shape == (self.rows,) and words.min() >= 0


@st.composite
def skewed(draw):
    """A text, and probabilities that need not fit it: down to 0 for symbols that come."""
    vocab = draw(st.integers(1, 40))
    powers = draw(st.lists(st.floats(0, 60), min_size=vocab, max_size=vocab))
    p = 2.0 ** -np.array(powers)
    ids = draw(st.lists(st.integers(0, vocab - 1), max_size=300))
    return np.array(ids, np.int64), p / p.sum()


def decode(data, count, predictor):
    """The text of a code again: what a decoder of so many symbols does with the same predictor."""
    rows = max(1, min(shannon.ROWS, count // shannon.ROW, shannon.ENTRIES // predictor.vocab))
    low, size, code = 0, 1 << 56, int.from_bytes(data[:7].ljust(7, b"\0"))
    rest = iter([*data[7:], *bytes(8 * count + 8)])
    texts, longest = [[] for _ in range(rows)], -(-count // rows)
    predictor.start(rows)
    for n in range(longest):
        counts = (predictor.predict() * shannon.SCALE).astype(np.int64) + 1
        there = rows if n + 1 < longest or count % rows == 0 else count % rows
        for text, own in zip(texts[:there], counts, strict=False):
            upto = np.cumsum(own)
            size //= int(upto[-1])
            text.append(int(np.searchsorted(upto, (code - low) // size, "right")))
            low += size * int(upto[text[-1]] - own[text[-1]])
            size *= int(own[text[-1]])
            while size < shannon.TOP:
                first = low >> 48
                low, size = (low - (first << 48)) << 8, size << 8
                code = ((code - (first << 48)) << 8) + next(rest)
        if there == rows:
            predictor.read(np.array([text[-1] for text in texts]))
    return np.array([id for text in texts for id in text], np.int64)


@given(skewed(), st.integers(1, 9))
@settings(deadline=None, max_examples=80)
def test_every_text_comes_back(case, rows):
    ids, p = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shannon, "ROWS", rows)
        patch.setattr(shannon, "ROW", 1)
        for predictor in (Fixed(p), Adaptive(len(p), 3, len(ids))):
            code = arithmetic_code(ids, predictor)
            np.testing.assert_array_equal(decode(code.data, len(ids), predictor), ids)
        assert len(code.data) * 8 <= code.bits * 1.01 + 16


@pytest.mark.parametrize("p", [[0.5, 0.5], [0.999, 0.001], [1 / 3] * 3, [0.9, 0.05, 0.03, 0.02]])
def test_the_size_is_what_the_model_says(p):
    ids = np.random.default_rng(0).choice(len(p), 200_000, p=p)
    code = arithmetic_code(ids, Fixed(p))
    assert code.bits == pytest.approx(-np.log2(np.array(p))[ids].sum())
    assert code.bits <= 8 * len(code.data) <= code.bits * 1.0001 + 16
    np.testing.assert_array_equal(decode(code.data, len(ids), Fixed(p)), ids)


def test_one_per_cent_of_a_long_text():
    ids = np.random.default_rng(2).integers(0, 30, 60_000) // 3  # ten symbols
    ids[1::2] = (ids[::2] + 1) % 10
    learning = Adaptive(10, 3, len(ids))
    code = arithmetic_code(ids, learning)
    assert code.bits <= 8 * len(code.data) <= 1.001 * code.bits
    assert np.log2(10) / 2 < code.bits / len(ids) < 1.9  # it has learnt
    np.testing.assert_array_equal(decode(code.data, len(ids), learning), ids)


def test_a_symbol_without_probability_can_be_coded():
    code = arithmetic_code(np.array([2, 2, 2]), Fixed([0.0, 1.0, 0.0]))
    assert code.impossible == 3
    np.testing.assert_array_equal(decode(code.data, 3, Fixed([0.0, 1.0, 0.0])), [2, 2, 2])
    with pytest.raises(DataError, match="no numbers"):
        arithmetic_code(np.array([0]), Fixed([np.nan, 1.0]))


# Predictors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["kneser-ney", "add"])
@pytest.mark.parametrize("start", [None, 0])
def test_ngrams_predict_rows_as_they_do_alone(way, start):
    ids = np.random.default_rng(3).integers(1, 6, 400)
    ids[::9] = 0 if start == 0 else 5
    tables = train_ngrams(ids, 6, 3, way, start=start)
    predictor = NgramPredictor(tables, end=5 if start == 0 else None)
    predictor.start(3)
    texts = np.random.default_rng(4).integers(1, 6, (3, 20))
    for n in range(20):
        for row, p in zip(texts, predictor.predict(), strict=True):
            before = row[:n].tolist()
            if start == 0:  # what ends a sentence begins one
                before = [0, *before]
                before = [y for x in before for y in ([x, 0] if x == 5 else [x])]
            wanted = np.exp(distribution(tables, before))
            np.testing.assert_allclose(p, wanted, rtol=1e-12)
        predictor.read(texts[:, n])


def test_probabilities_that_learn_are_probabilities():
    predictor = Adaptive(5, 3, 200)
    predictor.start(2)
    for words in np.random.default_rng(5).integers(0, 5, (100, 2)):
        p = predictor.predict()
        assert (p > 0).all()
        np.testing.assert_allclose(p.sum(1), 1)
        predictor.read(words)


def test_learning_by_hand():
    predictor = Adaptive(4, 1, 10)
    predictor.start(1)
    for word in (1, 1, 1, 2):
        predictor.predict()
        predictor.read(np.array([word]))
    left = (22 + 11) / 16 / 4  # of counts 3 and 1, to four symbols alike
    wanted = [left / 4, (3 - 22 / 16 + left) / 4, (1 - 11 / 16 + left) / 4, left / 4]
    np.testing.assert_allclose(predictor.predict()[0], wanted)


def test_a_symbol_known_in_a_long_context_does_not_count_in_the_short_ones():
    predictor = Adaptive(3, 2, 10)
    predictor.start(1)
    for word in (0, 1, 0, 1, 0, 1):
        predictor.predict()
        predictor.read(np.array([word]))
    predictor.predict()
    assert predictor.count[0].tolist() == [[2, 1, 0]]  # 0 after nothing and after 1
    assert predictor.count[1].tolist() == [[2, 0, 0]]


class CountingStep:
    """A model whose scores tell which tokens it has read; with room for a few."""

    def __init__(self, ids, room):
        self.read, self.begun, self.room = [], ids, room

    def __call__(self, ids):
        self.read += ids[0].tolist()
        assert len(self.read) <= self.room
        return torch.nn.functional.one_hot(torch.tensor([sum(self.read) % 5] * len(ids)), 5) * 3.0


@pytest.mark.parametrize("first", [(), (4,)])
def test_a_model_with_little_room_begins_again(first):
    predictor = StepPredictor(lambda ids: CountingStep(ids, 6), 5, 6, first)
    ids = np.random.default_rng(6).integers(0, 5, 50)
    code = arithmetic_code(ids, predictor)
    np.testing.assert_array_equal(decode(code.data, len(ids), predictor), ids)
    predictor.start(2)
    assert (predictor.predict()[0] == 0.2).all() != bool(first)
