"""Texts as letters of an alphabet: Shannon's 26 or 27, or every character."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

import numpy as np

from regard.history.config import Alphabet
from regard.history.ngrams import Ids

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
        codes = np.array([ord(symbol) for symbol in self.symbols], "<u4")
        raw = codes[self.ids]
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
    raw = np.frombuffer(letters.text.encode(), np.uint8)
    symbols, ids = np.unique(raw, return_inverse=True)
    return Letters(ids.astype(np.int64), symbols.tobytes().decode("latin-1"), True)
