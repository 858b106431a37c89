"""Confidence of words: the features, the regression, and what a wrong config says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.doubt import Sample, auroc, fit
from regard.errors import DataError
from regard.translation.word_confidence import (
    FEATURES,
    DoubtConfig,
    doubt_config,
    doubt_features,
    word_confidence,
)


def test_features_by_hand() -> None:
    """Two words came from the first source word, the second of them sees it less; one from none."""
    weights = [[0.8, 0.2], [0.7, 0.3], [0.0, 0.0]]
    rows = doubt_features([-1.0, 0.0, -2.0], 0.5, weights, [(0, 0), (0, 1), (1, 1)])
    named = [dict(zip(FEATURES, row, strict=True)) for row in rows]
    assert [row["fertility"] for row in named] == [2, 2, 0]
    assert [row["focus"] for row in named] == pytest.approx([0.8, 1.0, 0.0])
    assert [row["foremost"] for row in named] == [1, 1, 0]
    assert [row["probability"] for row in named] == pytest.approx(np.exp([-1, 0, -2]))
    assert [math.exp(row["surprise"]) for row in named] == pytest.approx([1.001, 0.001, 2.001])
    assert all(row["bias"] == 1 and row["sentence"] == 0.5 for row in named)


def test_the_regression_is_that_of_the_config() -> None:
    doubt = DoubtConfig((1.0, -2.0), 0.5)
    assert word_confidence([[1.0, 0.5], [1.0, 1.0]], doubt) == pytest.approx([0.5, 0.2689414])
    config = {"weights": {name: n for n, name in enumerate(FEATURES)}, "threshold": 0.7}
    assert doubt_config({"doubt": config}) == DoubtConfig(tuple(range(len(FEATURES))), 0.7)
    assert doubt_config({}) is None
    with pytest.raises(DataError, match="'probability'[\\s\\S]*bench/doubt.py"):
        doubt_config({"doubt": config | {"weights": {"bias": 1, "surprise": 1}} | {"focus": 1}})


def test_what_is_fitted_finds_the_weights() -> None:
    rng = np.random.default_rng(0)
    x = np.c_[np.ones(20_000), rng.normal(size=(20_000, 2))]
    wanted = np.array([0.5, -1.0, 2.0])
    wrong = rng.random(20_000) > 1 / (1 + np.exp(-x @ wanted))
    weights = fit(
        [Sample(x[:9000], wrong[:9000], x[:9000, 1]), Sample(x[9000:], wrong[9000:], x[:, 1])]
    )
    assert weights == pytest.approx(wanted, abs=0.1)


def test_auroc_against_all_pairs() -> None:
    rng = np.random.default_rng(1)
    wrong, sure = rng.random(60) < 0.3, rng.integers(0, 9, 60).astype(float)
    pairs = [(a < b) + (a == b) / 2 for a in sure[wrong] for b in sure[~wrong]]
    assert auroc(wrong, sure) == pytest.approx(np.mean(pairs))
