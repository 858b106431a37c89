"""n-grams over classes of words: p(w | h) = p(w | c(w)) p(c(w) | c(h)) (Brown 1992).

A class is seen in more contexts than each of its words, so that little text goes further; what
sets the words of a class apart after a context is lost. So a share of the probability comes from
n-grams of the words themselves, as Brown mixed them; the two know different things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from regard.history.clusters import Whole
from regard.history.config import Smoothing
from regard.history.ngrams import Floats, Ids, Ngrams
from regard.history.smoothing import safe_log, train_ngrams


@dataclass(frozen=True)
class ClassNgrams:
    """The class of a word from the classes before it, then the word from its class; and words."""

    classes: Ids
    """(V,) the class of each word."""
    model: Ngrams
    """Over classes."""
    emission: Floats
    """(V,) log p(word | its class)."""
    words: Ngrams
    """Over words."""
    share: float = 1.0
    """Of the probability that comes from classes; the rest from words."""

    @property
    def start(self) -> int | None:
        """Id that stands before each sentence and is never predicted; alone in its class."""
        return self.words.start

    @property
    def vocab(self) -> int:
        """Words that are known."""
        return len(self.classes)

    @property
    def order(self) -> int:
        """Words that a probability looks at, the predicted one counted."""
        return self.model.order

    @property
    def sizes(self) -> list[int]:
        """How many n-grams of each length there are, of classes and of words."""
        pairs = zip_longest(self.model.sizes, self.words.sizes, fillvalue=0)
        return [classes + words for classes, words in pairs]

    def logprobs(self, ids: Whole | Sequence[int]) -> Floats:
        """log p of each id (T,) given those before it; NaN at the start of a sentence."""
        words = np.asarray(ids, np.int64)
        own = self.model.logprobs(self.classes[words]) + self.emission[words]
        share, rest = safe_log(np.array([self.share, 1 - self.share]))
        with np.errstate(invalid="ignore"):  # the start of a sentence
            logs: Floats = np.logaddexp(share + own, rest + self.words.logprobs(words))
        return logs


def train_class_ngrams(
    ids: Ids,
    classes: Ids,
    order: int = 2,
    way: Smoothing = "kneser-ney",
    k: float = 1.0,
    start: int | None = None,
    share: float = 1.0,
) -> ClassNgrams:
    """Count classes as `train_ngrams` does words; a sentence's start needs a class of its own."""
    size, first = int(classes.max()) + 1, None if start is None else int(classes[start])
    counts = np.bincount(ids, minlength=len(classes)).astype(np.float64)
    seen, words = np.bincount(classes, counts, size), np.bincount(classes, minlength=size)
    # A class that was never seen shares evenly: a word alone in its class is sure, seen or not.
    even = np.where(seen[classes] > 0, counts, 1) / np.where(seen > 0, seen, words)[classes]
    model = train_ngrams(classes[ids], size, order, way, k, first)
    plain = train_ngrams(ids, len(classes), order, way, k, start)
    return ClassNgrams(classes, model, safe_log(even), plain, share)
