"""`regard train ngram`, `eval lm` of it, `sample` and `export arpa`, as a user types them."""

from __future__ import annotations

import json
import math

import pytest

from regard.cli.main import main

TRAIN = ["the cat sat on the mat", "the dog sat on the log", "", "a cat saw a dog", "the end ."] * 3
TEST = ["the cat sat on a log .", "an owl saw the dog"]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(TRAIN) + "\n")
    (tmp_path / "test.txt").write_text("\n".join(TEST) + "\n")
    return tmp_path


def call(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_train_then_eval_then_sample_then_arpa(files, capsys):
    out = files / "m"
    train = ("train", "ngram", files / "train.txt", "--out", out, "--order", 3, "--json")
    code, said, _ = call(capsys, *train, "--valid", files / "test.txt")
    made = json.loads(said)
    assert code == 0 and made["tokens"] == 84 and len(made["ngrams"]) == 3
    code, said, notes = call(capsys, "eval", "lm", out, files / "test.txt", "--json")
    found = json.loads(said)
    assert code == 0 and "trained on" in notes  # the receipt lies in the folder
    assert found["perplexity"] == made["perplexity"]
    assert found["bits_per_token"] == pytest.approx(math.log2(found["perplexity"]))
    assert found["tokens"] == 7 + 5 + 2  # words and ends
    assert found["bytes"] == (files / "test.txt").stat().st_size
    code, said, _ = call(capsys, "sample", out, "--words", 12, "--json")
    texts = json.loads(said)["samples"]
    assert code == 0 and [text["order"] for text in texts] == [1, 2, 3]
    assert call(capsys, "sample", out, "--words", 12, "--json")[1] == said  # the same seed
    assert call(capsys, "sample", out, "the", "--orders", 2)[0] == 0
    assert call(capsys, "export", "arpa", out, files / "m.arpa")[0] == 0
    code, said, _ = call(capsys, "eval", "lm", files / "m.arpa", files / "test.txt", "--json")
    assert code == 0 and json.loads(said)["perplexity"] == pytest.approx(made["perplexity"])


def test_characters_run_on_over_lines(files, capsys):
    out = files / "m"
    options = ("--tokens", "chars", "--order", 4, "--smoothing", "witten-bell", "--json")
    assert call(capsys, "train", "ngram", files / "train.txt", "--out", out, *options)[0] == 0
    code, said, _ = call(capsys, "eval", "lm", out, files / "test.txt", "--json")
    found = json.loads(said)
    assert code == 0 and found["tokens"] == found["bytes"]
    assert found["bits_per_byte"] == pytest.approx(found["bits_per_token"])
    assert call(capsys, "sample", out)[0] == 0


def test_test_lines_that_were_trained_on_are_no_score(files, capsys):
    out = files / "m"
    long = "one two three four five six seven eight nine"
    (files / "train.txt").write_text(f"{long}\nand more\n")
    (files / "test.txt").write_text(f"{long}\n= = = = Title = = = =\n")
    assert call(capsys, "train", "ngram", files / "train.txt", "--out", out)[0] == 0
    code, said, error = call(capsys, "eval", "lm", out, files / "test.txt")
    assert (code, said) == (3, "") and "1 of 1 by lines of 8 words" in error


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--order", 0], 2, "--order 0"),
        (["--smoothing", "add", "--k", -1], 2, "k = -1"),
        (["--prune", 0, 2, 1], 2, "counts that do not fall"),
        (["--tokens", "wordz"], 2, "--tokens wordz"),
        (["--smoothing", "good"], 2, "kneser-ney"),
    ],
)
def test_bad_options(files, capsys, options, code, said):
    out = files / "m"
    found = call(capsys, "train", "ngram", files / "train.txt", "--out", out, *options)
    assert found[0] == code and said in found[2] and not out.exists()


def test_bad_files(files, capsys):
    out = files / "m"
    (files / "empty.txt").write_text("\n \n")
    code, _, said = call(capsys, "train", "ngram", files / "empty.txt", "--out", out)
    assert code == 3 and "no words" in said
    code, _, said = call(capsys, "train", "ngram", files / "none.txt", "--out", out)
    assert code == 3 and "none.txt" in said
    code, _, said = call(capsys, "train", "ngram", files / "train.txt", "--out", files)
    assert code == 2 and "there already" in said
    assert call(capsys, "sample", files)[0] == 2
    assert call(capsys, "export", "arpa", files, files / "x.arpa")[0] == 2
    assert call(capsys, "train", "ngram", files / "train.txt", "--out", out, "--order", 2)[0] == 0
    code, _, said = call(capsys, "sample", out, "--orders", 3)
    assert code == 2 and "1 to 2" in said
