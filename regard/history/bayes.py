"""Naive Bayes: which target words a bag of source words has, by counting who met whom.

    p(class | bag) ∝ p(class) Π_f p(f | class)^x_f
    p(f | class) = (n(f, class) + k) / (Σ_f n(f, class) + k V)

*Naive*: source words are taken to be independent given the class. k is Laplace's 1 or less.
"""

from __future__ import annotations

import numpy as np

from regard.errors import UsageError
from regard.history.bag import BagModel, classify, meetings
from regard.history.ibm1 import Rows


def train_bayes(sources: Rows, targets: Rows, source_words: int, k: float = 1.0) -> BagModel:
    """Count and smooth; log p(f | class) is split into what an unseen f has and what is added."""
    if not k > 0:
        raise UsageError("training naive Bayes", f"k = {k}", "more than 0")
    classes, said = classify(sources, targets)
    counts = meetings(sources, said, source_words, len(classes.word))
    totals = np.bincount(counts.columns, counts.values, len(classes.word))
    unseen = np.log(k) - np.log(totals + k * source_words)
    every = np.ones(len(counts.values), bool)
    rows = counts.keep(every, np.log1p(counts.values / k))
    return BagModel(classes, np.log(classes.seen / classes.seen.sum()), unseen, rows)
