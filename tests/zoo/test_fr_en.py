"""The translator in the box: what it says, how sure it is, and that company does not change it."""

from __future__ import annotations

import json
import unicodedata
import zlib
from pathlib import Path

import pytest

import regard
from bench.align import alignment_error_rate, read_links
from regard.cli.main import main
from regard.kit import Kit
from regard.translation.config import TranslateConfig
from regard.translation.explanation import align_config, align_words, look_across, token_spans
from regard.translation.translator import Translator
from regard.zoo import HOME
from tests.properties.threads import one_thread  # noqa: F401
from tests.translation.test_word_alignment import PAIRS

FOLDER = HOME / "fr-en"
LINES = [
    "Il m'a entarté.",
    "Je suis un chat.",
    "Le président a déclaré que les négociations reprendraient la semaine prochaine à Genève.",
    "Une petite fille en robe rouge joue avec un chien sur la plage.",
    "Impossible d'ouvrir le fichier : permission non accordée.",
    "Où est la gare",
    "J’ai 3,5 kg de pommes et 2 € en poche.",
]


@pytest.fixture(scope="module")
def kit() -> Kit:
    return regard.load("fr-en", precision="int8")


def texts_of(kit: Kit, lines: list[str], **how: int) -> list[str]:
    made = Translator(kit, TranslateConfig(**how)).translate(lines)  # type: ignore[arg-type]
    return [answer.translations[0].text for answer in made]


def test_the_folder_fits_and_says_what_it_is() -> None:
    packed = sum(len(zlib.compress(file.read_bytes(), 6)) for file in FOLDER.iterdir())
    assert packed <= 48_500_000  # as in the wheel, which has two of them
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for part in ("## Data and licences", "## Recipe", "## Scores", "## Limits"):
        assert part in card, part
    assert "CC BY 2.0 FR" in card and "recipes/fr-en.toml" in card


@pytest.mark.parametrize(
    ("french", "words"),
    [
        ("Je suis un chat.", "i cat"),
        ("Le chat dort sur le canapé rouge.", "the cat on the red"),
        ("LE CHAT NOIR DORT.", "black cat"),
        ("le chat noir dort", "black cat"),
        ("Si j’avais su, je ne serais pas venu.", "if i known come"),
        ("« Bonjour », dit M. Dupont.", "hello dupont"),
        ("Écrivez à jean.dupont@example.org.", "jean.dupont@example.org"),
        ("Il a payé 3,50 euros le 14 juillet 1789.", "paid 3.50 14 july 1789"),
    ],
)
def test_it_translates(kit: Kit, french: str, words: str) -> None:
    made = kit.translate(french).text.lower()
    assert all(word in made for word in words.split()), made


def test_words_without_a_final_stop(kit: Kit) -> None:
    found = [one.text for one in kit.translate(["Bonjour", "Bonjour.", "Merci"])]
    assert found == ["Hello", "Hello.", "Thank you"]


def test_a_word_never_seen_is_a_guess_with_reasons(
    kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "why.html"
    how = ("--alternatives", "4", "--explain", "--save", str(page), "--json")
    assert main(["translate", "Il m'a entarté.", *how]) == 0
    made = json.loads(capsys.readouterr().out)
    texts = [one["text"] for one in made["alternatives"]]
    assert len(texts) == len(set(texts)) == 4 and texts[0] == kit.translate("Il m'a entarté.").text
    shares = [one["probability"] for one in made["alternatives"]]
    assert shares == sorted(shares, reverse=True) and sum(shares) < 1
    word = next(w for w in made["explain"][0]["source_words"] if w["text"] == "entarté")
    assert word["rare"] and word["seen"] == 0 and len(word["pieces"]) > 1
    assert "never seen in training" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_the_same_alone_and_among_others(kit: Kit, precision: str) -> None:
    model = kit if precision == "int8" else regard.load("fr-en", precision=precision)
    alone = [texts_of(model, [line])[0] for line in LINES]
    for batch in (2, 7):
        assert texts_of(model, LINES, batch=batch) == alone


def test_links_between_words_are_those_of_a_reader(kit: Kit) -> None:
    """The alignment error rate (Och 2003) over pairs that were aligned by hand."""
    assert kit.tokenizer is not None and len(PAIRS) >= 50
    how = align_config(kit.config)
    found, sure, possible = [], [], []
    for line in PAIRS:
        source, target, notation = line.split("\t")
        tokens = kit.tokenizer.encode(target, special=False, side="target")
        (patterns,) = look_across(kit, [kit.tokenizer.encode(source)], [tokens])
        texts = (source, kit.tokenizer.offsets(source), *token_spans(kit, tokens))
        found.append(align_words(*texts, patterns[how.block], how.firm)[1])
        links = read_links(source, target, notation)
        sure.append(links[0])
        possible.append(links[1])
    assert alignment_error_rate(found, sure, possible) <= 0.25


@pytest.mark.parametrize(
    "line", ["bonjour " * 500, "x" * 10_000, "👍 🎉", "def f(x): return x", ""]
)
def test_odd_lines_end_and_leave_the_others_alone(kit: Kit, line: str) -> None:
    odd, plain = texts_of(kit, [line, "Je suis un chat."], beams=2)
    assert "cat" in plain and len(odd) < 60_000


@pytest.mark.parametrize(
    ("french", "kept"),
    [
        (r"Écrivez \n pour une nouvelle ligne.", r"\n"),
        ("Le chat { dort ici.", "{"),
        ("L'ensemble {1, 2, 3} est fini.", "{1, 2, 3}"),
        ("Le symbole ∞ et ≠ et ≈.", "≠"),
        ("Appuyez sur ▶️ pour lire.", "▶️"),
        ("La lettre א est belle.", "א"),
        ("Le chat中dort sur le canapé.", "中"),
    ],
)
def test_symbols_that_training_never_saw_are_kept(kit: Kit, french: str, kept: str) -> None:
    made = kit.translate(french).text
    assert kept in made
    assert not any(unicodedata.category(mark) == "Cc" or mark == "\ufffd" for mark in made)
