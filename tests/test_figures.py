"""Numbers of a text and of its translation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.figures import figures, lost_figures, mended


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
        ("à 20 h 00", "at eight o'clock"),
        ("-5 °C", "-5 °C"),
        ("-5 °C", "minus 5 °C"),
        ("2 chats", "two cats"),
        ("1er mars", "March 1"),
        ("10-12 ans", "10-12 years"),
        ("En 2014 300 personnes", "In 2014 300 people"),
        ("le 01 23 45", "01 23 45"),
        ("Dans les années 80", "In the 1980s"),
        ("vingt ans", "20 years"),
        ("rien", ""),
    ],
)
def test_numbers_that_are_there(source, target):
    assert lost_figures(source, target) == []


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
        ("de 1,5 à 2,25 %", "from 15 to 2.5 %", ["2.25"]),
    ],
)
def test_numbers_that_are_lost(source, target, lost):
    assert lost_figures(source, target) == lost


@given(st.integers(21, 10**9), st.integers(21, 10**9))
def test_grouped_or_not_a_number_is_the_same(a, b):
    french = f"{a:,}".replace(",", "\u202f")
    assert lost_figures(f"entre {french} et {b} euros", f"between {a} and {b:,} euros") == []
    assert [f.english for f in figures(f"{french} euros")] == [f"{a:,}"]
    if str(a) != str(b):
        assert f"{a:,}" in lost_figures(f"{french} euros", f"{b} euros")


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("un projet de 882 millions", "an $82 million bill", "an $882 million bill"),
        ("à 1 183,03 ou 14 201,57", "to 183.03 or 14,201.57", "to 1,183.03 or 14,201.57"),
        ("100 000 et 250 000 $", "$100,000,000 and $25,000", "$100,000 and $250,000"),
        ("une vingtaine des 882 pays", "20 of the countries", ""),  # another number
        ("882 pays", "countries", ""),  # none there
        ("882 pays", "882 countries", ""),  # nothing lost
        ("882 pays", "82 or 88 countries", ""),  # which one?
    ],
)
def test_wrong_numbers_are_put_right(source, target, text):
    assert mended(source, target) == text
    assert not text or not lost_figures(source, text)
