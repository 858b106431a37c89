"""How good classes and numbers are: accuracy, F1, calibration, intervals, correlation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.data.statistics import spearman
from regard.evaluate.results import ClassScore, ClassScores, NumberScores

BINS = 15  # of confidence (Guo 2017)
DRAWS = 1000  # of the bootstrap (Efron 1979)


def count_confusion(gold: Tensor, said: Tensor, classes: int) -> Tensor:
    """(C, C): how often a class (row) was called each class (column)."""
    return (gold * classes + said).bincount(minlength=classes**2).view(classes, classes)


def f1_scores(right: Tensor, wrong: Tensor, missed: Tensor) -> Tensor:
    """F1 of each class; 0 where it is neither there nor said."""
    return 2 * right.double() / (2 * right + wrong + missed).clamp(min=1)


def class_figures(table: Tensor) -> dict[str, float]:
    """Accuracy, macro F1 over the classes that are there or said, and micro F1, which is it."""
    right, there, said = table.diag(), table.sum(1), table.sum(0)
    f1, met = f1_scores(right, said - right, there - right), (there + said) > 0
    accuracy = int(right.sum()) / max(int(table.sum()), 1)
    return {"accuracy": accuracy, "macro_f1": float(f1[met].mean()), "micro_f1": accuracy}


def set_figures(gold: Tensor, said: Tensor) -> dict[str, float]:
    """Of several labels a text, (N, C): accuracy is all of them right."""
    counts = [(gold & said).sum(0), (~gold & said).sum(0), (gold & ~said).sum(0)]
    micro = f1_scores(*(count.sum() for count in counts))
    exact = float((gold == said).all(1).double().mean())
    macro = float(f1_scores(*counts).mean())
    return {"accuracy": exact, "macro_f1": macro, "micro_f1": float(micro)}


def calibration_error(sure: Tensor, right: Tensor) -> float:
    """Expected calibration error: |accuracy − confidence| in 15 bins of confidence, weighted."""
    bins = (sure.double() * BINS).ceil().long().clamp(1, BINS) - 1
    gap = torch.zeros(BINS, dtype=torch.double)
    gap.index_add_(0, bins, right.double() - sure.double())
    return float(gap.abs().sum() / len(sure))


def bootstrap_interval(
    right: Sequence[int], asked: Sequence[int], seed: int
) -> tuple[float, float]:
    """95 % interval of sum(right) / sum(asked) over texts that are drawn again and again."""
    dice = np.random.default_rng(seed)
    rows = np.stack([np.asarray(right), np.asarray(asked)], 1)
    drawn = [rows[dice.integers(len(rows), size=len(rows))].sum(0) for _ in range(DRAWS)]
    shares = np.array([part[0] / max(part[1], 1) for part in drawn])
    low, high = np.quantile(shares, (0.025, 0.975))
    return float(low), float(high)


def score_classes(
    gold: Tensor, chances: Tensor, names: Sequence[str], texts: Tensor, seed: int
) -> ClassScores:
    """Figures of probabilities (N, C) of which `gold` (N,) is right; `texts` (N,) are theirs."""
    sure, said = chances.max(-1)
    right, table = gold == said, count_confusion(gold, said, len(names))
    each = [torch.zeros(int(texts.max()) + 1, dtype=torch.long) for _ in range(2)]
    each[0].index_add_(0, texts, right.long())
    each[1].index_add_(0, texts, torch.ones_like(texts))
    low, high = bootstrap_interval(each[0].tolist(), each[1].tolist(), seed)
    figures = class_figures(table)
    return ClassScores(
        accuracy=figures["accuracy"],
        macro_f1=figures["macro_f1"],
        micro_f1=figures["micro_f1"],
        low=low,
        high=high,
        ece=calibration_error(sure, right),
        count=len(gold),
        classes=class_rows(table.diag(), table.sum(0), table.sum(1), names),
        confusion=table.tolist(),
    )


def score_sets(real: Tensor, chances: Tensor, names: Sequence[str], seed: int) -> ClassScores:
    """Figures of several labels a text (N, C): a label is said from a half on."""
    said = chances > 0.5
    whole = (real == said).all(1).long().tolist()
    low, high = bootstrap_interval(whole, [1] * len(whole), seed)
    sure = torch.where(said, chances, 1 - chances).flatten()
    figures = set_figures(real, said)
    return ClassScores(
        accuracy=figures["accuracy"],
        macro_f1=figures["macro_f1"],
        micro_f1=figures["micro_f1"],
        low=low,
        high=high,
        ece=calibration_error(sure, (real == said).flatten()),
        count=len(real),
        classes=class_rows((real & said).sum(0), said.sum(0), real.sum(0), names),
    )


def class_rows(
    right: Tensor, said: Tensor, there: Tensor, names: Sequence[str]
) -> list[ClassScore]:
    """Precision, recall and F1 of each class."""
    f1 = f1_scores(right, said - right, there - right).tolist()
    shares = [(right.double() / count.clamp(min=1)).tolist() for count in (said, there)]
    return [ClassScore(*row) for row in zip(names, *shares, f1, there.tolist(), strict=True)]


def score_numbers(gold: Sequence[float], said: Sequence[float]) -> NumberScores:
    """Correlations and errors of numbers."""
    x, y = np.asarray(gold, np.float64), np.asarray(said, np.float64)
    varied = x.std() > 0 and y.std() > 0
    pearson = float(np.corrcoef(x, y)[0, 1]) if varied else float("nan")
    errors = y - x
    root, mean = float(np.sqrt((errors**2).mean())), float(np.abs(errors).mean())
    return NumberScores(pearson, spearman(list(gold), list(said)), root, mean, len(gold))
