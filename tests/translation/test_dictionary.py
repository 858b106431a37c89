"""Dictionaries: words found through their lemmas, idioms, and hints in a source."""

from __future__ import annotations

import json
from typing import Any

import pytest

from regard.data.sorted_lines import sort_lines
from regard.data.word_frequencies import words
from regard.errors import DataError
from regard.kit import Kit
from regard.tokens.trainers import train_tokenizer
from regard.translation import translate, translator
from regard.translation.config import TranslateConfig
from regard.translation.dictionary import (
    ENTRIES_FILE,
    FORMS_FILE,
    RULES_FILE,
    Dictionary,
    Entry,
    conjugate,
    hint,
    holds,
    in_turn,
    write_hints,
)
from regard.zoo import HOME
from tests.translation.test_translator import made


@pytest.fixture
def kit() -> Kit:
    """A translator of random weights with a dictionary, that is said to read hints."""
    lines = ["le lapin a entarté le chat", "the rabbit threw a pie at the cat"]
    tokenizer = train_tokenizer(lines, "bpe", 300, specials=("pad", "eos"), wrap="eos")
    kit = made(tokenizer)
    kit.files, kit.config["hints"] = dict(FILES), True
    return kit


FILES = {
    ENTRIES_FILE: sort_lines(
        [
            "entarter\tentarter\tv pie | throw a pie at",
            "lapin\tlapin\tn rabbit | bunny",
            "lapin\tposer un lapin\tv stand someone up",
            "cafard\tavoir le cafard\tv have the blues",
            "œil\tœil\tn eye",
        ]
    ),
    FORMS_FILE: sort_lines(
        [
            "lapins\tlapin",
            "entarté\tentarter",
            "posé\tposer",
            "a\tavoir",
            "yeux\tœil",
            "posa\tposer",
        ]
    ),
}


RULES = json.loads((HOME / "fr-en" / RULES_FILE).read_bytes())


def dictionary(**counts: int) -> Dictionary:
    return Dictionary(FILES[ENTRIES_FILE], FILES[FORMS_FILE], counts, RULES)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("Il m'a entarté.", [(3, 3, "entarter", ["pie", "throw a pie at"])]),
        ("Un lapin.", [(1, 1, "lapin", ["rabbit", "bunny"])]),
        ("Il m'a posé un lapin.", [(3, 5, "poser un lapin", ["stand someone up"])]),
        ("Il posa encore un lapin.", [(1, 4, "poser un lapin", ["stand someone up"])]),
        ("Posé sur un grand et gros lapin.", [(6, 6, "lapin", ["rabbit", "bunny"])]),
        ("Il A LE CAFARD", [(1, 3, "avoir le cafard", ["have the blues"])]),
        ("Les yeux d'un chat", [(1, 1, "œil", ["eye"])]),
        ("", []),
    ],
)
def test_headwords_of_a_sentence(text: str, entries: list[Any]) -> None:
    assert [(*e[:3], e.translations) for e in dictionary().find(words(text))] == entries


def test_each_sense_has_its_turn_and_nouns_alone_their_plural() -> None:
    rows = "bidon\tbidon\tn can | tin\ta bogus | sham", "hérisson\thérisson\tn hedgehog"
    more = "hérisser\thérisser\tv bristle", "rigolo\trigolo\ta funny"
    forms = "bidons\tbidon\tn", "hérissons\thérisser\tv", "hérissons\thérisson\tn"
    both = sort_lines([*rows, *more]), sort_lines([*forms, "rigolos\trigolo\ta"])
    opened = Dictionary(*both, {}, RULES)

    def said(text: str) -> list[str]:
        (entry,) = opened.find(words(text))
        return entry.translations

    assert said("un bidon") == ["can", "bogus", "tin", "sham"]
    assert said("des bidons") == ["cans", "tins"]  # the form is a noun's
    assert said("les hérissons") == ["hedgehogs", "bristle"]
    assert said("ils sont rigolos") == ["funny"]


def test_words_like_idioms_are_as_rare_as_words() -> None:
    """An idiom has two words that are not everywhere; quelqu'un is none."""
    few = dictionary(poser=100, lapin=100, avoir=30_000, le=900_000, cafard=100, un=900_000)
    assert few.find(words("Il a le cafard.")) == []
    (entry,) = few.find(words("Il m'a posé un lapin."))
    assert entry.headword == "poser un lapin"


def test_a_phrase_is_tried_in_all_forms_with_its_object_and_its_verb_alone() -> None:
    (entry,) = dictionary().hints("Il m'a posé un lapin hier.", lambda word: [])
    assert set(entry.forms) == {"stand me up", "stood me up", "stands me up", "standing me up"}
    assert conjugate("have the blues", RULES["target"])[:3] == (
        "have the blues",
        "has the blues",
        "had the blues",
    )
    assert {"stopped", "stops", "stopping"} < set(conjugate("stop", RULES["target"]))
    assert conjugate("faire la cuisine", {}) == ()
    tries = [tried for (tried,) in in_turn([entry], "He put me a rabbit.", firm=True)]
    assert [tried.translations for tried in tries] == [[form] for form in entry.forms]
    hinted, places = write_hints("Il m'a posé un lapin hier.", tries[:1])
    assert hinted == "Il m'a posé\x11 stand me up\x0f hier." and len(places) == len(hinted) + 1
    assert places[hinted.index("\x11")] == places[hinted.index(" hier")] == 20


def test_hints_stand_after_rare_words_alone() -> None:
    text = "Le lapin a entarté l'œil."
    entries = dictionary(lapin=1000).hints(text, lambda word: ["hit by a pie"])
    assert [entry.headword for entry in entries] == ["entarter", "œil"]
    assert write_hints(text, entries)[0] == (  # a phrase with a word of the translations is no news
        "Le lapin a entarté\x0e pie\x10 throw a pie at\x0f l'œil\x0e eye\x10 hit by a pie\x0f."
    )
    assert hint(["eye"], firm=True) == "\x11 eye\x0f"


def test_a_plural_has_plural_hints() -> None:
    (entry,) = dictionary().find(words("Des lapins"))
    assert entry.translations == ["rabbits", "bunnies"]
    (entry,) = dictionary().find(words("Un lapin"))
    assert entry.translations == ["rabbit", "bunny"]


def test_translations_that_are_not_written_are_tried_one_by_one() -> None:
    pie = Entry(1, 1, "entarter", ["pie", "throw at"], forms=("pie",))
    idiom = Entry(2, 3, "a b", ["faint"])
    eye = Entry(5, 5, "œil", ["eye", "look at"], forms=("eye",))
    pan = Entry(6, 6, "poêle", ["pan", "stove"], forms=("pan",))

    def tries(firm: bool) -> list[list[tuple[list[str], bool]]]:
        turns = in_turn([pie, idiom, eye, pan], "His eyes.", firm)
        return [[(entry.choices, entry.firm) for entry in entries] for entries in turns]

    eyes, pans = (["eye", "look at"], False), (["pan", "stove"], False)
    assert tries(False) == [  # what is written already not at all, nor words for single words
        [(["pie"], False), (["faint"], False), eyes, pans],
        [(["throw at"], False), (["faint"], False), eyes, pans],
    ]
    assert tries(True) == [[(["pie"], True), (["faint"], False), eyes, (["pan"], True)]]
    assert not [*in_turn([pie], "Two pies.", False)]


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("Elle m'a posé un lapin hier soir.", "She stood me up last night."),
        ("Elle est tombée dans les pommes.", "keeled over"),
        ("Les enfants ont fait la grasse matinée.", "slept in"),
    ],
)
def test_idioms_in_the_form_that_fits(source: str, translation: str) -> None:
    assert translation in str(translate(source, model="fr-en"))


def test_letters_of_a_hint_stand_at_the_end_of_its_word() -> None:
    hinted, places = write_hints("un œil noir", [Entry(1, 1, "œil", ["eye"])])
    assert hinted == f"un œil{hint(['eye'])} noir"
    assert places == [0, 1, 2, 3, 4, 5, *[6] * 6, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("data", [b"lapin\tlapin\tn rabbit", b"lapin\t\xff\n"])
def test_broken_files(data: bytes) -> None:
    with pytest.raises(DataError, match=r"dictionary\.tsv"):
        assert Dictionary(data, FILES[FORMS_FILE], {}, {}).find(["lapin"])


def test_a_translation_holds_an_entry_in_any_inflection() -> None:
    entry = Entry(0, 0, "entarter", ["pie", "throw a pie at", "hit with pie"])
    assert holds("He threw two pies.", entry) and holds("PIED", entry)
    assert not holds("He hit me in the face.", entry)
    phrase = Entry(0, 2, "poser un lapin", ["stand someone up"], forms=("stood me up",))
    assert holds("She stood me up.", phrase) and not holds("She saw someone.", phrase)


def test_a_model_that_reads_hints_is_given_them(kit: Kit) -> None:
    (document,) = translator.Translator(kit, TranslateConfig(max_new=5)).translate(["Un lapin."])
    segment = document.parts[0].segment
    assert kit.text_tokenizer.decode(segment.ids) == f"Un lapin{hint(['rabbit', 'bunny'])}."
    assert segment.text == "Un lapin." and segment.entries[0].headword == "lapin"
    kit.config["hints"] = False
    (document,) = translator.Translator(kit, TranslateConfig(max_new=5)).translate(["Un lapin."])
    assert kit.text_tokenizer.decode(document.parts[0].segment.ids) == "Un lapin."


def test_a_word_that_one_line_taught_is_translated_and_explained() -> None:
    texts = ["Il m'a entarté.", "Les députés ont été entartés.", "Elle veut entarter le ministre."]
    for result in translate(texts, explain=True):
        assert "pie" in words(result.text.lower())
        assert result.explain is not None
        (entry,) = result.explain[0].entries
        assert entry.headword == "entarter"
        assert "hit in the face by a pie" in str(result) and "europarl" in str(result).lower()


def test_names_are_no_headwords_but_people_of_a_place_are() -> None:
    """A capital inside a sentence, or at its start before another one, is a name's."""
    entries = (
        "daller\tdaller\tv pave",
        "thierry\tthierry\tn Derek",
        "londonien\tlondonien\tn Londoner",
    )
    forms = "dallas\tdaller", "londoniens\tlondonien"
    dictionary = Dictionary(sort_lines(entries), sort_lines(forms))

    def headwords(text: str) -> list[str]:
        return [entry.headword for entry in dictionary.find(words(text))]

    assert headwords("Thierry Dallas aime Dallas et les Londoniens.") == ["londonien"]
    assert headwords("Et tu dallas la cour.") == ["daller"]
    assert headwords("Dallas la cour !") == ["daller"]


def test_an_inflected_verb_is_tried_in_all_its_forms() -> None:
    entries, forms = ["entarter\tentarter\tv pie"], ["entarta\tentarter"]
    dictionary = Dictionary(sort_lines(entries), sort_lines(forms), rules=RULES)
    (entry,) = dictionary.find(["entarta"])
    assert {"pie", "pied", "pies"} <= {*entry.forms}
    (entry,) = dictionary.find(["entarter"])
    assert entry.forms == ("pie",)
