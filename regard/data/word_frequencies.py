"""Words of a text, and how often each was seen in training."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterable

from regard.errors import DataError

Span = tuple[int, int]

WORDS_FILE = "words.tsv.gz"
"""Beside the weights: word TAB count on each line, the words in lower case."""
WRITTEN_FILE = "written.txt.gz"
"""Beside the weights: the words of the training targets, in lower case, one on each line."""
MOST = 1 << 28  # bytes of all words: a small file may unpack to any size

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
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(key(text)))
    return counts


def key(text: str) -> str:
    """What is counted as the same."""
    return text.replace("’", "'").lower()


def write_counts(counts: Counter[str]) -> bytes:
    """The content of words.tsv.gz, frequent words first; the same counts give the same bytes."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return gzip.compress("".join(f"{word}\t{n}\n" for word, n in ranked).encode(), mtime=0)


def read_counts(data: bytes) -> dict[str, int]:
    """What `write_counts` wrote."""
    lines = unpack(data, WORDS_FILE).split("\n")
    try:
        return {word: int(count) for word, count in (line.split("\t") for line in lines if line)}
    except ValueError as error:
        raise broken(WORDS_FILE, error) from None


def write_words(words: Iterable[str]) -> bytes:
    """The content of written.txt.gz."""
    return gzip.compress("".join(f"{word}\n" for word in sorted(words)).encode(), mtime=0)


def read_words(data: bytes) -> frozenset[str]:
    """What `write_words` wrote."""
    return frozenset(unpack(data, WRITTEN_FILE).split("\n")) - {""}


def unpack(data: bytes, name: str) -> str:
    """The lines of a file that gzip packed or, where its name says so, xz."""
    opened = lzma.open if name.endswith(".xz") else gzip.open
    try:
        with opened(io.BytesIO(data)) as packed:
            text = packed.read(MOST + 1)
        sorted_lines = opened is lzma.open  # of which each is searched for its end
        if len(text) > MOST or (sorted_lines and not text.endswith(b"\n")):
            raise ValueError(f"more than {MOST:,} bytes of words, or no end of a line")
        return text.decode()
    except (ValueError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise broken(name, error) from None


def broken(name: str, error: Exception) -> DataError:
    """What is wrong with a file of words."""
    form = {WORDS_FILE: "word TAB count on each line", WRITTEN_FILE: "a word on each line"}
    how = "xz" if name.endswith(".xz") else "gzip"
    expected = f"{form.get(name, 'lines')}, in UTF-8, packed by {how}"
    return DataError(f"reading {name}", str(error), expected)
