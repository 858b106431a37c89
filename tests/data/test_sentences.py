"""Sentences: nothing is lost between them, and what looks like an end is not always one."""

from __future__ import annotations

import random
import re

import pytest

from regard.data.sentences import cut_long, sentence_spans

BITS = (
    "M. Dr. p. ex. etc. art. 5 n° 12 3.14 1 000,50 « » “ ” \" ' ( ) ! ? … ... . , ; : — - \n \t "
    "Il le chat Été J. K. http://a.fr/b.c?d=e x.y@z.fr U.S. 😀 是 "
).split(" ") + [" ", "\u00a0", "\u202f", "\n\n"]


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


def random_texts(count: int) -> list[str]:
    draw = random.Random(0)
    return [
        "".join(draw.choice(BITS) + draw.choice(["", " ", " "]) for _ in range(draw.randrange(40)))
        for _ in range(count)
    ]


def check_cover(text: str, spans: list[tuple[int, int]]) -> None:
    """Spans in order, blanks alone between them, none around a piece: the text comes back."""
    at, again = 0, ""
    for start, end in spans:
        assert at <= start < end and not text[at:start].strip()
        assert text[start:end] == text[start:end].strip()
        again += text[at:start] + text[start:end]
        at = end
    assert not text[at:].strip() and again + text[at:] == text


def test_pieces_and_what_stands_between_them_give_the_text() -> None:
    several = 0
    for text in random_texts(3000):
        spans = sentence_spans(text)
        check_cover(text, spans)
        several += len(spans) > 1
    assert several > 1000


@pytest.mark.parametrize(
    "text",
    [
        "M. Dupont est parti.|Il reviendra à 3.5 heures, p. ex. demain.|Voir art. 5 du code.",
        "Le Dr. Martin et Mme Roy sont là.|Merci !",
        "« Viens ! » dit-il.|« Je pars. Tu restes. »|Il sortit.",
        "Elle cria : « Non ! »|Puis rien.",
        "J. K. Rowling vit ici.|J.-P. Sartre écrit.|J'aime l'art.|Il peint.",
        "Il a 1 000,50 €.|Écrire à a.b@c.fr.|Voir http://x.fr/a.b?c.|Merci…|Au revoir...|Oui.",
        "Euh... je ne sais pas.|Ah ! dit-elle.",
        '"Come here."|He left.',
        "Dr. Smith met Mr. Jones at 5 p.m. yesterday.|Then he left the U.S. Army.",
        "It ended, etc.|The end.|See fig. 3 and p. 12.",
        "1. Premier point.|2. Deuxième point.",
        "Il est né en 52 av. J.-C. en Gaule.|D'accord.",
        "— Viens !|— Non.",
        "Il a dit (c'est vrai. Je crois.) oui.|Bien.",
        "Sans point final",
        'Il dit "non".|Mais il part.|Elle dit "oui" aussi.',
        "Quoi ?|Qui ?|Lui ?!|Oui.",
        "Le 3 janv. 2020.|Fin.",
    ],
)
def test_ends(text: str) -> None:
    assert cut(text.replace("|", " ")) == text.split("|")


def test_line_feeds_end_sentences() -> None:
    assert cut("un\ndeux\n\n trois\r\n") == ["un", "deux", "trois"]
    assert cut("") == cut(" \n\t ") == []


def test_no_break_spaces_stay_inside() -> None:
    assert cut("« Viens\u00a0! »\u202fIl dort.") == ["« Viens\u00a0! »", "Il dort."]


def test_a_long_quote_is_cut() -> None:
    quote = "« " + "Il mange une pomme rouge. " * 8 + "»"
    assert len(cut(quote)) > 4


@pytest.mark.parametrize("mark", [".", " ", "\n", "«", '"', "(", ". ", "! »", "a", "A. "])
def test_a_hundred_thousand_of_one_mark(mark: str) -> None:
    """Ends soon: a pattern that tries again from each place would take hours."""
    text = mark * 100_000
    check_cover(text, sentence_spans(text))


def test_long_sentences_are_cut_where_it_hurts_least() -> None:
    def fits(text: str) -> bool:
        return len(text) <= 40

    text = "Le chat dort sur la table, et le chien court ; la pluie tombe sur le toit rouge"
    parts = [text[a:b] for a, b in cut_long(text, (0, len(text)), fits)]
    assert parts == [
        "Le chat dort sur la table,",
        "et le chien court ;",
        "la pluie tombe sur le toit rouge",
    ]
    for text in random_texts(500):
        for start, end in sentence_spans(text):
            spans = list(cut_long(text, (start, end), fits))
            assert all(fits(text[a:b]) for a, b in spans)
            check_cover(text[start:end], [(a - start, b - start) for a, b in spans])


def test_words_are_cut_only_when_they_must_be() -> None:
    text = ("mot " * 500).strip()
    parts = [text[a:b] for a, b in cut_long(text, (0, len(text)), lambda t: len(t) < 50)]
    assert all(re.fullmatch(r"mot( mot)*", part) for part in parts)
    joined = [b - a for a, b in cut_long("x" * 1000, (0, 1000), lambda t: len(t) < 50)]
    assert sum(joined) == 1000 and max(joined) < 50
