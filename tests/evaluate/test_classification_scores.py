"""Figures of classes against their definitions, written out as loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.evaluate.classification_scores import (
    bootstrap_interval,
    calibration_error,
    score_classes,
    score_numbers,
)

NAMES = ["a", "b", "c", "d"]


def f1(gold, said, name):
    right = sum(g == s == name for g, s in zip(gold, said, strict=True))
    precision = right / max(1, said.count(name))
    recall = right / max(1, gold.count(name))
    return 2 * precision * recall / (precision + recall) if right else 0.0


def test_one_class_a_text():
    torch.manual_seed(0)
    chances = torch.randn(200, 4).mul(2).softmax(-1)
    chances[:, 3] = 0.0  # a class that is never said, nor there
    gold = torch.randint(3, (200,))
    scores = score_classes(gold, chances, NAMES, torch.arange(200), 0)
    is_, said = gold.tolist(), chances.argmax(-1).tolist()
    right = sum(g == s for g, s in zip(is_, said, strict=True))
    assert scores.accuracy == scores.micro_f1 == right / 200
    each = [f1(is_, said, n) for n in range(3)]
    assert scores.macro_f1 == pytest.approx(sum(each) / 3)
    assert [row.f1 for row in scores.classes] == pytest.approx([*each, 0.0])
    table = [
        [sum(g == a and s == b for g, s in zip(is_, said, strict=True)) for b in range(4)]
        for a in range(4)
    ]
    assert scores.confusion == table
    assert scores.low < scores.accuracy < scores.high
    spread = 1.96 * (scores.accuracy * (1 - scores.accuracy) / 200) ** 0.5  # the normal's
    assert scores.high - scores.low == pytest.approx(2 * spread, rel=0.15)


def test_several_labels_a_text():
    gold = torch.tensor([[1, 0], [1, 1], [0, 0], [0, 1]]).bool()
    chances = torch.tensor([[0.9, 0.2], [0.8, 0.4], [0.1, 0.1], [0.7, 0.6]])
    scores = score_classes(gold, chances, ["x", "y"], torch.arange(4), 0)
    assert (scores.accuracy, scores.confusion) == (0.5, None)
    assert scores.micro_f1 == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))
    assert scores.macro_f1 == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_calibration_is_the_gap_in_bins_of_confidence():
    dice = np.random.default_rng(0)
    sure = dice.uniform(0.4, 1, 3000)
    right = dice.uniform(size=3000) < sure  # calibrated: what is left is noise
    assert calibration_error(torch.tensor(sure), torch.tensor(right)) < 0.03
    low, high = torch.full((10,), 0.62), torch.full((10,), 0.95)
    answers = torch.tensor([True] * 10 + [True] * 5 + [False] * 5)
    assert calibration_error(torch.cat([low, high]), answers) == pytest.approx((0.38 + 0.45) / 2)


def test_texts_are_drawn_whole():
    assert bootstrap_interval([1, 1], [1, 1], 0) == (1.0, 1.0)
    words = bootstrap_interval([10, 0] * 20, [10, 10] * 20, 0)  # sentences all right or all wrong
    apart = bootstrap_interval([1, 0] * 200, [1, 1] * 200, 0)
    assert words[1] - words[0] > 2 * (apart[1] - apart[0])


def test_numbers():
    gold, said = [1.0, 2.0, 3.0, 4.0], [1.5, 2.0, 2.5, 5.0]
    scores = score_numbers(gold, said)
    assert scores.pearson == pytest.approx(np.corrcoef(gold, said)[0, 1])
    assert scores.spearman == 1.0 and scores.mae == 0.5
    assert scores.rmse == pytest.approx((1.5 / 4) ** 0.5)
