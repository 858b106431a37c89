"""Numbers that a translation lost, and words that nobody says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decode import loop
from regard.errors import DataError
from regard.loading import load
from regard.model.model import Model
from regard.native.inference import library
from regard.translation.config import TranslateConfig
from regard.translation.repair import NUMBERS_FILE, coined_words, read_numbers
from regard.translation.translator import SentenceSearch
from regard.zoo import HOME

NUMBERS = read_numbers({NUMBERS_FILE: (HOME / "fr-en" / NUMBERS_FILE).read_bytes()})
assert NUMBERS is not None


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("J'ai 10000 euros", "I have EUR 10 000"),
        ("1 000 000 000 d'euros", "EUR 1,000,000,000"),
        ("3 500,75 €", "€3,500.75"),
        ("Pi vaut 3,14.", "Pi is 3.14."),
        ("à 15 h 30", "at 3.30 p.m."),
        ("à 15 h 30", "at 15:30"),
        ("à 6h05", "at 6:05"),
        ("à 12 heures", "at noon"),
        ("à 20 h 00", "at eight o'clock in the evening"),
        ("-5 °C", "-5 °C"),
        ("-5 °C", "minus 5 °C"),
        ("2 chats", "two cats"),
        ("1er mars", "March 1"),
        ("10-12 ans", "10-12 years"),
        ("En 2014 300 personnes", "In 2014 300 people"),
        ("le 01 23 45", "01 23 45"),
        ("Dans les années 80", "In the 1980s"),
        ("vingt ans", "20 years"),
        ("les années 1980", "the 80s"),
        ("les années 19 et 19,5", "19 and 19.5"),
        ("les années quatre-vingt", "the eighties"),
        ("quatre-vingt-seize ans", "ninety-six years"),
        ("cent vingt et un moutons", "a hundred and twenty-one sheep"),
        ("mil neuf cent quatre-vingt-seize", "nineteen ninety-six"),
        ("le vingt-deuxième jour", "the twenty-second day"),
        ("entre vingt et trente", "between twenty and thirty"),
        ("cent pour cent", "100 percent"),
        ("un livre neuf", "a new book"),
        ("46 cents", "46 cents"),
        ("mille fois merci", "many thanks"),
        ("tous les deux", "both"),
        ("à deux pas", "nearby"),  # one small word: idioms have it
        ("à 20 heures ce soir", "at 8 tonight"),
        ("de 10 h à 18 h 30", "from 10 a.m. to 6:30 p.m."),
        ("pendant 3 heures", "for three hours"),
        ("deux heures et demie", "two and a half hours"),
        ("à trois heures moins le quart", "at a quarter to three"),
        ("à midi et demi", "at 12:30"),
        ("à une heure de Paris", "an hour from Paris"),
        ("dans une heure et demie", "in an hour and a half"),
        ("environ 2,700 cas", "around 2,700 cases"),  # thousands, as English writes them
        ("Python 3.11.2 et 192.168.1.10", "Python 3.11.2 and 192.168.1.10"),
        ("12 €", "12 euros"),
        ("rien", ""),
    ],
)
def test_numbers_that_are_there(source, target):
    assert NUMBERS.find_lost(source, target) == []


@pytest.mark.parametrize(
    ("source", "target", "lost"),
    [
        ("1000000 d'habitants", "10 000 inhabitants", ["1000000"]),
        ("1 000 000 000 d'euros", "EUR 1 000 000 000 000", ["1,000,000,000"]),
        ("à 15 h 30", "at 2:30", ["15:30"]),
        ("à 14h30", "at 5.30 p.m.", ["14:30"]),
        ("à 6h05", "at 6:005", ["6:05"]),
        ("-5 °C", "5 °C", ["-5"]),
        ("le 1 mars 1838", "in March 1838", ["1"]),
        ("FR76 3000 6000 0112", "FR76 3000 600 0112", ["6000"]),
        ("3 et 3", "3", ["3"]),
        ("de 1,5 à 2,25 %", "from 15 to 2.5 %", ["1.5", "2.25"]),
        ("quatre-vingt-seize ans", "806 years", ["96"]),
        ("soixante-douze ans", "sixty-twelve years", ["72"]),
        ("huit cent cinquante pages", "eight fifty pages", ["850"]),
        ("septante-deux ans", "sixty-two years", ["72"]),
        ("le vingt-deuxième jour", "the twentieth day", ["22"]),
        ("neuf ans", "new years, 3", ["9"]),
        ("à 14 h 30", "at 2:30", ["14:30"]),
        ("à 9 h", "at 9:00 p.m.", ["9"]),
        ("de 10 h à 18 h 30", "from 10:30 a.m. to 18:30", ["10"]),
        ("à trois heures moins le quart", "at a quarter past three", ["2:45"]),
        ("à 12 h 10", "at 12:10:10", ["12:10"]),
        ("2,750 kg", "2,750 kg", ["2.750"]),
        ("1 850,50 €", "$1,850.50", ["€1,850.50"]),
        ("voir § 5", "see paragraph 5", ["§ 5"]),
    ],
)
def test_numbers_that_are_lost(source, target, lost):
    assert NUMBERS.find_lost(source, target) == lost


@given(st.integers(21, 10**9), st.integers(21, 10**9))
def test_grouped_or_not_a_number_is_the_same(a, b):
    french = f"{a:,}".replace(",", "\u202f")
    assert NUMBERS.find_lost(f"entre {french} et {b} euros", f"between {a} and {b:,} euros") == []
    assert [f.written for f in NUMBERS.figures(f"{french} euros")] == [f"{a:,}"]
    if str(a) != str(b):
        assert f"{a:,}" in NUMBERS.find_lost(f"{french} euros", f"{b} euros")


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("un projet de 882 millions", "an $82 million bill", "an $882 million bill"),
        ("à 1 183,03 ou 14 201,57", "to 183.03 or 14,201.57", "to 1,183.03 or 14,201.57"),
        ("100 000 et 250 000 $", "$100,000,000 and $25,000", "$100,000 and $250,000"),
        ("quatre-vingt-seize ans", "eighty-six years", "96 years"),
        ("1 850,50 € par mois", "$1,850.50 a month", "€1,850.50 a month"),
        ("41 € hier", "41 dollars yesterday", "€41 yesterday"),
        ("voir § 5", "see paragraph 5", "see § 5"),
        ("2,750 kg", "2,750 kg", "2.750 kg"),
        ("de 10 h à 18 h 30", "from 10:30 a.m. to 18:30", "from 10:00 to 18:30"),
        ("à 12 h 10", "at 12:10:10", "at 12:10"),
        ("30 billets à 12 h 10", "30 tickets at 12:10:10", "30 tickets at 12:10"),
        ("882 billets à 12 h 10", "82 tickets at 10:10", "882 tickets at 12:10"),
        ("une vingtaine des 882 pays", "20 of the countries", ""),  # another number
        ("882 pays", "countries", ""),  # none there
        ("882 pays", "882 countries", ""),  # nothing lost
        ("882 pays", "82 or 88 countries", ""),  # which one?
    ],
)
def test_wrong_numbers_are_put_right(source, target, text):
    assert NUMBERS.put_right(source, target) == text
    assert not text or not NUMBERS.find_lost(source, text)


@given(st.integers(0, 999_999))
def test_a_number_in_words_is_read(number):
    tens = {0: "", 1: "dix", 2: "vingt", 3: "trente", 4: "quarante", 5: "cinquante", 6: "soixante"}
    units = (
        "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze"
    )
    units = f"{units} seize dix-sept dix-huit dix-neuf".split()

    def say(n):
        if n >= 1000:
            return (
                f"{say(n // 1000) if n >= 2000 else ''} mille {say(n % 1000) if n % 1000 else ''}"
            )
        if n >= 100:
            return f"{units[n // 100] if n >= 200 else ''} cent {say(n % 100) if n % 100 else ''}"
        if n >= 80:
            return f"quatre-vingt-{say(n - 80)}" if n > 80 else "quatre-vingts"
        ten = 6 if n >= 60 else n // 10
        if n < 20:
            return units[n]
        rest = n - 10 * ten
        return tens[ten] + (f"{' et ' if rest in (1, 11) else '-'}{say(rest)}" if rest else "")

    words = " ".join(say(number).split())
    read = NUMBERS.source.in_digits(f"Il y a {words} moutons.")[0]
    assert number in (1, 9) or read == f"Il y a {number} moutons."


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Elle a quatre-vingt-seize ans.", "Elle a 96 ans."),
        ("de 10 h à 18 h 30", "de 10:00 à 18:30"),
        ("à vingt heures trente", "à 20:30"),
        ("à trois heures moins le quart", "à 2:45"),
        ("à midi et demi", "à 12:30"),
        ("vers une heure et quart", "vers 1:15"),
        ("dans une heure et demie", "dans une heure et demie"),
        ("un trajet de 3 heures", "un trajet de 3 heures"),
        ("à 9 heures", "à 9:00"),
        ("48 h plus tard", "48 h plus tard"),
        ("le dix-neuvième siècle", "le 19e siècle"),
    ],
)
def test_another_reading_of_numbers(text, read):
    assert NUMBERS.reread(text) == read


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("a reculé de 0,3 %", "fell from 0.3%", "fell by 0.3%"),
        ("a reculé de 0,3 % à 0,2 %", "fell from 0.3% to 0.2%", "fell from 0.3% to 0.2%"),
        ("les revenus de 0,3 %", "from 0.3%", "from 0.3%"),
        ("à 21 h", "at 21:00 a.m.", "at 21:00."),
        ("à 21 h ici", "at 21:00 p.m. here", "at 21:00 here"),
        ("le 22 mai 1737", "May 22th,1737", "May 22nd, 1737"),
        ("le 22 mai", "the 22th of May, the 12th, the 1th", "the 22nd of May, the 12th, the 1st"),
    ],
)
def test_known_faults_are_mended(source, target, text):
    assert NUMBERS.polish(source, target) == text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Elle a quatre-vingt-seize ans.", "96"),
        ("Le train part à 14 h 30.", "14:30"),
        ("Le magasin est ouvert de 10 h à 18 h 30.", "10:00 to 18:30"),
        ("Le colis pèse 2,750 kg.", "2.750 kg"),
        ("Le loyer est de 1 850,50 € par mois.", "€1,850.50"),
    ],
)
def test_numbers_come_out_right(kit, source, expected):
    result = kit.translate(source)
    assert expected in result.text or not NUMBERS.find_lost(source, result.text)
    assert kit.translate([source])  # as one of several too
    assert next(iter(kit.translate([source]))).text == result.text


@pytest.mark.parametrize(
    ("source", "target", "lost"),
    [
        ("It leaves at 2:30 p.m.", "Il part à 14 h 30.", []),
        ("It leaves at 2.30pm.", "Il part à 14h30.", []),
        ("It leaves at 12:40 a.m.", "Il part à 0h40.", []),
        ("It leaves at 10:00 this evening.", "Il part à 22 heures ce soir.", []),
        ("It leaves at noon, 12 o'clock.", "Il part à midi.", []),
        ("It leaves at 2:30 p.m.", "Il part à 15 h 30.", ["14 h 30"]),
        ("It costs $1,234.50.", "Il coûte 1 234,50 $.", []),
        ("It costs $1,234.50.", "Il coûte 1 234 $.", ["1 234,50"]),
        ("It costs $1,234.50.", "Il coûte 1 234,50.", ["1 234,50 $"]),
        ("3.141 is a number", "c'est un nombre", ["3,141"]),
        ("In the 1980s", "Dans les années 80", []),
        ("In the 80s", "Dans les années 1980", []),
        ("the 21st century", "le XXIe siècle", []),
        ("-5 degrees", "moins 5 degrés", []),
        ("90 of 17 cats", "quatre-vingt-dix de dix-sept chats", []),
        ("ninety-six cats", "quatre-vingt-six chats", ["96"]),
        ("ninety-six cats", "quatre-vingt-seize chats", []),
        ("at half past two", "à deux heures et demie", []),
        ("at a quarter to three", "à trois heures moins le quart", []),
        ("nineteen ninety-six", "mille neuf cent quatre-vingt-seize", []),
        ("5 cats and nine dogs", "cinq chats et neuf chiens", []),
        ("the second day", "le deuxième jour", []),
        ("2,750 people", "2 750 personnes", []),
    ],
)
def test_english_numbers_in_french(source, target, lost):
    numbers = read_numbers({NUMBERS_FILE: (HOME / "en-fr" / NUMBERS_FILE).read_bytes()})
    assert numbers is not None and numbers.find_lost(source, target) == lost


def test_a_broken_file_of_numbers_is_said():
    assert read_numbers({}) is None
    for data in (b"{", b"[]", b'{"clock": "("}'):
        with pytest.raises(DataError, match=NUMBERS_FILE):
            read_numbers({NUMBERS_FILE: data})


# Words ------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def kit():
    """The translator in the box."""
    return load("fr-en")


def test_alternatives_are_of_words_that_exist(kit):
    found = kit.translate("Il m'a entarté.", alternatives=4)
    texts = [other.text for other in found.alternatives]
    assert len(set(texts)) == 4
    assert not any(coined_words("Il m'a entarté.", text, kit.written) for text in texts)


def test_words_that_nobody_wrote_are_replaced(kit, monkeypatch):
    texts = ["Plusieurs demeurent toujours inexpugnés.", "Bonjour."]
    real, other = (one.text for one in kit.translate(texts))
    (line,) = kit.translate(line for line in texts[:1])
    assert line.text == real  # lines of a stream too
    written = kit.written
    monkeypatch.setitem(vars(kit), "written", None)  # a folder without the list
    free, same = (one.text for one in kit.translate(texts))
    assert coined_words("", free, written) and not coined_words("", real, written)
    assert same == other


def test_neighbours_and_capitals_change_nothing(kit):
    texts = ["Il m'a entarté.", "Bonjour.", "IL M'A ENTARTÉ.", "", "Il m'a entarté. Bonjour."]
    alone = [kit.translate(text).text for text in texts]
    assert [found.text for found in kit.translate(texts)] == alone
    assert alone[2].isupper() and not coined_words("", alone[2], kit.written)
    assert alone[4] == f"{alone[0]} {alone[1]}"


def test_nothing_else_to_say(kit):
    """A word that must be there may be made up; where a ban leaves no answer, the first stays."""
    assert "zorked" in kit.translate("Il m'a entarté.", must=["zorked"]).text
    assert kit.translate("Il m'a entarté.", max_new=3).text


@pytest.mark.skipif(library() is None, reason="no native kernels")
@pytest.mark.parametrize("beams", [1, 4])
def test_what_the_search_in_c_notes_is_enough(kit, monkeypatch, beams):
    """No source is read again, and the answers are those of a search step by step."""
    texts = ["Il m'a entarté.", "Bonjour.", "Le chat noir dort sur le canapé de ma grand-mère."]
    rows = [kit.text_tokenizer.encode(text) for text in texts]
    search = SentenceSearch(kit, TranslateConfig(beams=beams, doubt=True))
    with monkeypatch.context() as patch:
        patch.setattr(Model, "encode", lambda *_: pytest.fail("a source is read twice"))
        noted = search.translate(rows)
    monkeypatch.setattr(loop, "search_natively", lambda *_: None)
    by_steps = SentenceSearch(kit, search.config).translate(rows)
    for one, other in zip(noted, by_steps, strict=True):
        assert one.tokens == other.tokens and len(one.logprobs) == len(one.tokens)
        assert sum(one.logprobs) == pytest.approx(one.logprob, abs=1e-4)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-3)
