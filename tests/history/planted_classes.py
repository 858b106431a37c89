"""A source of classes, whose classes are known."""

from __future__ import annotations

import numpy as np


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
