"""Words in classes: Brown's clusters.

A class bigram model has p(w | v) = p(w | c(w)) p(c(w) | c(v)). Its likelihood depends on the
classes by the average mutual information of neighbouring classes alone (AMI, in bits):

    I = Σ p(a, b) log₂ p(a, b) / (p(a) p(b))

Brown's way (1992) gives each of the k most frequent words a class, adds the next word as one more
and joins the two classes that lose least, and so on; the last k are joined to a tree, in which a
class is a string of bits. Losses are kept and mended after each change, so that a step takes k²
sums instead of k³ (Liang 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.ambient import track
from regard.errors import DataError, UsageError
from regard.history.ibm1 import Sparse
from regard.history.results import Cluster, Clusters
from regard.history.word2vec import WordCorpus

Ids = NDArray[np.int64]
Whole = NDArray[np.integer]
Floats = NDArray[np.float64]


class Bigrams:
    """How often words stand beside each other, by rows and by columns."""

    def __init__(self, ids: Whole, bounds: Ids, vocab: int) -> None:
        inside = np.ones(max(len(ids) - 1, 0), np.bool_)
        inside[bounds[1:-1] - 1] = False  # none from one sentence to the next
        first, second = ids[:-1][inside].astype(np.int64), ids[1:][inside].astype(np.int64)
        if not len(first):
            problem = "no two words beside each other"
            raise DataError("clustering words", problem, "lines of 2 words or more")
        keys, self.count = np.unique(first * vocab + second, return_counts=True)
        self.first, self.second = keys // vocab, keys % vocab
        self.total, self.vocab = len(first), vocab
        self.before = np.bincount(first, minlength=vocab).astype(np.float64)  # as the first of two
        self.after = np.bincount(second, minlength=vocab).astype(np.float64)
        turned = np.argsort(self.second, kind="stable")
        self.follows = Sparse.of(self.first, self.second, self.count, vocab)
        self.leads = Sparse.of(self.second[turned], self.first[turned], self.count[turned], vocab)

    def beside(self, word: int, classes: Ids, k: int) -> tuple[Floats, Floats]:
        """How often each class (k,) follows a word, and stands before it; −1 is no class yet."""

        def sums(words: Whole, counts: Floats) -> Floats:
            where = classes[words]
            return np.bincount(where[where >= 0], counts[where >= 0], k).astype(np.float64)

        return sums(*self.follows.row(word)), sums(*self.leads.row(word))


def share(n: Floats, before: Floats, after: Floats, total: int) -> Floats:
    """n / total · log₂ (n · total / (before · after)), nothing where n is nothing."""
    bits = np.log2(np.where(n > 0, n, 1) * total / np.where(n > 0, before * after, total))
    return np.asarray(np.where(n > 0, n, 0) * bits / total)


# Brown's clusters ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Brown:
    """Classes of words, in the order of their bits."""

    classes: Ids
    """(V,) the class of each word."""
    bits: list[str]
    """The way from the root of the tree to each class."""
    losses: list[float]
    """AMI that each join of the tree lost, the first join first."""


class Joining:
    """Counts between classes and what joining any two would lose; a slot may be empty."""

    def __init__(self, slots: int, total: int) -> None:
        self.counts = np.zeros((slots, slots))
        self.before, self.after = np.zeros((2, slots))
        self.loss = np.full((slots, slots), np.inf)  # above the diagonal
        self.alive, self.total = np.zeros(slots, np.bool_), total

    def apart(self, at: int) -> Floats:
        """What classes i and j (k, k) together say less of class `at` than each alone does."""
        n, back = self.counts[:, at], self.counts[at]  # (k,) towards it, from it
        own = share(n, self.before, self.after[at], self.total)
        own = own + share(back, self.before[at], self.after, self.total)
        before, after = (np.add.outer(each, each) for each in (self.before, self.after))
        both = share(n[:, None] + n, before, self.after[at], self.total)
        both += share(back[:, None] + back, self.before[at], after, self.total)
        return own[:, None] + own - both

    def losses_of(self, at: int) -> Floats:
        """What joining class `at` with each other (k,) would lose, from the counts alone."""
        n, before, after, total = self.counts, self.before, self.after, self.total
        own = share(n, before[:, None], after, total)
        lost = own + own[at] - share(n + n[at], before[:, None] + before[at], after, total)
        column = own[:, at]
        back = own.T + column - share(n.T + n[:, at], before, (after + after[at])[:, None], total)
        lost = lost + back  # (k, k): joining `at` with j, towards and from l
        here = np.arange(len(n))
        lost[here, here] = lost[here, at] = 0  # the two among themselves come in one sum
        inside = own[here, here] + own[at, at] + own[at] + column
        joint = n[here, here] + n[at, at] + n[at] + n[:, at]
        inside = inside - share(joint, before + before[at], after + after[at], total)
        return np.asarray(lost.sum(1) + inside)

    def put_losses(self, at: int) -> None:
        """Set the losses of one class anew."""
        losses = np.where(self.alive, self.losses_of(at), np.inf)
        self.loss[at, at + 1 :], self.loss[:at, at] = losses[at + 1 :], losses[:at]

    def insert(
        self, at: int, follows: Floats, leads: Floats, itself: float, before: float, after: float
    ) -> None:
        """Put a word into an empty slot."""
        self.counts[at], self.counts[:, at] = follows, leads
        self.counts[at, at] = itself
        self.before[at], self.after[at] = before, after
        self.alive[at] = True
        self.loss += self.apart(at)
        self.put_losses(at)

    def best(self) -> tuple[int, int, float]:
        """The two classes that lose least, the first of equals."""
        a, b = divmod(int(self.loss.argmin()), len(self.loss))
        return a, b, float(self.loss[a, b])

    def join(self, a: int, b: int) -> None:
        """Put class b into class a; b's slot is empty then."""
        self.loss -= self.apart(a) + self.apart(b)
        for x in (self.counts, self.counts.T, self.before, self.after):
            x[a] += x[b]
            x[b] = 0
        self.alive[b] = False
        self.loss += self.apart(a)
        self.put_losses(a)
        self.loss[b], self.loss[:, b] = np.inf, np.inf


def brown(ids: Whole, bounds: Ids, vocab: int, k: int) -> Brown:
    """Clusters of the words of a text, whose ids are in the order of their frequency."""
    if not 1 <= k <= vocab:
        raise UsageError("clustering words", f"k = {k:,}", f"1 to {vocab:,}, the vocabulary")
    pairs = Bigrams(ids, bounds, vocab)
    state, classes = Joining(k + 1, pairs.total), np.full(vocab, -1)
    free = list(range(k, -1, -1))
    for word in track(range(vocab), "clustering words"):
        slot = free.pop()
        follows, leads = pairs.beside(word, classes, k + 1)
        classes[word] = slot
        itself = pairs.beside(word, np.where(np.arange(vocab) == word, 0, -1), 1)[0][0]
        state.insert(slot, follows, leads, itself, pairs.before[word], pairs.after[word])
        if not free:
            a, b, _ = state.best()
            state.join(a, b)
            classes[classes == b] = a
            free.append(b)
    return build_tree(state, classes)


def brown_classes(ids: Ids, vocab: int, k: int, apart: Sequence[int] = ()) -> Ids:
    """The class (V,) of each word of a text: Brown's, of the words that are in it.

    Tokens `apart`, which stand between sentences, have a class each, and words that the text does
    not have are one class.
    """
    counts = np.bincount(ids, minlength=vocab)
    counts[list(apart)] = 0
    words = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    rank = np.full(vocab, -1)
    rank[words] = np.arange(len(words))
    ranked = rank[ids]
    inside = ranked >= 0
    ends = np.cumsum(inside)[~inside]  # how many words stand before each token that is apart
    bounds = np.unique(np.concatenate(([0], ends, [inside.sum()])))
    classes = np.full(vocab, k)  # of words that are not there
    classes[words] = brown(ranked[inside], bounds, len(words), k).classes
    classes[list(apart)] = k + 1 + np.arange(len(apart))
    return np.unique(classes, return_inverse=True)[1].reshape(-1)  # no class without words


def build_tree(state: Joining, classes: Ids) -> Brown:
    """Join what is left to one class; left is 0, right is 1."""
    slots = np.flatnonzero(state.alive)
    bits, inside = dict.fromkeys(slots.tolist(), ""), {int(n): [int(n)] for n in slots}
    losses = []
    for _ in range(len(slots) - 1):
        a, b, loss = state.best()
        state.join(a, b)
        losses.append(loss)
        for side, slot in (("0", a), ("1", b)):
            for leaf in inside[slot]:
                bits[leaf] = side + bits[leaf]
        inside[a] += inside.pop(b)
    order = sorted(bits, key=lambda slot: bits[slot])
    number = np.zeros(len(state.alive), np.int64)
    number[order] = np.arange(len(order))
    return Brown(number[classes], [bits[slot] or "0" for slot in order], losses)


def cluster_text(corpus: WordCorpus, k: int, top: int) -> Clusters:
    """Brown's clusters of the words of a text, with their words, the frequent ones first."""
    tree = brown(corpus.ids, corpus.bounds, len(corpus.words), k)
    words: list[list[str]] = [[] for _ in tree.bits]
    for word, label in zip(corpus.words, tree.classes.tolist(), strict=True):
        words[label].append(word)
    return Clusters(k, len(corpus.words), [*map(Cluster, tree.bits, words)], top)
