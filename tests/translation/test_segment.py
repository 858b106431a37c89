"""Passages: texts of any kind come out in one piece, in order and in their case."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

import regard
from regard.errors import DataError
from regard.kit import Kit
from regard.tokens.trainers import train_tokenizer
from regard.translation import segment
from regard.translation.config import TranslateConfig
from regard.translation.document import Document, InlineMark, Part, Segment, TargetText, join
from regard.translation.markup import find_windows, put_marks, take_marks, wrap
from regard.translation.normalise import (
    KEPT,
    is_copied,
    other_language,
    recased,
    tidy,
)
from regard.translation.repair import NUMBERS_FILE
from regard.translation.segment import Segmenter
from regard.translation.translator import SentenceSearch, Translator
from regard.zoo import HOME
from tests.properties.threads import one_thread  # noqa: F401
from tests.translation.test_translator import made, say

CORPUS = [
    "Le chat dort sur la table rouge, et le chien mange. Il pleut : où est l'homme ? "
    "Une femme lit un livre dans le jardin, puis elle part vite à la gare."
] * 5


@pytest.fixture(scope="module")
def kit() -> Kit:
    tokenizer = train_tokenizer(CORPUS, "bpe", 400, specials=("pad", "eos"), wrap="eos")
    return made(tokenizer)


@pytest.fixture
def echo(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Translating gives back the source in brackets; what was read is kept."""
    read: list[str] = []

    def translate(search: SentenceSearch, rows: Sequence[list[int]]) -> list[TargetText]:
        assert kit.tokenizer is not None
        texts = [kit.tokenizer.decode(row).strip() for row in rows]
        read.extend(texts)
        return [TargetText(f"<0:{text}>", 0.0, [0]) for text in texts]

    monkeypatch.setattr(SentenceSearch, "translate", translate)
    return read


def answer(kit: Kit, text: str, **how: Any) -> Document:
    (found,) = Translator(kit, TranslateConfig(**how)).translate([text])
    return found


def said(kit: Kit, text: str) -> str:
    return answer(kit, text).translations[0].text if text.strip() else ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Le chat dort.", "<0:Le chat dort.>"),
        (
            "Le chat dort.  Il pleut !\n\nLe chien",
            "<0:Le chat dort.>  <0:Il pleut !>\n\n<0:Le chien>",
        ),
        ("L’homme dort", "<0:L'homme dort>"),
        ("Il\u00a0pleut\u202f!", "<0:Il pleut !>"),
        ("e\u0301te\u0301", "<0:été>"),
        ("LE CHAT DORT.", "<0:LE CHAT DORT.>"),
        ("12,5 % + 3", "12,5 % + 3"),
        ("😀 🎉 !", "😀 🎉 !"),
        ("jean.dupont@a-b.fr", "jean.dupont@a-b.fr"),
        ("https://a.fr/le/chat?x=1", "https://a.fr/le/chat?x=1"),
        ("for (int i = 0; i < n; i++) { f[i] = 0; }", "for (int i = 0; i < n; i++) { f[i] = 0; }"),
        ("Это русский текст, длинный.", "Это русский текст, длинный."),
        ("这是中文的一句话", "这是中文的一句话"),
        ("Le chat dort. 42. Это русский текст.", "<0:Le chat dort.> 42. Это русский текст."),
        ("x" * 10_000, "x" * 10_000),
        (f"Il a {'9' * 60} chats.", f"<0:Il a> {'9' * 60} <0:chats.>"),
    ],
)
def test_every_kind_of_text(kit: Kit, echo: list[str], text: str, expected: str) -> None:
    assert said(kit, text) == expected


def test_what_a_translation_loses_is_put_back(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, echo: list[str]
) -> None:
    """Addresses and emoji: kept by the translation, or the rest is translated around them."""
    assert said(kit, "Écrire à a@b.fr vite.") == "<0:Écrire à a@b.fr vite.>"
    real: Any = SentenceSearch.translate

    def forgetful(*given: Any) -> list[TargetText]:
        found = real(*given)
        return [t._replace(text=t.text.replace("a@b.fr", "").replace("😀", "")) for t in found]

    monkeypatch.setattr(SentenceSearch, "translate", forgetful)
    assert said(kit, "Écrire à a@b.fr vite 😀. Il dort.") == (
        "<0:Écrire à> a@b.fr <0:vite> 😀. <0:Il dort.>"
    )
    assert said(kit, "LE CHAT A@B.FR DORT") == "<0:LE CHAT> A@B.FR <0:DORT>"


def test_capitals_are_read_in_small_letters(kit: Kit, echo: list[str]) -> None:
    assert said(kit, "LE CHAT DORT. L'ONU. Il pleut.") == (
        "<0:LE CHAT DORT.> <0:L'ONU.> <0:Il pleut.>"
    )
    assert sorted(echo) == ["Il pleut.", "L'ONU.", "Le chat dort."]


def test_the_vocabulary_knows_which_words_have_capitals() -> None:
    kit = regard.load("fr-en")
    assert kit.tokenizer is not None
    for text, expected in (
        ("LE TRAIN DE LA FRANCE EST À PARIS", "Le train de la France est à Paris"),
        ("L'ONU ET L'OTAN", "L'ONU et l'OTAN"),
        ("OUI !", "Oui !"),
        ("ONU", "ONU"),
    ):
        assert recased(kit.tokenizer, text) == expected


def test_tags_and_cells_stand_between_texts(kit: Kit, echo: list[str]) -> None:
    assert said(kit, "<p>Le chat</p><p>dort.</p>") == "<p><0:Le chat></p><p><0:dort.></p>"
    assert said(kit, "| Nom | Prix |") == "| <0:Nom> | <0:Prix> |"
    assert said(kit, "Le chat\tIl dort.\t\t42") == "<0:Le chat>\t<0:Il dort.>\t\t42"
    assert said(kit, "2 * 3 et 4*5") == "<0:2 * 3 et 4*5>"
    assert said(kit, "Un\0chat") == "<0:Un chat>"


def test_other_languages_are_left_alone(
    kit: Kit, echo: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "This is the house of my father. C'est la maison de mon père."
    assert said(kit, text).count("<0:") == 2  # whose language is not known
    monkeypatch.setitem(kit.config, "languages", ["fr", "en"])
    assert said(kit, text) == "This is the house of my father. <0:C'est la maison de mon père.>"
    monkeypatch.setitem(kit.config, "languages", ["en", "fr"])
    text = "A man sits on a bench. As soon as a dog… C'est la maison de mon père."
    copied = " C'est la maison de mon père."  # on, a and as are French words too
    assert said(kit, text) == f"<0:A man sits on a bench.> <0:As soon as a dog…>{copied}"


def test_a_clause_in_another_language_comes_back_as_it_was(
    kit: Kit, echo: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kit.config, "languages", ["fr", "en"])
    text = "Comme il dit : To be or not to be, that is the question."
    assert said(kit, text) == f"<0:{text}>"  # kept by the translation
    real: Any = SentenceSearch.translate

    def rewrite(*given: Any) -> list[TargetText]:
        return [t._replace(text=t.text.replace("be", "was")) for t in real(*given)]

    monkeypatch.setattr(SentenceSearch, "translate", rewrite)
    assert said(kit, text) == "<0:Comme il dit :> To be or not to be, that is the question."
    text = "Il lit « I have to be at the house » dans le jardin."
    assert said(kit, text) == "<0:Il lit> « I have to be at the house » <0:dans le jardin.>"
    assert said(kit, "Il lit « le livre » ici.") == "<0:Il lit « le livre » ici.>"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wo ist der Bahnhof?", "de"),
        ("Guten Morgen!", "de"),
        ("La casa es muy grande.", "es"),
        ("¿Cómo estás?", "es"),
        ("Non so cosa fare.", "it"),
        ("O meu irmão vive no Porto.", "pt"),
        ("Ik hou van je.", "nl"),
        ("I can't see you.", "en"),
        ("Il me l'a dit.", ""),
        ("Tom est à Berlin avec Müller.", ""),
        ("Le quatre-quatre est au garage.", ""),
        ("Non !", ""),
        ("le 4e jour, E579, -i", ""),
        ("<b>Le chat <i>dort</b> ici</i> <", ""),
    ],
)
def test_the_language_of_short_texts(text: str, language: str) -> None:
    assert other_language(text, "fr") == language


def test_a_text_in_another_language_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["Bonjour.", "Ich habe heute keine Zeit.", "Wo ist der Hund?"]
    with regard.settings(quiet=False):
        texts = [answer.text for answer in regard.translate(lines)]
    assert texts[1:] == lines[1:] and texts[0] != lines[0]
    assert "look like German, not French, and stay so: 2" in capsys.readouterr().err
    with pytest.raises(DataError, match="text 2.*Ich habe.*German") as error:
        list(regard.translate(lines, strict_language=True))
    assert error.value.exit_code == 3
    assert regard.translate("Bonjour.", strict_language=True).text == texts[0]


def test_columns_stay_columns() -> None:
    cells = regard.translate("\tBonjour\t\tMerci  beaucoup\t").text.split("\t")
    assert cells == ["", "Hello", "", "Thank you very much", ""]


# Markup -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bare", "marks"),
    [
        ("Le **chat** *dort*.", "Le chat dort.", [(3, 7, "**", "**"), (8, 12, "*", "*")]),
        (
            'Le <b>chat <i class="x">noir</i></b> dort.',
            "Le chat noir dort.",
            [(3, 12, "<b>", "</b>"), (8, 12, '<i class="x">', "</i>")],
        ),
        ("Le [chat](a.html) dort.", "Le chat dort.", [(3, 7, "[", "](a.html)")]),
        ("**Le *chat* dort.", "Le chat dort.", [(0, 13, "**", ""), (3, 7, "*", "*")]),
        ("Le chat dort.</b>", "Le chat dort.", [(0, 13, "", "</b>")]),
        ("2 * 3 et 4*5 snake_case a_b", "2 * 3 et 4*5 snake_case a_b", []),
    ],
)
def test_marks_are_taken(text: str, bare: str, marks: list[tuple[Any, ...]]) -> None:
    assert take_marks(text) == (bare, tuple(InlineMark(*mark) for mark in marks))


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([(0, 0), (1, 2), (2, 1), (3, 3)], "A *b* **c** d"),
        ([(0, 0), (1, 1), (2, 1), (3, 3)], "A ***b*** c d"),
        ([(1, 0), (1, 3), (2, 1), (3, 2)], "**A** *b* c d"),
        ([(1, 1), (1, 2), (2, 0)], "*A* **b c** d"),
        ([], "***A b c d***"),
    ],
)
def test_marks_are_put_around_what_came_from_theirs(
    links: list[tuple[int, int]], expected: str
) -> None:
    """Of a b c d, where b is bold and c in italics; none is lost and none crosses another."""
    marks = [InlineMark(2, 3, "**", "**"), InlineMark(4, 5, "*", "*")]
    windows = find_windows(marks, [(0, 1), (2, 3), (4, 5), (6, 7)], links)
    placed = zip(marks, windows, strict=True)
    assert wrap("A b c d", [(0, 1), (2, 3), (4, 5), (6, 7)], placed) == expected


def test_marks_go_around_something(kit: Kit) -> None:
    segment = Segment((0, 8), "chat", [5], False, marks=(InlineMark(0, 4, "**", "**"),))
    nothing = Part(segment, [TargetText("", 0.0, [])])
    assert put_marks(kit, nothing).translations[0].text == ""


def test_marks_stay_with_their_words() -> None:
    texts = {
        "Il a dit **bonjour** à *tous* les enfants.": "He said **hello** to *all* the children.",
        "Le <b>chat noir</b> dort.": "The <b>black cat</b> is sleeping.",
        "Il a dit « bonjour » à tous.": 'He said "hello" to everyone.',
        "Voir § 5 de la loi.": "See § 5 of the law.",
    }
    for source, expected in texts.items():
        for mark in ("**", "*", "<b>", "</b>", "§"):
            translated = regard.translate(source).text
            assert translated.count(mark) == expected.count(mark), translated
        assert translated.count('"') == expected.count('"')
    source = "La **porte** est [fermée](http://a.fr/b), dit <i>Marie</i>."
    translated = regard.translate(source).text
    assert all(mark in translated for mark in ("**door", "[closed](http://a.fr/b)", "<i>Mar"))


@pytest.mark.parametrize(
    ("text", "read", "expected"),
    [
        ("Le chat dort", "Le chat dort.", "Le chat dort"),
        ("Le chat dort.", "Le chat dort.", "Le chat dort."),
        ("Il mange ?", "Il mange ?", "Il mange ?"),
        ("LE CHAT DORT", "Le chat dort.", "LE CHAT DORT"),
        ("Il pleut. Le chat dort 😀", "Le chat dort.", "Il pleut. Le chat dort 😀"),
        ("Le <b>chat</b> dort", "Le chat dort.", "<b>Le chat dort</b>"),  # it is not known where
        ("Le chat\tle chien", "le chien.", "Le chat\tle chien"),  # cells are sentences
        ("le train 3,5", "le train 3,5.", "le train 3,5"),
        ("Le chat a.b", "Le chat a.b.", "Le chat a.b."),  # the stop of an abbreviation
    ],
)
def test_a_sentence_is_read_with_a_stop_and_comes_back_without(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, text: str, read: str, expected: str
) -> None:
    seen: list[str] = []

    def translate(search: SentenceSearch, rows: Sequence[list[int]]) -> list[TargetText]:
        assert kit.tokenizer is not None
        texts = [kit.tokenizer.decode(row).strip() for row in rows]
        seen.extend(texts)
        lost = [text.replace(" 😀", "") for text in texts]
        return [TargetText(t, -1.0, [1]) for t in lost]

    def others(search: SentenceSearch, row: Any, best: TargetText) -> list[TargetText]:
        return [TargetText(f"{best.text}{end}", -2.0, [2]) for end in ("", ".")]

    monkeypatch.setattr(SentenceSearch, "translate", translate)
    monkeypatch.setattr(SentenceSearch, "others", others)
    monkeypatch.setitem(kit.config, "languages", ["fr", "xx"])
    found = [translation.text for translation in answer(kit, text, alternatives=2).translations]
    assert read in seen and found[0] == expected and len(found) == len({*found})


@pytest.mark.parametrize(("wrong", "searches"), [("", 1), ("183", 0)])
def test_lost_numbers_are_searched_for_and_wrong_ones_put_right(
    wrong: str, searches: int, kit: Kit, echo: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = SentenceSearch.translate
    asked: list[tuple[str, ...]] = []

    def say(text: str, how: TranslateConfig) -> str:
        return text if how.must else text.replace("1838", wrong)

    def careless(search: SentenceSearch, rows: Any) -> Any:
        asked.append(search.config.must)
        found = real(search, rows)
        return [t._replace(text=say(t.text.replace("0:", ""), search.config)) for t in found]

    monkeypatch.setattr(SentenceSearch, "translate", careless)
    assert said(kit, "En 1838.") == f"<En {wrong}.>"
    numbers = (HOME / "fr-en" / NUMBERS_FILE).read_bytes()
    monkeypatch.setitem(kit.files, NUMBERS_FILE, numbers)
    assert said(kit, "En 1838. En 12.") == "<En 1838.> <En 12.>"
    assert asked.count(("1838",)) == searches


def test_a_mended_translation_has_the_score_of_its_own_words() -> None:
    kit = regard.load("fr-en")
    row = kit.tokenizer.encode("Bonjour.")
    search = SentenceSearch(kit, TranslateConfig(shortlist=False))
    (best,) = search.translate([row])
    again = search.judge(row, best.text)
    assert again.tokens == best.tokens
    assert again.logprob == pytest.approx(best.logprob, abs=1e-4)


def test_blank_lines_stay_blank(kit: Kit, echo: list[str]) -> None:
    texts = ["", "Le chat", "  ", "Il pleut"]
    found = Translator(kit, TranslateConfig()).translate(texts)
    assert [a.translations[0].text for a in found] == ["", "<0:Le chat>", "", "<0:Il pleut>"]


def test_a_long_line_is_read_in_parts(
    kit: Kit, echo: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "MAX_SOURCE_TOKENS", 20)
    assert kit.tokenizer is not None
    text = " ".join(["chat"] * 500)
    found = said(kit, text)
    assert found.replace("<0:", "").replace(">", "") == text
    assert 10 < len(echo) < 500
    assert max(len(kit.tokenizer.encode(part)) for part in echo) <= 20


def test_a_wish_for_the_whole_keeps_it_whole(kit: Kit, echo: list[str]) -> None:
    text = "Le chat dort. Il pleut."
    assert len(Segmenter(kit).cut(text)) == 2
    for config in (TranslateConfig(must=("cat",)), TranslateConfig(begin="The")):
        assert len(Segmenter(kit).cut(text, config.keeps_whole)) == 1


def test_the_best_mixtures_of_sentences() -> None:
    """Against all mixtures, sorted."""
    logs = [[-0.5, -0.7, -3.0], [-1.0, -1.1, -1.2], [-0.1, -5.0, -6.0]]
    parts = [
        Part(
            Segment((4 * n, 4 * n + 3), "abc", [1], False),
            [TargetText(f"{n}{k}", log, [n, k]) for k, log in enumerate(row)],
        )
        for n, row in enumerate(logs)
    ]
    found = join("abc abc abc", parts, 5)
    every = sorted(
        product(range(3), repeat=3), key=lambda ks: -sum(logs[n][k] for n, k in enumerate(ks))
    )
    assert [t.text for t in found] == [
        " ".join(f"{n}{k}" for n, k in enumerate(ks)) for ks in every[:5]
    ]
    assert found[0].logprob == pytest.approx(-1.6) and found[0].tokens == [0, 0, 1, 0, 2, 0]


def test_several_answers_are_distinct(
    kit: Kit, echo: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def others(search: SentenceSearch, row: Any, best: TargetText) -> list[TargetText]:
        return [best._replace(text=f"{n}{best.text}", logprob=-float(n)) for n in range(1, 4)]

    monkeypatch.setattr(SentenceSearch, "others", others)
    found = answer(kit, "Le chat dort. Il pleut.", alternatives=4).translations
    assert len({t.text for t in found}) == 4
    assert [t.logprob for t in found] == sorted((t.logprob for t in found), reverse=True)


def test_code_and_addresses() -> None:
    assert tidy("a\u200bb\u00ad’ c\t d") == "ab' c d"
    assert tidy("a\x0e\x0f\x10\x11b \ud800\udcff c\x00") == "a b c"  # marks of hints, half letters
    for text in ("(voir p. 3)", "et/ou", "[1] Voir", "Il a dit : « a = b »", "Écrire à a@b.fr."):
        assert not is_copied(text), text
    for text in ("x = foo(bar)[3];", "<br/>", "{'a': [1, 2]};", "f(a, b) {", "a@b.fr, c@d.fr"):
        assert is_copied(text), text


def test_the_real_search_gives_the_same_alone_or_together(kit: Kit) -> None:
    texts = ["Le chat dort. Il pleut.", "LE CHIEN MANGE", "42", "Une femme lit un livre"]
    together = say(kit, texts, beams=2, max_new=6)
    assert together == [say(kit, text, beams=2, max_new=6) for text in texts]
    one, two = say(kit, ["Le chat dort.", "Il pleut."], beams=2, max_new=6)
    assert (
        together[0] == f"{one} {two}" and together[1] == together[1].upper() and together[2] == "42"
    )


def test_other_words_stand_in_the_whole_text(kit: Kit) -> None:
    text = "Le chat dort. 42 ! Il pleut."
    parts = [answer(kit, part, max_new=6) for part in ("Le chat dort.", "Il pleut.")]
    words = kit.translate(text, max_new=6, alternatives=2).words
    first = kit.translate("Le chat dort.", max_new=6).words
    assert [w.text for w in words[: len(first)]] == [w.text for w in first]
    assert any(word.alternatives for word in words)
    for number, word in enumerate(words):
        for other in word.alternatives or []:
            before, _, after = other.translation.partition(" 42 ! ")
            fixed, part = (after, parts[1]) if number < len(first) else (before, parts[0])
            assert fixed == part.translations[0].text


def test_letters_are_no_symbols_in_any_case() -> None:
    """The signs of kelvin and ångström are K and Å where case does not count."""
    assert KEPT.findall("le karting de Åke") == []
    assert [match[0] for match in KEPT.finditer("x ∈ ℝ, ℃")] == ["∈", "ℝ", "℃"]
    assert [match[0] for match in KEPT.finditer("a \ue000 b 𠀀.")] == ["\ue000", "𠀀"]
