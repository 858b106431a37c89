"""`regard train bayes|logreg|ibm1`, then `translate` and `eval translate`, as a user types them."""

from __future__ import annotations

import io
import json
import sys

import pytest

from regard.cli.main import main

TRAIN = [
    ("Je suis un chat.", "I am a cat."),
    ("Je suis un chien.", "I am a dog."),
    ("Tu es un chat.", "You are a cat."),
    ("Tu vois la mer", "You see the sea"),
    ("Je vois la mer.", "I see the sea."),
    ("un chien", "a dog"),
    ("la mer", "the sea"),
    ("Bonjour", ""),
]
TEST = [("Tu es un chien.", "You are a dog."), ("Je vois un chat.", "I see a cat.")]
KINDS = ("bayes", "logreg", "ibm1")


def lines(pairs):
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.tsv").write_text(lines(TRAIN))
    (tmp_path / "test.tsv").write_text(lines(TEST))
    return tmp_path


def call(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def train(capsys, files, kind, *options):
    return call(capsys, "train", kind, files / "train.tsv", "--out", files / "m", *options)


@pytest.mark.parametrize("kind", KINDS)
def test_train_then_translate_then_eval(files, capsys, kind):
    out = files / "m"
    code, said, notes = train(capsys, files, kind, "--json")
    made = json.loads(said)
    assert code == 0 and made["pairs"] == 7 and made["skipped"] == 1
    assert ("seen once" in notes) == (kind != "ibm1")
    names = {"config.json", "model.safetensors", "vocabulary.json", "receipt.json"}
    assert {path.name for path in out.iterdir()} == names
    code, said, notes = call(capsys, "translate", "--model", out, "Je suis un chat.")
    assert (code, said, notes) == (0, "I am a cat .\n", "")
    words = ("translate", "--model", out, "--alternatives", 4)
    code, said, notes = call(capsys, *words, "--json", "Il m'a entarté.")
    found = json.loads(said)
    assert code == 0 and "4 unknown words were copied: Il, m', a, entarté" in notes
    assert found["source"] == "Il m'a entarté." and "entarté" in found["text"]
    assert len(found["alternatives"]) == 4 and found["alternatives"][0]["text"] == found["text"]
    assert sum(each["probability"] for each in found["alternatives"]) == pytest.approx(1)
    assert "entarté" in [word["text"] for word in found["words"]]
    assert all(0 < word["probability"] <= 1 for word in found["words"])
    test = ("eval", "translate", out, files / "test.tsv", "--json")
    code, said, notes = call(capsys, *test)
    scored = json.loads(said)
    assert code == 0 and scored["lines"] == 2 and scored["overlap"] == "none"
    assert scored["bleu"] > 0 and "trained on" in notes


@pytest.mark.parametrize("kind", KINDS)
def test_twice_is_the_same_file(files, capsys, kind):
    assert train(capsys, files, kind)[0] == 0
    again = call(capsys, "train", kind, files / "train.tsv", "--out", files / "n")
    assert again[0] == 0
    for name in ("model.safetensors", "vocabulary.json", "config.json"):
        assert (files / "m" / name).read_bytes() == (files / "n" / name).read_bytes()


def test_stdin_files_and_paragraphs(files, capsys, monkeypatch):
    assert train(capsys, files, "ibm1")[0] == 0
    (files / "lines.fr").write_text("Je suis un chat. Tu es un chien.\n\nun chien\n")
    wanted = "I am a cat . You are a dog .\n\na dog\n"
    out = ("translate", "--model", files / "m")
    assert call(capsys, *out, "--file", files / "lines.fr")[:2] == (0, wanted)
    data = io.BytesIO((files / "lines.fr").read_bytes() + b"\xff\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    code, said, error = call(capsys, *out)
    assert (code, said) == (3, wanted + "\n") and "line 4" in error
    code, said, _ = call(capsys, *out, "--alternatives", 2, "--file", files / "lines.fr")
    assert code == 0 and said.splitlines()[2].count("\t") == 1


def test_trained_on_is_no_score(files, capsys):
    assert train(capsys, files, "bayes")[0] == 0
    code, _, error = call(capsys, "eval", "translate", files / "m", files / "train.tsv")
    assert code == 3 and "would not be a score" in error


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("bayes", ["--k", 0], "--k 0"),
        ("logreg", ["--l2", -1], "--l2 -1"),
        ("logreg", ["--best", 0], "--best 0"),
        ("ibm1", ["--rounds", 0], "--rounds 0"),
        ("bayes", ["--rounds", 3], "--rounds"),
    ],
)
def test_bad_options(files, capsys, kind, options, said):
    found = train(capsys, files, kind, *options)
    assert found[0] == 2 and said in found[2] and not (files / "m").exists()


def test_bad_files(files, capsys):
    out = files / "m"
    (files / "empty.tsv").write_text("")
    (files / "blank.tsv").write_text("\t\n \ta\n")
    (files / "odd.tsv").write_text("a\tb\nc\n")
    (files / "two.fr").write_text("a\nb\nc\n")
    (files / "two.en").write_text("a\nb\n")
    for names, said in (
        (["empty.tsv"], "no pairs"),
        (["blank.tsv"], "2 pairs, none with words on both sides"),
        (["odd.tsv"], "0 TABs in line 2"),
        (["none.tsv"], "none.tsv"),
        (["two.fr", "two.en"], "3 lines in"),
    ):
        given = [files / name for name in names]
        code, _, error = call(capsys, "train", "bayes", *given, "--out", out)
        assert code == 3 and said in error and not out.exists()
    assert call(capsys, "train", "ibm1", "--out", out)[0] == 2
    assert call(capsys, "train", "ibm1", files / "train.tsv", "--out", files)[0] == 2
    assert train(capsys, files, "ibm1")[0] == 0
    for wish in (["--explain"], ["--must", "cat"], ["--begin", "I"]):
        code, _, error = call(capsys, "translate", "--model", out, "un chat", *wish)
        assert code == 2 and f"{wish[0]} with a folder of `regard train ibm1`" in error
    (out / "model.safetensors").write_bytes(b"nothing")
    code, _, error = call(capsys, "translate", "--model", out, "un chat")
    assert code == 3 and "model.safetensors" in error


def test_bleu_by_length(files, capsys):
    train(capsys, files, "ibm1")
    longer = [*TEST, ("un chien un chien un chien la mer", "a dog a dog a dog the sea")]
    (files / "test.tsv").write_text(lines(longer))
    words = ("eval", "translate", files / "m", files / "test.tsv", "--by-length")
    code, said, _ = call(capsys, *words, "--json")
    bands = json.loads(said)["by_length"]
    assert code == 0 and [(b["from"], b["to"], b["lines"]) for b in bands] == [(4, 4, 2), (8, 8, 1)]
    code, said, _ = call(capsys, *words)
    assert code == 0 and "BLEU by words of the source" in said
    assert call(capsys, *words, "--workers", 0)[0] == 2


def test_pairs_without_words_are_no_test(files, capsys):
    (files / "blank.tsv").write_text("\t\na\t\n")
    call(capsys, "train", "ibm1", files / "train.tsv", "--out", files / "m")
    code, _, error = call(capsys, "eval", "translate", files / "m", files / "blank.tsv")
    assert code == 3 and "2 pairs, none with words on both sides" in error
