"""Choices that functions of what came before attention take: plain data, nothing heavy imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from regard.verbs import Amount, Bound, Count, Share

Alphabet = Literal["27", "26", "as-is"]
"""What counts as a letter: a to z and the blank, a to z, or every character."""
Smoothing = Literal["kneser-ney", "witten-bell", "add"]
"""How n-grams that were not seen get their share."""
DOING = "training word vectors"
MOST = 63  # words of noise, as word2vec.c has it
ENOUGH, EPOCHS, MANY = 5_000_000, 5, 100  # words to be read, and between which epochs


@dataclass(frozen=True)
class Word2VecConfig:
    """How vectors are learnt."""

    mode: Literal["cbow", "skipgram"] = "skipgram"
    """A word from those around it, or those around it from a word."""
    dim: Annotated[int, Bound(1, 1 << 16, "1 to 65,536")] = 100
    """Numbers of a vector."""
    window: Annotated[int, Bound(1, 1000, "1 to 1,000")] = 5
    """Words on each side at most; each place draws 1 to this many."""
    negative: Annotated[int, Bound(1, MOST, f"1 to {MOST}")] = 5
    """Words of noise for each word that is predicted."""
    subsample: Share = 1e-3
    """Words more frequent than this share are thinned out; 0 keeps all."""
    min_count: Count = 5
    """Rarer words are left out."""
    epochs: Count | None = None
    """Times the text is read (5; small texts more often: 5 million words, at most 100 times)."""
    lr: Amount | None = None
    """Learning rate at first (skipgram 0.025, cbow 0.05); it falls to nearly 0."""

    def times(self, words: int) -> int:
        """Epochs over so many words."""
        return self.epochs or min(MANY, max(EPOCHS, -(-ENOUGH // max(words, 1))))
