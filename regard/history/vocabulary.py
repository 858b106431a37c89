"""Words of sentence pairs as numbers, for translators that count them.

Words are the same in capitals or not. A source word is known by its small letters; a target word is
written as it mostly is where no sentence begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from regard.data.pairs import Pair
from regard.data.words import words
from regard.errors import DataError
from regard.history.ibm1 import Ids, Rows


@dataclass(frozen=True)
class Vocabulary:
    """Source words in small letters, target words as they are written; the frequent ones first."""

    sources: list[str]
    targets: list[str]

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of each source word."""
        return {word: id for id, word in enumerate(self.sources)}

    def encode(self, sentence: Sequence[str]) -> Ids:
        """The numbers of source words; -1 is one that is not known."""
        return np.array([self.ids.get(word.lower(), -1) for word in sentence], np.int64)


def cut(text: str) -> list[str]:
    """Words and marks of a sentence."""
    return words(text.replace("’", "'"))


def number_words(pairs: Sequence[Pair]) -> tuple[Vocabulary, Rows, Rows]:
    """A vocabulary, and the numbers of the pairs that have words on both sides."""
    both = [(cut(source), cut(target)) for source, target in pairs]
    both = [(source, target) for source, target in both if source and target]
    if not both:
        found = f"{len(pairs):,} pairs, none with words on both sides"
        raise DataError("counting the words of sentence pairs", found, "one or more")
    heard = [[word.lower() for word in source] for source, _ in both]
    said = [[word.lower() for word in target] for _, target in both]
    sources, targets = ranked(heard), ranked(said)
    spelt = spelling([target for _, target in both])
    known = Vocabulary(sources, [spelt[word] for word in targets])
    return known, number(heard, sources), number(said, targets)


def ranked(sentences: Sequence[Sequence[str]]) -> list[str]:
    """The different words, frequent ones first, else in order of the alphabet."""
    counts = Counter(chain.from_iterable(sentences))
    return sorted(counts, key=lambda word: (-counts[word], word))


def number(sentences: Sequence[Sequence[str]], known: Sequence[str]) -> Rows:
    """Sentences as numbers."""
    ids = {word: id for id, word in enumerate(known)}
    return Rows.of([[ids[word] for word in sentence] for sentence in sentences])


def spelling(sentences: Sequence[Sequence[str]]) -> dict[str, str]:
    """How each word is mostly written: after the first of a sentence, or there if only there."""
    later = Counter(chain.from_iterable(sentence[1:] for sentence in sentences))
    first = Counter(sentence[0] for sentence in sentences)
    found: dict[str, str] = {}
    for counts in (first, later):  # what is seen later counts more
        found |= {w.lower(): w for w in sorted(counts, key=lambda w: (counts[w], w))}
    return found
