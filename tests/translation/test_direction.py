"""Which translator of the box is taken: by the language asked for, or by the words of the texts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import regard
from regard import zoo
from regard.cli.main import main
from regard.data.word_frequencies import WORDS_FILE, write_counts
from regard.errors import UsageError
from regard.kit import Kit
from regard.model import presets
from regard.model.model import Model
from regard.tokens.trainers import train_tokenizer
from regard.translation.direction import choose_model

READ = {
    "fr-en": "le le le le chat chat chien bonjour paris oslo dort la la gare",
    "en-fr": "the the the the the cat dog hello hello paris oslo oslo sleeps station chat",
}
FRENCH, ENGLISH = "Le chat dort et la gare est là.", "The cat is in the station."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A box with a small translator for each direction."""
    home = tmp_path / "zoo"
    monkeypatch.setattr(zoo, "HOME", home)
    letters = train_tokenizer([*READ.values()], "chars", wrap="eos")
    for seed, (name, words) in enumerate(READ.items()):
        kit = Kit(Model.fresh(presets.transformer(8, 1, 2, letters.size, pre=True), seed), letters)
        kit.config = kit.fresh_config() | {"languages": name.split("-")}
        kit.save(home / name)
        (home / name / WORDS_FILE).write_bytes(write_counts(Counter(words.split())))
    return home


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        ([FRENCH], "fr-en"),
        ([ENGLISH], "en-fr"),
        (["Bonjour."], "fr-en"),  # no small words: the words of training tell
        (["Hello."], "en-fr"),
        (["Paris"], "fr-en"),  # known to both
        (["Oslo"], "fr-en"),  # a little better to the other
        (["Xyz", "42"], "fr-en"),
        (["Der Hund ist nicht hier und die Katze auch"], "fr-en"),  # neither
        ([], "fr-en"),
        (["Hello.", FRENCH, FRENCH], "fr-en"),  # one for all lines
        ([UsageError("reading", "no text"), "Hello."], "en-fr"),
    ],
)
def test_the_texts_tell_the_direction(home, texts, name):
    assert choose_model(None, None, texts) == home / name


def test_without_lists_of_words_only_small_words_tell(home):
    (home / "fr-en" / WORDS_FILE).unlink()
    assert choose_model(None, None, ["Hello."]) == home / "fr-en"
    assert choose_model(None, None, [ENGLISH]) == home / "en-fr"


def test_the_language_asked_for_comes_before_the_texts(home, capsys):
    assert choose_model(None, "en", [ENGLISH]) == home / "fr-en"
    assert choose_model(None, "fr", [FRENCH]) == home / "en-fr"
    assert capsys.readouterr().err == ""
    choose_model(None, None, [ENGLISH])
    assert "en-fr translates English into French" in capsys.readouterr().err


def test_a_model_that_is_named_is_taken_if_it_writes_that_language(home):
    kit = regard.load(home / "fr-en")
    for model in ("fr-en", home / "fr-en", kit):
        assert choose_model(model, None, [ENGLISH]) is model
        assert choose_model(model, "en", [ENGLISH]) is model
        with pytest.raises(UsageError, match="expected: en, which it writes"):
            choose_model(model, "fr", [FRENCH])
    config = home / "fr-en" / "config.json"
    fields = json.loads(config.read_text())
    del fields["languages"]
    config.write_text(json.dumps(fields))
    assert choose_model("fr-en", "fr", []) == "fr-en"  # it does not say what it writes


def test_both_doors(home, capsys):
    says = {name: str(regard.load(home / name).translate(ENGLISH, max_new=6)) for name in READ}
    assert says["fr-en"] == ENGLISH != says["en-fr"]  # English is copied by what reads French
    assert regard.translate(ENGLISH, to="fr", max_new=6).text == says["en-fr"]
    assert regard.translate(ENGLISH, max_new=6).text == says["en-fr"]
    assert regard.translate(ENGLISH, to="en", max_new=6).text == says["fr-en"]
    assert main(["translate", ENGLISH, "--to", "fr", "--max-new", "6", "--quiet"]) == 0
    assert capsys.readouterr().out == f"{says['en-fr']}\n"
    assert main(["translate", ENGLISH, "--to", "de"]) == 2
    assert "one of en (fr-en), fr (en-fr)" in capsys.readouterr().err
    assert main(["translate", ENGLISH, "--to", "fr", "--model", "fr-en"]) == 2
    assert "to = 'fr' by fr-en" in capsys.readouterr().err


def test_a_box_without_the_other_direction(home):
    (home / "en-fr" / "config.json").unlink()
    assert choose_model(None, None, [ENGLISH]) == home / "fr-en"
    with pytest.raises(UsageError, match=r"one of en \(fr-en\)"):
        choose_model(None, "fr", [ENGLISH])
    (home / "fr-en" / "config.json").unlink()
    assert choose_model(None, None, [ENGLISH]) == "fr-en"  # which says that it is not there
