"""Smoothing: what n-gram counts say of words that were not seen.

Each way turns counts into log-probabilities and back-off weights (`ngram.py`):

- `add`: (c + k) / (c(h) + k V), contexts of full length only (Laplace; k = 0 is plain counting)
- `witten-bell`: a context's share for unseen words is t / (c + t), t its kinds of followers
- `jelinek-mercer`: λ c / c(h), and 1 − λ for the shorter context; a λ for each length,
  the best for each word as all others foretell it (Jelinek and Mercer 1980)
- `katz`: Good and Turing's discounts on small counts, the rest backs off (Katz 1987)
- `kneser-ney`: interpolated, modified: three discounts a level, and in shorter contexts a word
  counts once for each word it was seen after (Chen and Goodman 1998)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.errors import UsageError
from regard.history.config import Smoothing
from regard.history.ngrams import Counts, Flags, Floats, Ids, Level, Ngrams, count_ngrams

USUAL = (0.5, 1.0, 1.5)
"""Discounts where a text is too small to estimate them."""
HALVES = 30
"""Jelinek and Mercer: binary digits of a λ."""
RELIABLE = 5
"""Katz: larger counts are believed."""


def train_ngrams(
    ids: Ids,
    vocab: int,
    order: int = 5,
    way: Smoothing = "kneser-ney",
    k: float = 1.0,
    start: int | None = None,
    prune: Sequence[int] = (),
) -> Ngrams:
    """A model of a text of ids; n-grams of length n seen `prune[n − 1]` times or less are left out.

    The last of `prune` holds for longer ones too; single words all stay.
    """
    if not 0 <= k < np.inf:
        raise UsageError("smoothing n-grams", f"k = {k}", "0 or more")
    counts = count_ngrams(ids, vocab, order, start)
    if start is not None:
        counts[0].count[start] = 0  # it is never predicted
    while not len(counts[-1]):  # no text is as long: the order is that of the longest runs
        counts.pop()
    order = len(counts)
    kept = [np.ones(len(level), np.bool_) for level in counts]
    cuts = check_cuts(prune, order)
    for n in range(1, order):
        kept[n] = (counts[n].count > cuts[n]) & kept[n - 1][counts[n].context]
        kept[n] &= kept[n - 1][counts[n].suffix]
    while not kept[-1].any():  # nothing so long is left
        kept.pop()
    counts = counts[: len(kept)]
    if way == "add":
        model = add_k(counts, vocab, k, start, kept)
    elif way == "katz":
        model = katz(counts, vocab, start, kept)
    else:
        if way == "jelinek-mercer":
            shares = jelinek_mercer_shares(counts, predicted(vocab, start))
        else:
            kneser_ney = way == "kneser-ney"
            shares = kneser_ney_shares(counts, start) if kneser_ney else witten_bell_shares(counts)
        model = interpolate(counts, vocab, start, kept, shares)
    return drop(model, kept) if any(not k.all() for k in kept) else model


def check_cuts(prune: Sequence[int], order: int) -> list[int]:
    """A cut for each length, 0 for single words."""
    cuts = [*prune, *[prune[-1] if prune else 0] * order][:order]
    if any(b < a for a, b in zip(cuts[1:], cuts[2:], strict=False)) or any(c < 0 for c in cuts):
        raise UsageError("pruning n-grams", f"{list(prune)}", "counts from 0 that do not fall")
    return [0, *cuts[1:]]


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
    counts: list[Counts], vocab: int, start: int | None, kept: list[Flags], shares: list[Shares]
) -> Ngrams:
    """p(w | h) = own(h w) + left(h) · p(w | h without its first word), from one word upwards.

    What is not kept gives its share to what is left.
    """
    levels: list[Level] = []
    below = np.full(1, 1 / predicted(vocab, start))
    for level, keep, (own, left) in zip(counts, kept, shares, strict=True):
        lost = np.bincount(level.context, np.where(keep, 0.0, own), len(left))
        left = left + lost
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
            kinds = np.bincount(counts[n + 1].suffix, minlength=len(level))
            count = np.where(begins, count, kinds)
        small = np.minimum(count, 3)
        discount = np.array([0.0, *discounts(count)])[small]
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
    good = all(0 < d <= n for n, d in enumerate(estimates, 1))
    return estimates if good else USUAL


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


def jelinek_mercer_shares(counts: list[Counts], words: int) -> list[Shares]:
    """λ c / c(h), λ for the longer contexts found after that for the shorter ones.

    Each word is held out in turn: the others in its context, less the word itself, foretell it.
    """
    shares: list[Shares] = []
    below = np.full(1, 1 / words)
    for n, level in enumerate(counts):
        total = np.bincount(level.context, level.count, contexts_of(counts, n))
        others = np.maximum(total[level.context] - 1, 0)
        held_out = np.maximum(level.count - 1, 0) / np.maximum(others, 1)
        lower = below[level.suffix] if n else np.full(len(level), below[0])
        share = fit_share(held_out, lower, np.where(others > 0, level.count, 0))
        below = np.where(others > 0, share * held_out + (1 - share) * lower, lower)
        own = share * level.count / np.maximum(total, 1)[level.context]
        shares.append((own, np.where(total > 0, 1 - share, 1.0)))
    return shares


def fit_share(upper: Floats, lower: Floats, times: Ids) -> float:
    """The λ of λ upper + (1 − λ) lower that makes what came so many times likeliest.

    There the slope of the logarithm, which falls, is 0: halved down to, where EM climbs slowly.
    """
    low, high = 0.0, 1.0
    for _ in range(HALVES):
        share = (low + high) / 2
        slope = (times * (upper - lower) / (share * upper + (1 - share) * lower)).sum()
        low, high = (share, high) if slope > 0 else (low, share)
    return low  # below 1: something is left for what was never seen


# Others -------------------------------------------------------------------------------------------


def add_k(
    counts: list[Counts], vocab: int, k: float, start: int | None, kept: list[Flags]
) -> Ngrams:
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
        count = np.where(full & kept[n], level.count, 0)
        total = np.bincount(level.context, count, contexts_of(counts, n))
        whole = total + k * words
        seen = np.where(whole > 0, whole, 1.0)
        own = safe_log((count + k) / seen[level.context])
        levels[n].logprob[full] = own[full]
        if n:
            left = np.where(total > 0, safe_log(k * words / seen), 0.0)
            levels[n - 1].backoff[total > 0] = left[total > 0]
    return Ngrams(vocab, tuple(levels), start, -np.log(words))


def katz(counts: list[Counts], vocab: int, start: int | None, kept: list[Flags]) -> Ngrams:
    """p(w | h) = d(c) c / c(h) where seen, else α(h) p(w | h without its first word)."""
    levels: list[Level] = []
    for n, (level, keep) in enumerate(zip(counts, kept, strict=True)):
        count = level.count
        contexts = contexts_of(counts, n)
        total = np.maximum(np.bincount(level.context, count, contexts), 1)
        p = np.where(keep, good_turing(count), 0.0) / total[level.context]
        if n == 0:  # what is left over goes to words never seen, or to all
            free = (count == 0) & (level.word != (-1 if start is None else start))
            rest = 1 - p.sum()
            p = p + rest * free / free.sum() if free.any() else p / p.sum()
        else:
            below = np.exp(levels[-1].logprob)[level.suffix] * keep
            seen = np.bincount(level.context, p, contexts)
            sure = seen > 1 - 1e-9  # only large counts, which leave nothing: one more is unseen
            p = p * np.where(sure, total / (total + 1), 1.0)[level.context]
            seen = np.where(sure, seen * total / (total + 1), seen)
            room = 1 - np.bincount(level.context, below, contexts)
            full = room < 1e-12  # every word that can come was seen: nothing to give away
            p = np.where(full[level.context] & keep, p / np.maximum(seen, 1e-300)[level.context], p)
            share = np.where(full, 0.0, (1 - seen) / np.where(full, 1.0, room))
            levels[-1].backoff[:] = np.where(seen > 0, safe_log(share), 0.0)
        levels.append(new_level(level, safe_log(p)))
    return Ngrams(vocab, tuple(levels), start)


def good_turing(count: Ids) -> Floats:
    """Counts as Good and Turing would have them: r* = (r + 1) n(r+1) / n(r), renormalised.

    Where a text has no such estimate below the count itself, the count less a half.
    """
    of = [int((count == r).sum()) for r in range(RELIABLE + 2)]
    smoothed = count.astype(np.float64)
    common = (RELIABLE + 1) * of[RELIABLE + 1] / of[1] if of[1] else 1.0
    for r in range(1, RELIABLE + 1):
        ratio = (r + 1) * of[r + 1] / (r * of[r]) if of[r] else 1.0
        share = (ratio - common) / (1 - common) if common < 1 else 0.0
        smoothed[count == r] = r * share if 0 < share < 1 else r - 0.5
    return smoothed


def safe_log(x: Floats) -> Floats:
    """Logarithms, −inf at zero, without a warning."""
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(x)
    return logs


def drop(model: Ngrams, kept: list[Flags]) -> Ngrams:
    """Without the n-grams that are not kept; contexts are renumbered."""
    levels, places = list[Level](), np.arange(1)
    for level, keep in zip(model.levels, kept, strict=True):
        context = places[level.context[keep]] if levels else level.context[keep]
        parts = level.word[keep], level.logprob[keep], level.backoff[keep], level.count[keep]
        levels.append(Level(context, *parts))
        places = np.cumsum(keep) - 1
    return Ngrams(model.vocab, tuple(levels), model.start, model.base)
