"""Bags of words: which target words a source has, whatever its order, by one linear classifier.

A class is a target word, or the second, third, … time it stands in a sentence, so that a sentence
is a set of classes. Of a bag of source words f with counts x

    log p(class | bag) = base[class] + Σ_f x_f (each[class] + rows[f, class]) − log Z

Naive Bayes counts these weights, multinomial logistic regression fits them. As many of the
likeliest classes as sources of that length have target words are the translation, each at the place
it mostly has. Nothing knows which source word a target word came from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.ambient import progress
from regard.history import ibm1
from regard.history.ibm1 import Floats, Ids, Ragged, Sparse, link_keys, runs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Classes:
    """What a bag of source words is told apart into."""

    word: Ids  # (classes,) the target word
    seen: Ids  # (classes,) in how many sentences
    place: Floats  # (classes,) where it stands on average: 0 begins a sentence, 1 ends it
    lengths: Floats  # (n,) target words of a source of 0, 1, 2, … words, on average


@dataclass(frozen=True)
class BagModel:
    """A linear classifier of bags."""

    classes: Classes
    base: Floats  # (classes,)
    each: Floats  # (classes,)
    rows: Sparse  # (source words, classes)

    def logprobs(self, ids: Ids) -> Floats:
        """log p(class | bag) of each class; the order of the ids plays no part."""
        scores: Floats = self.base + len(ids) * self.each
        for id in np.sort(ids):  # sums in one order are the same to the bit
            columns, values = self.rows.row(int(id))
            scores[columns] += values
        scores -= scores.max()
        scores -= np.log(np.exp(scores).sum())
        return scores

    def choose(self, sentence: list[str], ids: Ids, targets: list[str]) -> list[ibm1.Chosen]:
        """The word of each place; unknown source words (-1) are copied near theirs."""
        logprobs = self.logprobs(ids[ids >= 0])
        lengths = self.classes.lengths
        full = lengths[min(len(ids), len(lengths) - 1)] * max(1, len(ids) / (len(lengths) - 1))
        unknown = np.flatnonzero(ids < 0)
        size = max(round(float(full)) - len(unknown), int(len(unknown) < len(ids)))
        best, place = np.argsort(-logprobs, kind="stable")[:size], self.classes.place
        chosen = [ibm1.Chosen(targets[self.classes.word[n]], float(logprobs[n])) for n in best]
        placed = [(float(place[n]), word) for n, word in zip(best, chosen, strict=True)]
        placed += [((n + 0.5) / len(ids), ibm1.copy_unknown(sentence[n])) for n in unknown]
        return [word for _, word in sorted(placed, key=lambda pair: pair[0])]


def classify(sources: Ragged, targets: Ragged) -> tuple[Classes, Ragged]:
    """The classes of some pairs, and the target sentences as classes."""
    sizes = np.diff(targets.bounds)
    sentence = np.repeat(np.arange(len(sizes)), sizes)
    words = int(targets.ids.max()) + 1
    inside = sentence * words + targets.ids  # a word of a sentence
    order = np.argsort(inside, kind="stable")
    times = np.empty_like(order)  # how often each word stood in its sentence before
    times[order] = np.arange(len(order)) - np.searchsorted(inside, inside[order], sorter=order)
    named = times * words + targets.ids
    keys, ids, seen = np.unique(named, return_inverse=True, return_counts=True)
    places = (np.arange(len(ids)) - targets.bounds[sentence] + 0.5) / sizes[sentence]
    heard = np.diff(sources.bounds)
    met = np.bincount(heard)
    known = np.flatnonzero(met)
    mean = np.bincount(heard, sizes)[known] / met[known]
    lengths = np.interp(np.arange(len(met)), np.append(0, known), np.append(0.0, mean))
    classes = Classes(keys % words, seen, np.bincount(ids, places) / seen, lengths)
    return classes, Ragged(ids, targets.bounds)


def meetings(sources: Ragged, classes: Ragged, source_words: int, count: int) -> Sparse:
    """How often each source word and class stood in one pair; a word twice there counts twice."""
    parts = [np.unique(keys, return_counts=True) for keys, _ in link_keys(sources, classes, count)]
    cells, place = np.unique(np.concatenate([keys for keys, _ in parts]), return_inverse=True)
    values = np.bincount(place, np.concatenate([times for _, times in parts]))
    return Sparse.of(*np.divmod(cells, count), values, source_words)


# Naive Bayes --------------------------------------------------------------------------------------


def train_bayes(sources: Ragged, targets: Ragged, source_words: int, k: float = 1.0) -> BagModel:
    """Count who met whom, with k (Laplace's 1, or less) more of each.

        p(class | bag) ∝ p(class) Π_f p(f | class)^x_f
        p(f | class) = (n(f, class) + k) / (Σ_f n(f, class) + k V)

    *Naive*: source words are taken to be independent given the class. log p(f | class) is split
    into what an unseen f has and what is added.
    """
    classes, said = classify(sources, targets)
    counts = meetings(sources, said, source_words, len(classes.word))
    totals = np.bincount(counts.columns, counts.values, len(classes.word))
    unseen = np.log(k) - np.log(totals + k * source_words)
    rows = replace(counts, values=np.log1p(counts.values / k))
    return BagModel(classes, np.log(classes.seen / classes.seen.sum()), unseen, rows)


# Logistic regression ------------------------------------------------------------------------------


class BagObjective:
    """What is minimised over bias b and weights w of some pairs.

        −Σ_pairs Σ_class∈target log p(class | bag) + l2/2 |w|²
        p(class | bag) ∝ exp(b[class] + Σ_f x_f w[f, class])

    It is convex, so that there is one answer. w is sparse: a source word has weights for the
    classes that it meets more often than by chance. A class without weights in a bag has exp(b), so
    that Z of a bag is the sum of all exp(b), corrected in the few classes with weights.

    A *touch* is a weight in a pair, a *sum* a class of a pair that has weights there.
    """

    def __init__(self, sources: Ragged, said: Ragged, met: Sparse, count: int, l2: float) -> None:
        from torch import from_numpy

        self.l2, classes = l2, np.diff(said.bounds)
        self.seen = from_numpy(np.bincount(said.ids, minlength=count).astype(np.float64))
        self.said = from_numpy(classes.astype(np.float64))  # classes of each pair
        sizes = np.diff(met.bounds)[sources.ids]
        cells = runs(met.bounds[sources.ids], sizes)
        pairs = np.repeat(np.repeat(np.arange(len(classes)), np.diff(sources.bounds)), sizes)
        sums, place = np.unique(pairs * count + met.columns[cells], return_inverse=True)
        wanted = np.repeat(np.arange(len(classes)), classes) * count + said.ids
        self.right = from_numpy(np.isin(sums, wanted).astype(np.float64))  # of each sum
        self.pair, self.column = map(from_numpy, np.divmod(sums, count))
        self.cells, self.place = (from_numpy(x.astype(np.int32)) for x in (cells, place))

    def __call__(self, bias: Tensor, weights: Tensor) -> Tensor:
        """The value; index_select and index_add, whose gradients are sums in one order."""
        shift = bias.detach().max()
        alone = (bias - shift).exp()  # of a class without weights
        extra = (0 * self.right).index_add(0, self.place, weights.index_select(0, self.cells))
        moved = alone.index_select(0, self.column) * extra.expm1()
        z = alone.sum() + (0 * self.said).index_add(0, self.pair, moved)  # (pairs,)
        loss = self.said @ (z.log() + shift) - self.seen @ bias - self.right @ extra
        return loss + self.l2 / 2 * weights @ weights


def train_logreg(
    sources: Ragged,
    targets: Ragged,
    source_words: int,
    l2: float = 1.0,
    top: int = 50,
    steps: int = 100,
) -> BagModel:
    """Fit by L-BFGS from zero weights: nothing is drawn, so that two runs agree to the bit."""
    import torch

    classes, said = classify(sources, targets)
    count = len(classes.word)
    met = meetings(sources, said, source_words, count)
    support = met.keep(telling(met, top), met.values)
    objective = BagObjective(sources, said, support, count, l2)
    bias = torch.from_numpy(np.log(classes.seen / classes.seen.sum())).requires_grad_()
    weights = torch.zeros(len(support.values), dtype=torch.float64, requires_grad=True)
    scale = objective.said.sum()  # of a mean, the gradient's limit is the same everywhere
    search = torch.optim.LBFGS(
        [bias, weights],
        max_iter=steps,
        max_eval=2 * steps,
        tolerance_grad=1e-9,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        search.zero_grad()
        value = objective(bias, weights) / scale
        value.backward()
        say(f"{value.item():.4f} nats a word")
        return value

    with progress("fitting") as say:
        search.step(closure)
    rows = replace(support, values=weights.detach().numpy())
    return BagModel(classes, bias.detach().numpy(), np.zeros(count), rows)


def telling(met: Sparse, top: int) -> NDArray[np.bool_]:
    """The cells that most surprise in each row: n log n / expected, at most `top` of a row."""
    rows, total = met.row_of, met.values.sum()
    by_row = np.bincount(rows, met.values, len(met.bounds) - 1)[rows]
    by_column = np.bincount(met.columns, met.values)[met.columns]
    gain = met.values * np.log(met.values * total / (by_row * by_column))
    order = np.lexsort((-gain, rows))
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - met.bounds[rows[order]]
    kept: NDArray[np.bool_] = (rank < top) & (gain > 0)
    return kept
