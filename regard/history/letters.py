"""Texts as letters: of Shannon's 26 or 27, of every character, or in threes to look titles up."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import DataError
from regard.history.config import Alphabet
from regard.history.ngrams import Ids
from regard.history.results import Lookup, WeightedTitle

LETTERS = "abcdefghijklmnopqrstuvwxyz"
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
        raw = np.array([ord(symbol) for symbol in self.symbols], "<u4")[self.ids]
        if self.bytes:
            return raw.astype(np.uint8).tobytes().decode()
        return raw.tobytes().decode("utf-32-le")


def clean(text: str, alphabet: Alphabet) -> str:
    """A text in an alphabet: small letters without accents, all else one blank or nothing."""
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
    symbols, ids = np.unique(codes, return_inverse=True)
    return Letters(ids.astype(np.int64), symbols.astype("<u4").tobytes().decode("utf-32-le"))


def bytes_of(letters: Letters) -> Letters:
    """Few symbols for a coder: of a text with many different characters its bytes."""
    if len(letters.symbols) <= CHARACTERS:
        return letters
    symbols, ids = np.unique(np.frombuffer(letters.text.encode(), np.uint8), return_inverse=True)
    return Letters(ids.astype(np.int64), symbols.tobytes().decode("latin-1"), True)


# Soft lookup --------------------------------------------------------------------------------------


def soft_lookup(query: str, titles: Sequence[str], top: int, sharpness: float) -> Lookup:
    """Attention of a query to titles: weights are the softmax of sharpness × cosine.

    A text is the vector of its letter trigrams, each by how few titles have it (Spärck Jones
    1972), so that rare words tell more than common ones and near spellings are near.
    """
    import torch

    from regard.core.similarity import attend

    if not titles:
        raise DataError("looking titles up", "no titles", "one or more")

    def trigrams(text: str) -> Counter[str]:
        plain = MARKS.sub("", unicodedata.normalize("NFKD", text.casefold()))
        spaced = re.sub(r"[\W_]+", " ", f" {plain} ")
        return Counter(spaced[n : n + 3] for n in range(len(spaced) - 2))

    keys, asked = [trigrams(title) for title in titles], trigrams(query)
    having = Counter(gram for key in keys for gram in key)
    rare = {gram: np.log1p(len(keys) / max(1, having[gram])) for gram in having | asked}

    def vector(grams: Counter[str]) -> list[float]:
        """At length 1, where the query has something; the other numbers would meet zeros."""
        length = sum((count * rare[gram]) ** 2 for gram, count in grams.items()) ** 0.5
        return [grams[gram] * rare[gram] / (length or 1.0) for gram in asked]

    q, k = torch.tensor([vector(asked)]), torch.tensor([vector(key) for key in keys])
    _, weights = attend(q, k, k, scale=sharpness)
    rows = zip(titles, (q @ k.T)[0].tolist(), weights[0].tolist(), strict=True)
    ranked = sorted((WeightedTitle(*row) for row in rows), key=lambda row: -row.weight)
    return Lookup(query, len(titles), ranked[:top])
