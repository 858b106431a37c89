"""How good classes and numbers are: accuracy, F1, calibration, intervals, correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.statistics import spearman
from regard.evaluate.results import ClassScore, ClassScores, NumberScores

BINS = 15  # of confidence (Guo 2017)
DRAWS = 1000  # of the bootstrap (Efron 1979)


def class_figures(gold: Tensor, said: Tensor, several: bool) -> dict[str, Any]:
    """Accuracy, macro and micro F1 of which classes are there and which are said, (N, C) each.

    Accuracy is all of a text right. Macro F1 is over the classes that are there or said; with
    `several` labels a text over all.
    """
    right, both = (gold & said).sum(0).double(), gold.sum(0) + said.sum(0)
    f1 = 2 * right / both.clamp(min=1)
    return {
        "accuracy": int((gold == said).all(1).sum()) / max(len(gold), 1),
        "macro_f1": float(f1.mean() if several else f1[both > 0].mean()),
        "micro_f1": float(2 * right.sum() / both.sum().clamp(min=1)),
    }


def calibration_error(sure: Tensor, right: Tensor) -> float:
    """Expected calibration error: |accuracy − confidence| in 15 bins of confidence, weighted."""
    bins = (sure.double() * BINS).ceil().long().clamp(1, BINS) - 1
    return float(bins.bincount(right.double() - sure.double(), BINS).abs().sum() / len(sure))


def bootstrap_interval(
    right: Sequence[float], asked: Sequence[float], seed: int
) -> tuple[float, float]:
    """95 % interval of sum(right) / sum(asked) over texts that are drawn again and again."""
    dice, rows = np.random.default_rng(seed), np.array([right, asked]).T
    drawn = [rows[dice.integers(len(rows), size=len(rows))].sum(0) for _ in range(DRAWS)]
    low, high = np.quantile([part[0] / max(part[1], 1) for part in drawn], (0.025, 0.975))
    return float(low), float(high)


def score_classes(
    gold: Tensor, chances: Tensor, names: Sequence[str], texts: Tensor, seed: int
) -> ClassScores:
    """Figures of probabilities (N, C) of which `gold` (N,) is right; `texts` (N,) are theirs.

    Of several labels a text `gold` is (N, C): a label is said from a half on.
    """
    several, table = gold.dim() == 2, None
    sure, said = chances.max(-1)
    if several:
        said = chances > 0.5
        sure = torch.where(said, chances, 1 - chances)
    ece = calibration_error(sure.flatten(), (gold == said).flatten())
    if not several:
        gold, said = F.one_hot(gold, len(names)), F.one_hot(said, len(names))
        table = (gold.double().T @ said.double()).long().tolist()
        gold, said = gold.bool(), said.bool()
    whole = (gold == said).all(1).double()
    low, high = bootstrap_interval(texts.bincount(whole).tolist(), texts.bincount().tolist(), seed)
    right, told, there = (gold & said).sum(0).double(), said.sum(0), gold.sum(0)
    parts = [right / told.clamp(min=1), right / there.clamp(min=1)]
    parts += [2 * right / (told + there).clamp(min=1), there]
    rows = zip(names, *(part.tolist() for part in parts), strict=True)
    return ClassScores(
        **class_figures(gold, said, several),
        low=low,
        high=high,
        ece=ece,
        count=len(gold),
        classes=[ClassScore(*row) for row in rows],
        confusion=table,
    )


def score_numbers(gold: Sequence[float], said: Sequence[float]) -> NumberScores:
    """Correlations and errors of numbers."""
    x, y = np.asarray(gold, np.float64), np.asarray(said, np.float64)
    pearson = float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and y.std() > 0 else float("nan")
    root, mean = float(np.sqrt(((y - x) ** 2).mean())), float(np.abs(y - x).mean())
    return NumberScores(pearson, spearman(list(gold), list(said)), root, mean, len(gold))
