"""Glossaries: how they are read, which terms a text has, and that translations hold them."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.translation.config import TranslateConfig
from regard.translation.document import Part
from regard.translation.glossary import (
    RULES_FILE,
    Glossary,
    lacks_terms,
    put_terms,
    read_glossary,
)
from regard.translation.segment import Segmenter
from regard.translation.translator import SentenceSearch, Translator
from regard.zoo import HOME

RULES = {RULES_FILE: (HOME / "fr-en" / RULES_FILE).read_bytes()}


@pytest.fixture(scope="module")
def kit() -> Kit:
    return regard.load("fr-en")


def write(folder: Path, text: str) -> Path:
    file = folder / "terms.tsv"
    file.write_bytes(text.encode())
    return file


def test_a_file_or_a_mapping_of_terms(tmp_path: Path) -> None:
    file = write(tmp_path, "\ufeffl’eau\t water \n\nchat\tfelid\ta remark\nchat\tfelid\n")
    assert read_glossary(file) == {"l'eau": "water", "chat": "felid"}
    assert read_glossary({" chat ": "felid"}) == {"chat": "felid"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("chat\tcat\nchien dog\n", "no TAB in line 2: 'chien dog'"),
        ("chat\tcat\nrat\trat\nchat\tfelid\n", "'chat' is 'cat' in line 1, 'felid' in line 3"),
        ("chat\tcat\n\t cat\n", "an empty source term in line 2"),
        ("chat\t \n", "an empty target term in line 1"),
    ],
)
def test_what_is_wrong_with_a_glossary_is_said(tmp_path: Path, text: str, problem: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(DataError) as caught:
        regard.translate("Bonjour.", glossary=file)
    assert str(file) in caught.value.doing and problem in caught.value.found
    with pytest.raises(DataError, match="entry 1"):
        read_glossary({"chat": ""})


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_bytes(b"chat\tcat\n\xff\t\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_glossary(file)


def found(terms: dict[str, str], text: str) -> list[tuple[str, tuple[str, ...], bool]]:
    """The terms of a text as they stand there, and what is to be written for each."""
    listed = Glossary(terms, RULES).find(text)
    return [(text[slice(*term.span)], term.forms, term.plural) for term in listed]


def test_terms_are_found_in_the_plural_and_in_any_case() -> None:
    assert found({"cheval": "horse"}, "Les chevaux.") == [("chevaux", ("horses", "horse"), True)]
    assert found({"pomme de terre": "spud"}, "Des pommes de terre") == [
        ("pommes de terre", ("spuds", "spud"), True)
    ]
    assert found({"carte bancaire": "bank card"}, "cartes bancaires") == [
        ("cartes bancaires", ("bank cards", "bank card"), True)
    ]
    assert found({"député": "member of parliament"}, "députés")[0][1][0] == "members of parliament"
    assert found({"ville": "city"}, "L'eau de la Ville") == [("Ville", ("Cities", "City"), False)]
    assert found({"eau": "water"}, "L'EAU de Ville")[0][:2] == ("EAU", ("WATERS", "WATER"))
    assert found({"Orange": "Orange Inc"}, "une orange d'Orange")[0][0] == "Orange"
    assert found({"eau": "water"}, "un bateau d'eaux-vives") == []  # parts of words are none


def test_the_longest_term_and_the_entry_that_is_written_go_first() -> None:
    terms = {"carte": "map", "carte bancaire": "bank card"}
    assert [form[0] for _, form, _ in found(terms, "une carte bancaire")] == ["bank cards"]
    terms = {"chat": "cat", "chats": "moggies"}
    assert found(terms, "les chats") == [("chats", ("moggies",), False)]


def test_without_rules_terms_stand_as_they_are() -> None:
    glossary = Glossary({"chat": "cat"}, {})
    assert [term.forms for term in glossary.find("un chat, des chats")] == [("cat",)]


@pytest.mark.parametrize(
    ("text", "old", "term", "expected"),
    [
        ("Il voit le chat.", "chat", "ami", "Il voit l'ami."),
        ("L'ami du chat dort.", "ami", "chien", "Le chien du chat dort."),
        ("Le nom du chat.", "chat", "élan", "Le nom de l'élan."),
    ],
)
def test_words_before_a_term_are_joined_to_it_in_french_too(
    text: str, old: str, term: str, expected: str
) -> None:
    rules = {RULES_FILE: (HOME / "en-fr" / RULES_FILE).read_bytes()}
    glossary, at = Glossary({"horse": "cheval de bois"}, rules), text.index(old)
    assert glossary.put(text, (at, at + len(old)), term) == expected
    assert [term.forms[0] for term in glossary.find("Two horses")] == ["chevaux de bois"]


def test_rules_that_cannot_be_read_are_named() -> None:
    with pytest.raises(DataError, match="glossary.json"):
        Glossary({"chat": "cat"}, {RULES_FILE: b'{"joints": [1]}'})


@pytest.mark.parametrize(
    ("source", "terms", "usual", "held"),
    [
        ("Le chat dort.", {"chat": "felid"}, "cat", "felid"),
        ("Les enfants sont dans une cage.", {"cage": "aviary"}, "a cage", "an aviary"),
        ("Mon chat aime ton chat.", {"chat": "felid"}, "cat", "felid"),
        ("Deux hommes sur un banc.", {"homme": "ombudsman"}, "men", "ombudsmen"),
        ("LE CHAT DORT SUR LE LIT", {"chat": "felid"}, "CAT", "FELID"),
        ("Les chats dorment.", {"chat": "felid"}, "Cats", "Felids"),
        ("Un groupe de parents.", {"parent": "gizmo"}, "parents", "gizmos"),
    ],
)
def test_terms_stand_where_the_usual_words_stood(
    kit: Kit, source: str, terms: dict[str, str], usual: str, held: str
) -> None:
    plain, text = kit.translate(source).text, kit.translate(source, glossary=terms).text
    assert usual in plain or usual.lower() in plain
    assert text in (plain.replace(usual, held), plain.replace(usual.lower(), held.lower()))


def test_sentences_that_have_the_term_or_need_none_stay(kit: Kit) -> None:
    lines = ["Le chat dort.", "Il pleut."]
    plain = [(t.text, t.logprob) for t in kit.translate(lines)]
    held = kit.translate(lines, glossary={"chat": "cat", "vélo": "bike"})
    assert [(t.text, t.logprob) for t in held] == plain


def test_every_alternative_holds_the_term_and_each_is_there_once(kit: Kit) -> None:
    answers = kit.translate(
        "Le chat dort.", glossary={"chat": "felid"}, alternatives=4
    ).alternatives
    texts = [answer.text for answer in answers]
    assert len(texts) > 1 and len({*texts}) == len(texts)
    assert all("felid" in text for text in texts)


def test_translations_that_become_the_same_are_one(kit: Kit) -> None:
    translator = Translator(kit, TranslateConfig(alternatives=2, glossary={"chat": "felid"}))
    (segment,) = translator.segmenter.cut("Le chat dort.")
    search = SentenceSearch(kit, TranslateConfig())
    answers = [search.judge(segment.ids, f"The {cat} sleeps.") for cat in ("cat", "kitty")]
    part = translator.hold_terms(Part(segment, answers))
    assert [answer.text for answer in part.translations] == ["The felid sleeps."]


def test_where_nothing_can_give_way_a_hint_in_the_source_asks_for_the_term(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, glossary = SentenceSearch(kit, TranslateConfig()), Glossary({"chat": "felid"}, RULES)
    source, answer, asked = "Les chats dorment.", "The felids are sleeping.", list[str]()
    (segment,) = Segmenter(kit).cut(source)
    row, terms = segment.ids, glossary.find(source)
    monkeypatch.setattr(kit.text_tokenizer, "encode_batch", asked.extend)
    monkeypatch.setattr(search, "translate", lambda rows: [search.judge(row, answer)])
    best = put_terms(search, glossary, segment, terms, "...")
    assert asked == ["Les chats\x11 felids\x0f dorment."] and best.text == answer
    assert best.logprob == search.judge(row, answer).logprob  # of the source without hints


def test_a_search_for_the_term_is_made_where_nothing_can_give_way(kit: Kit) -> None:
    search, glossary = SentenceSearch(kit, TranslateConfig()), Glossary({"chat": "felid"}, RULES)
    source = "Le chat."
    (segment,) = Segmenter(kit).cut(source)
    terms = glossary.find(source)
    answer = put_terms(search, glossary, segment, terms, "...")
    assert not lacks_terms(answer.text, terms)


def test_models_that_count_words_have_no_glossary(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("le chat\tthe cat\n" * 3)
    regard.train.ibm1(pairs, out=tmp_path / "ibm1")
    with pytest.raises(UsageError, match="glossary"):
        regard.translate("le chat", model=tmp_path / "ibm1", glossary={"chat": "felid"})
