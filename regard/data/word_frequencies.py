"""Words of a text, and how often each was seen in training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from regard.data.sorted_lines import SortedLines, sort_lines

Span = tuple[int, int]

WORDS_FILE = "words.tsv"
"""Beside the weights: word TAB count on each of its sorted lines, the words in lower case."""
WRITTEN_FILE = "written.txt"
"""Beside the weights: the words of the training targets, in lower case, one on each sorted line."""

# French drops a vowel before an apostrophe; what is left is a word. English 's and n't stay.
ELISION = r"\b(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)['’](?=\w)"
WORD = re.compile(rf"{ELISION}|\w+(?:[-'’.,]\w+)*|[^\w\s]", re.IGNORECASE)


def word_spans(text: str) -> list[Span]:
    """Where words and marks stand: l'homme is two words, don't one, a full stop one."""
    return [match.span() for match in WORD.finditer(text)]


def words(text: str) -> list[str]:
    """Words and marks of a text."""
    return [text[start:end] for start, end in word_spans(text)]


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs, in lower case and with straight apostrophes."""
    return Counter(word for text in texts for word in words(key(text)))


def key(text: str) -> str:
    """What is counted as the same."""
    return text.replace("’", "'").lower()


def write_counts(counts: Mapping[str, int]) -> bytes:
    """The content of words.tsv."""
    return sort_lines(f"{word}\t{count}" for word, count in counts.items())


class WordCounts(Mapping[str, int]):
    """What `write_counts` wrote, searched where it lies."""

    def __init__(self, data: bytes) -> None:
        self.lines = SortedLines(data, WORDS_FILE)

    def __getitem__(self, word: str) -> int:
        for _, *counts in self.lines.starting(f"{word}\t"):
            if len(counts) != 1 or not counts[0].isdecimal():
                raise self.lines.broken(f"{word!r} with {counts} instead of a count")
            return int(counts[0])
        raise KeyError(word)

    def __iter__(self) -> Iterator[str]:
        return (word for word, *_ in self.lines.starting(""))

    def __len__(self) -> int:
        return self.lines.data.count(b"\n")
