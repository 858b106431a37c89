"""How many bits a letter of a text carries (Shannon 1951).

F_N = −Σ p(b, j) log2 p(j | b) over the N − 1 letters b before a letter j; F_0 = log2 of all.
Counted on one text it is too low once most N-grams are seen once, so three estimates stand side by
side: plug-in, its correction by Miller and Madow (1955), and the cross entropy of a part held out.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from regard.errors import DataError, UsageError, check_known
from regard.history.ngrams import Counts, Floats, Ids, Ngrams, count_ngrams
from regard.history.predictors import Predictor
from regard.history.smoothing import interpolate, kneser_ney_shares

Alphabet = Literal["27", "26", "as-is"]
ALPHABETS: tuple[str, ...] = get_args(Alphabet)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHANNON = {"27": (4.76, 4.03, 3.32, 3.1), "26": (4.70, 4.14, 3.56, 3.3)}
"""F_0 to F_3 as published, with the blank and without it."""
GAP = (
    "Shannon's F3 came from a table of trigrams within words, mended by a rough formula for those\n"
    "that run over two words, which leaves it too high; plug-in on one text is too low, since it\n"
    "has seen too little. The held-out values bound texts like the last tenth from above."
)
"""Why F_3 differs from his."""
TRAINED = 0.9
"""Share of a text that the held-out estimate learns from."""
MARKS = re.compile("[\u0300-\u036f]+")  # accents, apart from their letters
CHARACTERS = 256
"""More different characters than these are coded as bytes."""


@dataclass(frozen=True)
class Letters:
    """A text as numbers of its symbols."""

    ids: Ids
    symbols: str
    """The alphabet; as bytes, a character for each (latin-1)."""
    bytes: bool = False
    """Whether symbols are the bytes of UTF-8."""

    @property
    def text(self) -> str:
        """The text again."""
        codes = np.array([ord(symbol) for symbol in self.symbols], "<u4")
        raw = codes[self.ids]
        if self.bytes:
            return raw.astype(np.uint8).tobytes().decode()
        return raw.tobytes().decode("utf-32-le")


def clean(text: str, alphabet: Alphabet) -> str:
    """A text in an alphabet: small letters without accents, all else one blank or nothing."""
    check_known(alphabet, ALPHABETS, "choosing an alphabet")
    if alphabet == "as-is":
        return text
    text = text.lower()
    if not text.isascii():
        text = MARKS.sub("", unicodedata.normalize("NFKD", text))
    return re.sub("[^a-z]+", " " if alphabet == "27" else "", text).strip()


def letters_of(text: str, alphabet: Alphabet) -> Letters:
    """The symbols of a text; those of `as-is` are its characters."""
    codes = np.frombuffer(clean(text, alphabet).encode("utf-32-le"), "<u4")
    if alphabet != "as-is":
        blank = " " if alphabet == "27" else ""
        ids = np.where(codes == 32, 0, codes.astype(np.int64) - 97 + len(blank))
        return Letters(ids, blank + LETTERS)
    found, inverse = np.unique(codes, return_inverse=True)
    return Letters(inverse.astype(np.int64), found.astype("<u4").tobytes().decode("utf-32-le"))


def bytes_of(letters: Letters) -> Letters:
    """Few symbols for a coder: of a text with many different characters its bytes."""
    if len(letters.symbols) <= CHARACTERS:
        return letters
    raw = np.frombuffer(letters.text.encode(), np.uint8)
    found, inverse = np.unique(raw, return_inverse=True)
    return Letters(inverse.astype(np.int64), found.tobytes().decode("latin-1"), True)


# F_N ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimates:
    """F_0 to F_N in bits per letter."""

    plug_in: list[float]
    miller_madow: list[float]
    held_out: list[float]
    """Cross entropy of the last tenth by n-grams of the rest (modified Kneser–Ney)."""


def estimate(ids: Ids, symbols: int, order: int) -> Estimates:
    """All three, up to F_order."""
    if order < 1:
        raise UsageError("estimating entropy", f"order {order}", "1 or more")
    if len(ids) <= order:
        found, needed = f"{len(ids):,} letters", f"more than {order} for F{order}"
        raise DataError("estimating entropy", found, needed, "a longer text or a smaller --order")
    counts = count_ngrams(ids, symbols, order)
    cut = max(order, int(TRAINED * len(ids)))
    learnt = count_ngrams(ids[:cut], symbols, order)
    whole = np.log2(symbols)
    plug_in, corrected, held_out = [float(whole)], [float(whole)], [float(whole)]
    kinds = 1
    for n in range(1, order + 1):
        value = conditional(counts[n - 1])
        more = int((counts[n - 1].count > 0).sum())
        correction = (more - kinds) / (2 * (len(ids) - n + 1) * np.log(2))
        kinds = more
        plug_in.append(value)
        corrected.append(value + float(correction))
        model = kneser_ney(learnt[:n], symbols)
        start = max(0, cut - n + 1)
        bits = -model.logprobs(ids[start:])[cut - start :] / np.log(2)
        held_out.append(float(bits.mean()))
    return Estimates(plug_in, corrected, held_out)


def conditional(level: Counts) -> float:
    """Plug-in entropy of the last letter of N-grams, given those before it."""
    seen = level.count > 0
    count, context = level.count[seen], level.context[seen]
    before = np.bincount(context, count)[context]
    return float(-(count * np.log2(count / before)).sum() / count.sum()) + 0.0  # no −0


def kneser_ney(counts: list[Counts], vocab: int) -> Ngrams:
    """A smoothed model of counts; a letter that was not seen keeps a share."""
    kept = [np.ones(len(level), np.bool_) for level in counts]
    return interpolate(counts, vocab, None, kept, kneser_ney_shares(counts, None))


# Guessing -----------------------------------------------------------------------------------------


def guess_ranks(ids: Ids, predictor: Predictor, before: Ids | None = None) -> Ids:
    """How many guesses (T,) each letter takes, the likeliest first; of equals the first symbol.

    What stands before the text is read, not guessed.
    """
    predictor.start(1)
    made, known = np.zeros(len(ids), np.int64), 0 if before is None else len(before)
    whole = ids if before is None else np.concatenate((before, ids))
    for n, id in enumerate(whole):
        if n >= known:
            (p,) = predictor.predict()
            made[n - known] = 1 + int((p > p[id]).sum()) + int((p[:id] == p[id]).sum())
        predictor.read(whole[n : n + 1])
    return made


def rank_shares(ranks: Ids, symbols: int) -> Floats:
    """q_i (A,): the share of letters that took i guesses."""
    if not len(ranks) or not 1 <= ranks.min() <= ranks.max() <= symbols:
        raise DataError("counting guesses", f"ranks {ranks!r}", f"1 to {symbols}, at least one")
    return np.bincount(ranks - 1, minlength=symbols) / len(ranks)


def bounds(q: Floats) -> tuple[float, float]:
    """Σ i (q_i − q_{i+1}) log2 i ≤ F_N ≤ −Σ q_i log2 q_i (Shannon 1951, eq. 17)."""
    i = np.arange(1, len(q) + 1)
    lower = (i * (q - np.append(q[1:], 0.0)) * np.log2(i)).sum()
    some = q[q > 0]
    return float(lower), float(-(some * np.log2(some)).sum()) + 0.0
