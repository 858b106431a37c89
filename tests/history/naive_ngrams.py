"""n-gram models as the papers print them, with dicts and recursion: the oracle of the arrays."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np


class Naive:
    """Counts of a list of sentences; `start` stands before each, `end` is one of its words."""

    def __init__(self, sentences, vocab, order, start=None, k=1.0):
        self.vocab, self.order, self.start, self.k = vocab, order, start, k
        self.words = [w for w in range(vocab) if w != start]
        self.count = Counter(
            tuple(s[i : i + n])
            for s in sentences
            for n in range(1, order + 1)
            for i in range(len(s) - n + 1)
        )
        self.count.pop((start,), None)
        for name in {
            "p",
            "after",
            "adjusted",
            "discounts",
            "total",
            "weight",
            "left_out",
            "discounted",
            "shares",
        } & set(dir(self)):
            setattr(self, name, cache(getattr(self, name)))

    def after(self, h):
        """Words seen after a context."""
        return [w for w in self.words if self.count[(*h, w)]]

    def total(self, h):
        return sum(self.count[(*h, w)] for w in self.words)


class Add(Naive):
    def p(self, h, w):
        if len(h) < self.order - 1 and h[:1] != (self.start,):
            return 1 / len(self.words)
        return (self.count[(*h, w)] + self.k) / (self.total(h) + self.k * len(self.words))


class WittenBell(Naive):
    def p(self, h, w):
        lower = self.p(h[1:], w) if h else 1 / len(self.words)
        c, t = self.total(h), len(self.after(h))
        return (self.count[(*h, w)] + t * lower) / (c + t) if c else lower


class KneserNey(Naive):
    """Interpolated and modified (Chen and Goodman 1998)."""

    def adjusted(self, g):
        if len(g) == self.order or g[0] == self.start:
            return self.count[g]
        return sum(1 for v in range(self.vocab) if self.count[(v, *g)])

    def discounts(self, n):
        grams = [g for g in self.count if len(g) == n]
        n1, n2, n3, n4 = (sum(self.adjusted(g) == r for g in grams) for r in (1, 2, 3, 4))
        if not n1 * n2 * n3 * n4:
            return 0, 0.5, 1, 1.5
        y = n1 / (n1 + 2 * n2)
        made = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        return 0, *(made if all(0 < d <= n for n, d in enumerate(made, 1)) else (0.5, 1, 1.5))

    def p(self, h, w):
        lower = self.p(h[1:], w) if h else 1 / len(self.words)
        counts = {v: self.adjusted((*h, v)) for v in self.words}
        total = sum(counts.values())
        if not total:
            return lower
        d = self.discounts(len(h) + 1)
        left = sum(d[min(c, 3)] for c in counts.values())
        return (counts[w] - d[min(counts[w], 3)] + left * lower) / total


def distribution(model, context):
    """log p (V,) of every id after a context; the start of a sentence has none of it."""
    logs = np.array([model.logprobs([*context, id])[-1] for id in range(model.vocab)])
    return np.where(np.isnan(logs), -np.inf, logs)
