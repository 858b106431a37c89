"""Words that nobody says: which they are, and how a search without them goes."""

from __future__ import annotations

import pytest

from regard.coined import coined_words
from regard.data.word_frequencies import WRITTEN_FILE, read_words, write_words
from regard.errors import DataError
from regard.loading import load


@pytest.mark.parametrize(
    ("source", "target", "coined"),
    [
        ("Il m'a entarté.", "He entarted me.", ["entarted"]),
        ("Il voit Zork.", "He sees Zork, ZORK and zork.", []),  # a name may be copied
        ("Il voit.", "He sees Zork and Zork.", ["Zork"]),
        ("C'est bien connu.", "It is well-seen: he'll see.", []),
        ("Il a 3 kg.", "He has 3 kg xyz9.", ["xyz"]),
        ("", "", []),
    ],
)
def test_what_is_coined(source, target, coined):
    written = {"he", "sees", "and", "has", "well", "seen", "see", "it"}
    assert coined_words(source, target, written) == coined


def test_the_list_is_written_and_read():
    words = {"été", "see", "a"}
    assert read_words(write_words(words)) == words
    assert write_words(sorted(words)) == write_words(reversed(sorted(words)))
    with pytest.raises(DataError, match=WRITTEN_FILE):
        read_words(write_words(words)[:-9])


@pytest.fixture(scope="module")
def kit():
    """The translator in the box."""
    return load("fr-en")


def test_alternatives_are_of_words_that_exist(kit):
    made = kit.translate("Il m'a entarté.", alternatives=4)
    texts = [text for text, _ in made]
    assert len(set(texts)) == 4
    assert not any(coined_words("Il m'a entarté.", text, kit.written) for text in texts)


def test_one_translation_by_wish(kit):
    free = kit.translate("Il m'a entarté.")
    real = kit.translate("Il m'a entarté.", coin=False)
    assert coined_words("", free, kit.written) and not coined_words("", real, kit.written)
    assert kit.translate("Bonjour.", coin=False) == kit.translate("Bonjour.")


def test_neighbours_and_capitals_change_nothing(kit):
    texts = ["Il m'a entarté.", "Bonjour.", "IL M'A ENTARTÉ.", "", "Il m'a entarté. Bonjour."]
    alone = [kit.translate(text, coin=False) for text in texts]
    assert kit.translate(texts, coin=False) == alone
    assert alone[2].isupper() and not coined_words("", alone[2], kit.written)
    assert alone[4] == f"{alone[0]} {alone[1]}"


def test_nothing_else_to_say(kit):
    """A word that must be there may be made up; where a ban leaves no answer, the first stays."""
    assert "zorked" in kit.translate("Il m'a entarté.", must=["zorked"], coin=False)
    assert kit.translate("Il m'a entarté.", limit=3, coin=False)
