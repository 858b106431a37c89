"""Words, and how often each was seen."""

from __future__ import annotations

import gzip

import pytest

from regard.data.word_frequencies import count_words, read_counts, words, write_counts
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
    assert read_counts(write_counts(counts)) == counts
    assert write_counts(counts) == write_counts(counts)  # no time of day in it


@pytest.mark.parametrize("data", [b"word\n", b"word\tmany\n", b"\xff\t1\n", b"a\tb\t3\n"])
def test_a_broken_file(data: bytes) -> None:
    with pytest.raises(DataError, match=r"words\.tsv"):
        read_counts(gzip.compress(b"ok\t3\n" + data))


def test_a_file_that_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_counts(count_words(["Le chat et le chien."]))
    for data in (b"le\t2\n", whole[:-9], whole[:20] + b"\0\0\0" + whole[23:]):
        with pytest.raises(DataError, match=r"reading words\.tsv\.gz"):
            read_counts(data)
    monkeypatch.setattr("regard.data.word_frequencies.MOST", 10)
    with pytest.raises(DataError, match="more than 10 bytes"):
        read_counts(whole)
