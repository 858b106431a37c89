"""Choices that functions of what came before attention take: plain data, nothing heavy imported."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from regard.errors import UsageError

Alphabet = Literal["27", "26", "as-is"]
"""What counts as a letter: a to z and the blank, a to z, or every character."""
Smoothing = Literal["kneser-ney", "witten-bell", "jelinek-mercer", "katz", "add"]
"""How n-grams that were not seen get their share."""
DOING = "training word vectors"
MOST = 64  # targets of an example, as word2vec.c has it
ENOUGH, EPOCHS, MANY = 5_000_000, 5, 100  # words to be read, and between which epochs


@dataclass(frozen=True)
class Word2VecConfig:
    """How vectors are learnt."""

    mode: Literal["cbow", "skipgram"] = "skipgram"
    """A word from those around it, or those around it from a word."""
    dim: int = 100
    """Numbers of a vector."""
    window: int = 5
    """Words on each side at most; each place draws 1 to this many."""
    negative: int = 5
    """Words of noise for each word that is predicted."""
    subsample: float = 1e-3
    """Words more frequent than this share are thinned out; 0 keeps all."""
    min_count: int = 5
    """Rarer words are left out."""
    epochs: int | None = None
    """Times the text is read (5; small texts more often: 5 million words, at most 100 times)."""
    lr: float | None = None
    """Learning rate at first (skipgram 0.025, cbow 0.05); it falls to nearly 0."""

    def check(self) -> None:
        """Refuse what cannot be trained."""
        for name, least, most in (
            ("dim", 1, 1 << 16),
            ("window", 1, 1000),
            ("negative", 1, MOST - 1),
            ("subsample", 0, 1),
            ("min_count", 1, math.inf),
            ("epochs", 1, math.inf),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                limit = f"{least} or more" if most == math.inf else f"{least} to {most:,}"
                raise UsageError(DOING, f"{name} = {value}", limit)
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise UsageError(DOING, f"lr = {self.lr}", "a number above 0")
        if self.mode not in ("cbow", "skipgram"):
            raise UsageError(DOING, f"mode = {self.mode!r}", "cbow or skipgram")

    def times(self, words: int) -> int:
        """Epochs over so many words."""
        return self.epochs or min(MANY, max(EPOCHS, -(-ENOUGH // max(words, 1))))
