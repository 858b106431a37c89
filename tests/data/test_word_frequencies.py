"""Words, and how often each was seen."""

from __future__ import annotations

import pytest

from regard.data.word_frequencies import WordCounts, count_words, words, write_counts
from regard.errors import DataError


@pytest.mark.parametrize(
    "text",
    [
        "L'|homme|n'|a|qu'|un|chien|.",
        "Il|m’|a|entarté|.",
        "Aujourd'hui|,|c'|est|3,5|km|!",
        "I|don't|know|Tom's|cat|.",
        "Veux-tu|du|thé|?",
        "«|Oui|»",
    ],
)
def test_words(text: str) -> None:
    joined = text.replace("|", " ").replace("' ", "'").replace("’ ", "’")
    assert words(joined) == text.split("|")


def test_counts_come_back() -> None:
    counts = count_words(["Le chat et le chien.", "L’homme, l'homme"])
    assert counts["le"] == 2 and counts["l'"] == 2 and counts["homme"] == 2 and counts["."] == 1
    read = WordCounts(write_counts(counts))
    assert dict(read) == counts and len(read) == len(counts) == 8
    assert read["le"] == 2 and read.get("l", 0) == read.get("less", 0) == 0 and "zèbre" not in read


@pytest.mark.parametrize("data", [b"word\tmany\n", b"word\t1\t2\n", b"word\t1"])
def test_a_broken_file(data: bytes) -> None:
    with pytest.raises(DataError, match=r"reading words\.tsv"):
        WordCounts(b"ok\t3\n" + data)["word"]
