"""Logistic regression: the slope is zero at its end, and equals that of a dense one by autograd."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from regard.history.bag_of_words import BagObjective, classify, meetings, telling, train_logreg
from regard.history.word_translator import WordTranslator, cut, number_words

CATS = [
    ("Je suis un chat.", "I am a cat."),
    ("Je suis un chien.", "I am a dog."),
    ("Tu es un chat.", "You are a cat."),
    ("Tu vois la mer", "You see the sea"),
    ("un et un", "one and one"),
]


def drawn(count, seed=0):
    draw = random.Random(seed)

    def side(letter):
        return " ".join(f"{letter}{draw.randrange(9)}" for _ in range(draw.randint(1, 6)))

    return [(side("f"), side("e")) for _ in range(count)]


def dense(sources, said, support, count, l2, bias, weights):
    """The same value with a whole matrix, pair by pair."""
    matrix = torch.zeros(len(support.bounds) - 1, count, dtype=torch.float64)
    matrix = matrix.index_put(tuple(map(torch.from_numpy, where(support))), weights)
    value = l2 / 2 * (weights**2).sum()
    for n in range(len(sources.bounds) - 1):
        heard = sources.ids[sources.bounds[n] : sources.bounds[n + 1]]
        classes = said.ids[said.bounds[n] : said.bounds[n + 1]]
        logprobs = torch.log_softmax(bias + matrix[heard].sum(0), -1)
        value = value - logprobs[classes].sum()
    return value


def where(support):
    return support.row_of, support.columns.astype(np.int64)


@pytest.mark.parametrize("best", [2, 100])
@pytest.mark.parametrize("pairs", [CATS, drawn(30)])
def test_value_and_slope_are_those_of_a_whole_matrix(pairs, best):
    words, sources, targets = number_words(pairs)
    classes, said = classify(sources, targets)
    count = len(classes.word)
    met = meetings(sources, said, len(words.sources), count)
    support = met.keep(telling(met, best), met.values)
    assert len(support.values) and np.diff(support.bounds).max() <= best
    draw = np.random.default_rng(0)
    bias, weights = draw.normal(size=count), draw.normal(size=len(support.values))
    leaves = [torch.from_numpy(part).requires_grad_() for part in (bias, weights)]
    values, slopes = [], []
    for value in (
        BagObjective(sources, said, support, count, 0.7)(*leaves),
        dense(sources, said, support, count, 0.7, *leaves),
    ):
        values.append(float(value.detach()))
        slopes.append(torch.cat(torch.autograd.grad(value, leaves)))
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert float((slopes[0] - slopes[1]).abs().max()) <= 1e-10


def gradient_size(model, sources, targets, l2):
    """The largest slope at a model's weights; 0 where they are the least."""
    _, said = classify(sources, targets)
    objective = BagObjective(sources, said, model.rows, len(model.base), l2)
    leaves = [torch.tensor(part, requires_grad=True) for part in (model.base, model.rows.values)]
    slopes = torch.autograd.grad(objective(*leaves), leaves)
    return max(float(slope.abs().max()) for slope in slopes)


@pytest.mark.parametrize("pairs", [CATS, drawn(60)])
def test_slope_is_zero_at_the_end(pairs):
    words, sources, targets = number_words(pairs)
    one, two = (train_logreg(sources, targets, len(words.sources), steps=300) for _ in range(2))
    assert gradient_size(one, sources, targets, 1.0) <= 1e-5
    few = train_logreg(sources, targets, len(words.sources), steps=1)
    assert gradient_size(few, sources, targets, 1.0) > 1e-2
    assert one.base.tobytes() == two.base.tobytes()
    assert one.rows.values.tobytes() == two.rows.values.tobytes()


def test_translates_the_toy_whatever_its_order(tmp_path):
    words, sources, targets = number_words(CATS)
    model = train_logreg(sources, targets, len(words.sources), l2=0.1)
    counting = WordTranslator("logreg", model, words)
    for source, target in CATS:
        sentence = counting.translate(source)
        assert sentence.text == " ".join(cut(target))
        shuffled = " ".join(reversed(cut(source)))
        assert counting.translate(shuffled).words == sentence.words
    counting.save(tmp_path, {})
    again = WordTranslator.open(tmp_path).translate("Tu es un chat.")
    assert again.text == counting.translate("Tu es un chat.").text
