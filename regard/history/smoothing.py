"""Smoothing: what n-gram counts say of words that were not seen.

Each way turns counts into log-probabilities and back-off weights (`ngrams.py`):

- `add`: (c + k) / (c(h) + k V), contexts of full length only (Laplace; k = 0 is plain counting)
- `witten-bell`: a context's share for unseen words is t / (c + t), t its kinds of followers
- `kneser-ney`: interpolated, modified: three discounts a level, and in shorter contexts a word
  counts once for each word it was seen after (Chen and Goodman 1998)
"""

from __future__ import annotations

import numpy as np

from regard.errors import UsageError
from regard.history.config import Smoothing
from regard.history.ngrams import Counts, Floats, Ids, Level, Ngrams, count_ngrams

USUAL = (0.5, 1.0, 1.5)
"""Discounts where a text is too small to estimate them."""


def train_ngrams(
    ids: Ids,
    vocab: int,
    order: int = 5,
    way: Smoothing = "kneser-ney",
    k: float = 1.0,
    start: int | None = None,
) -> Ngrams:
    """A model of a text of ids; its order is that of the longest runs where no text is as long."""
    if not 0 <= k < np.inf:
        raise UsageError("smoothing n-grams", f"k = {k}", "0 or more")
    counts = count_ngrams(ids, vocab, order, start)
    if start is not None:
        counts[0].count[start] = 0  # it is never predicted
    return smooth([level for level in counts if len(level)], vocab, way, k, start)


def smooth(counts: list[Counts], vocab: int, way: Smoothing, k: float, start: int | None) -> Ngrams:
    """A model of n-grams that were counted."""
    if way == "add":
        return add_k(counts, vocab, k, start)
    shares = kneser_ney_shares(counts, start) if way == "kneser-ney" else witten_bell_shares(counts)
    return interpolate(counts, vocab, start, shares)


def new_level(level: Counts, logprob: Floats) -> Level:
    """A level of a model; what its n-grams leave over as contexts comes with the next one."""
    return Level(level.context, level.word, logprob, np.zeros(len(level)), level.count)


def contexts_of(counts: list[Counts], n: int) -> int:
    """How many contexts the n-grams of a level can have: one, the empty one, for single words."""
    return len(counts[n - 1]) if n else 1


def predicted(vocab: int, start: int | None) -> int:
    """Words that can come: all but the start of a sentence."""
    return vocab - (start is not None)


# Interpolation ------------------------------------------------------------------------------------

Shares = tuple[Floats, Floats]
"""Of each n-gram what its own count gives (N,), and of each context (M,) what is left over."""


def interpolate(
    counts: list[Counts], vocab: int, start: int | None, shares: list[Shares]
) -> Ngrams:
    """p(w | h) = own(h w) + left(h) · p(w | h without its first word), from one word upwards."""
    levels: list[Level] = []
    below = np.full(1, 1 / predicted(vocab, start))
    for level, (own, left) in zip(counts, shares, strict=True):
        lower = below[level.suffix] if levels else np.full(len(level), below[0])
        p = own + left[level.context] * lower
        if not levels and start is not None:
            p[start] = 0.0
        if levels:
            levels[-1].backoff[:] = safe_log(left)
        levels.append(new_level(level, safe_log(p)))
        below = p
    return Ngrams(vocab, tuple(levels), start)


def kneser_ney_shares(counts: list[Counts], start: int | None) -> list[Shares]:
    """Discounted counts; in all but the longest n-grams, counts of kinds of words before."""
    shares = []
    begins = counts[0].word == (-1 if start is None else start)
    for n, level in enumerate(counts):
        if n:
            begins = begins[level.context]  # nothing stands before a sentence: plain counts there
        count = level.count
        if n + 1 < len(counts):
            count = np.where(begins, count, np.bincount(counts[n + 1].suffix, minlength=len(level)))
        discount = np.array([0.0, *discounts(count)])[np.minimum(count, 3)]
        contexts, taken = contexts_of(counts, n), np.minimum(discount, count)
        total = np.bincount(level.context, count, contexts)
        seen = np.maximum(total, 1)
        left = np.bincount(level.context, taken, contexts) / seen
        own = (count - taken) / seen[level.context]
        shares.append((own, np.where(total > 0, left, 1.0)))  # all, where nothing followed
    return shares


def discounts(count: Ids) -> tuple[float, float, float]:
    """On counts of 1, 2 and 3 or more, from how many n-grams were seen 1 to 4 times."""
    n1, n2, n3, n4 = (int((count == n).sum()) for n in range(1, 5))
    if not (n1 and n2 and n3 and n4):
        return USUAL
    y = n1 / (n1 + 2 * n2)
    estimates = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
    return estimates if all(0 < d <= n for n, d in enumerate(estimates, 1)) else USUAL


def witten_bell_shares(counts: list[Counts]) -> list[Shares]:
    """c / (c + t) for what was seen, t / (c + t) for what was not."""
    shares = []
    for n, level in enumerate(counts):
        count = level.count
        contexts = contexts_of(counts, n)
        total = np.bincount(level.context, count, contexts)
        kinds = np.bincount(level.context, count > 0, contexts)
        seen = np.maximum(total + kinds, 1)
        shares.append((count / seen[level.context], np.where(total > 0, kinds / seen, 1.0)))
    return shares


def add_k(counts: list[Counts], vocab: int, k: float, start: int | None) -> Ngrams:
    """Contexts of full length, or back to the start of a sentence, and no shorter ones.

    After a context that was never seen all words are as likely.
    """
    words = predicted(vocab, start)
    levels = [new_level(level, np.full(len(level), np.nan)) for level in counts]
    begins = counts[0].word == (-1 if start is None else start)
    for n, level in enumerate(counts):
        begins = begins[level.context] if n else begins
        full = begins if n + 1 < len(counts) else np.ones(len(level), np.bool_)
        if not full.any() or (n == 0 and len(counts) > 1):
            continue
        count = np.where(full, level.count, 0)
        total = np.bincount(level.context, count, contexts_of(counts, n))
        whole = total + k * words
        seen = np.where(whole > 0, whole, 1.0)
        levels[n].logprob[full] = safe_log((count + k) / seen[level.context])[full]
        if n:
            left = np.where(total > 0, safe_log(k * words / seen), 0.0)
            levels[n - 1].backoff[total > 0] = left[total > 0]
    return Ngrams(vocab, tuple(levels), start, -np.log(words))


def safe_log(x: Floats) -> Floats:
    """Logarithms, −inf at zero, without a warning."""
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(x)
    return logs
