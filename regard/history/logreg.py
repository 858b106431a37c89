"""Multinomial logistic regression: which target words a bag of source words has, by fitting.

The weights w of source word and class, and a bias b for each class, have the least

    −Σ_pairs Σ_class∈target log p(class | bag) + l2/2 |w|²
    p(class | bag) ∝ exp(b[class] + Σ_f x_f w[f, class])

which is convex, so that there is one answer. w is sparse: a source word has weights for the classes
that it meets more often than by chance, at most `best` of them. A class without weights in a bag
has exp(b), so that Z of a bag is the sum of all exp(b), mended in the few classes with weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import UsageError
from regard.history.bag import BagModel, Sparse, classify, meetings
from regard.history.ibm1 import Floats, Rows

DOING = "training logistic regression"
Say = Callable[[str], None]


class Objective:
    """What is minimised, with its gradient, over bias and weights of some pairs.

    A *touch* is a weight in a pair, a *sum* a class of a pair that has weights there.
    """

    def __init__(self, sources: Rows, said: Rows, support: Sparse, count: int, l2: float) -> None:
        self.count, self.l2 = count, l2
        self.seen = np.bincount(said.ids, minlength=count).astype(np.float64)
        self.said = np.diff(said.bounds).astype(np.float64)  # classes of each pair
        sizes = np.diff(support.bounds)[sources.ids]
        shift = support.bounds[sources.ids] - (np.cumsum(sizes) - sizes)
        cells = np.arange(sizes.sum()) + np.repeat(shift, sizes)
        pairs = np.repeat(np.arange(len(self.said)), np.diff(sources.bounds))
        keys = np.repeat(pairs, sizes) * count + support.columns[cells]
        order = np.argsort(keys, kind="stable")
        keys, self.cells = keys[order], cells[order].astype(np.int32)
        new = np.append(True, keys[1:] != keys[:-1]) if len(keys) else np.zeros(0, bool)
        self.starts = np.flatnonzero(new)
        self.sizes = np.diff(np.append(self.starts, len(keys)))
        self.pair, self.column = np.divmod(keys[self.starts], count)
        self.right = self.matches(said)
        self.cell_count = len(support.columns)
        self.wanted = self.by_cell(self.right)  # how often weight and class were both there

    def matches(self, said: Rows) -> Floats:
        """How often the class of each sum was in its pair's target: 1 or 0."""
        pairs = np.repeat(np.arange(len(self.said)), np.diff(said.bounds))
        there = np.isin(self.pair * self.count + self.column, pairs * self.count + said.ids)
        return there.astype(np.float64)

    def by_cell(self, sums: Floats) -> Floats:
        """What belongs to sums, added up by weight."""
        spread = np.repeat(sums, self.sizes)
        return np.bincount(self.cells, spread, self.cell_count).astype(np.float64)

    def __call__(self, bias: Floats, weights: Floats) -> tuple[float, Floats, Floats]:
        """The value, and the gradients of bias and weights."""
        shift = float(bias.max())
        alone = np.exp(bias - shift)  # of a class without weights
        touched = weights[self.cells]
        extra = np.add.reduceat(touched, self.starts) if len(touched) else touched
        moved = alone[self.column] * np.expm1(extra)
        z = alone.sum() + np.bincount(self.pair, moved, len(self.said))  # (pairs,)
        loss = float(self.said @ (np.log(z) + shift) - self.seen @ bias - self.right @ extra)
        share = self.said / z  # (pairs,)
        expected = alone * share.sum()
        expected += np.bincount(self.column, moved * share[self.pair], self.count)
        inside = (alone[self.column] + moved) * share[self.pair]
        slope = self.by_cell(inside) - self.wanted + self.l2 * weights
        return loss + self.l2 / 2 * float(weights @ weights), expected - self.seen, slope


def train_logreg(
    sources: Rows,
    targets: Rows,
    source_words: int,
    l2: float = 1.0,
    best: int = 50,
    steps: int = 100,
    say: Say = lambda text: None,
) -> BagModel:
    """Fit by L-BFGS from zero weights: nothing is drawn, so that two runs agree to the bit."""
    if not l2 > 0:
        raise UsageError(DOING, f"l2 = {l2}", "more than 0, or there is no least")
    if best < 1 or steps < 1:
        raise UsageError(DOING, f"best = {best}, steps = {steps}", "1 or more of both")
    classes, said = classify(sources, targets)
    count = len(classes.word)
    met = meetings(sources, said, source_words, count)
    support = met.keep(telling(met, best), met.values)
    objective = Objective(sources, said, support, count, l2)
    start = np.log(classes.seen / classes.seen.sum())
    bias, weights = minimise(objective, start, np.zeros(len(support.values)), steps, say)
    rows = Sparse(support.bounds, support.columns, weights)
    return BagModel(classes, bias, np.zeros(count), rows)


def telling(met: Sparse, best: int) -> NDArray[np.bool_]:
    """The cells that most surprise in each row: n log n / expected, at most `best` of a row."""
    rows, total = met.row_of, met.values.sum()
    by_row = np.bincount(rows, met.values, len(met.bounds) - 1)[rows]
    by_column = np.bincount(met.columns, met.values)[met.columns]
    gain = met.values * np.log(met.values * total / (by_row * by_column))
    order = np.lexsort((-gain, rows))
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - met.bounds[rows[order]]
    kept: NDArray[np.bool_] = (rank < best) & (gain > 0)
    return kept


def minimise(
    objective: Objective, bias: Floats, weights: Floats, steps: int, say: Say
) -> tuple[Floats, Floats]:
    """The bias and weights of the least value, after at most so many steps."""
    split = len(bias)
    both = torch.from_numpy(np.concatenate((bias, weights))).requires_grad_()
    scale = float(objective.said.sum())  # of a mean, the gradient's limit is the same everywhere
    search = torch.optim.LBFGS(
        [both],
        max_iter=steps,
        max_eval=2 * steps,
        tolerance_grad=1e-9,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        now = both.detach().numpy()
        value, *slopes = objective(now[:split], now[split:])
        both.grad = torch.from_numpy(np.concatenate(slopes) / scale)
        say(f"{value / scale:.4f} nats a word")
        return value / scale

    search.step(closure)
    found: Floats = both.detach().numpy()
    return found[:split], found[split:]
