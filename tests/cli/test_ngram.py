"""`regard train ngram` and `bow`, `eval lm` and `score` of them, `sample`, `export arpa`."""

from __future__ import annotations

import json
import math
from collections import Counter

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


def test_classes_are_trained_scored_drawn_coded_and_told(files, capsys):
    out = files / "classes"
    train = ("train", "classes", files / "train.txt", "--out", out, "--json")
    code, said, _ = call(capsys, *train, "--classes", 4, "--valid", files / "test.txt")
    made = json.loads(said)
    assert code == 0 and made["classes"] == 4 + 3 == made["ngrams"][0]  # begin, end, never seen
    assert made["vocabulary"] == 14 and len(made["ngrams"]) == 3
    _, said, _ = call(capsys, "eval", "lm", out, files / "test.txt", "--json")
    assert json.loads(said)["perplexity"] == made["perplexity"]
    _, said, _ = call(capsys, "score", out, "a cat sat", "--json")
    assert json.loads(said)["perplexity"] > 1
    _, said, _ = call(capsys, "sample", out, "--words", 12, "--json")
    drawn = [row["tokens"] for row in json.loads(said)["samples"]]
    assert len(drawn) == 3 and len({tuple(row) for row in drawn}) == 3
    coded = ("entropy", files / "test.txt", "--model", out, "--json")
    code, said, _ = call(capsys, *coded)
    assert code == 0 and json.loads(said)["coded"][1]["decoded_back"]
    _, said, _ = call(capsys, "info", out, "--json")
    assert json.loads(said)["classes"] == 7
    code, _, error = call(capsys, "export", "arpa", out, files / "m.arpa")
    assert code == 2 and "n-grams of classes" in error


@pytest.mark.parametrize("words, code, said", [((0,), 2, "1 or more"), ((99,), 2, "1 to 11")])
def test_too_few_or_too_many_classes(files, capsys, words, code, said):
    train = ("train", "classes", files / "train.txt", "--out", files / "m", "--classes")
    found, _, error = call(capsys, *train, *words)
    assert found == code and said in error and not (files / "m").exists()


def test_in_a_bag_order_plays_no_part(files, capsys):
    out = files / "bag"
    train = ("train", "bow", files / "train.txt", "--out", out, "--k", 0.5)
    code, said, _ = call(capsys, *train)
    assert code == 0 and "a bag of words" in said
    totals = []
    for text in ("the cat saw a dog", "dog a the saw cat"):
        code, said, _ = call(capsys, "score", out, text, "--json")
        found = json.loads(said)
        assert code == 0 and found["logprobs"][0] is None and len(found["tokens"]) == 7
        totals.append(found["logprob"])
    counts = Counter(word for line in TRAIN if line for word in [*line.split(), "end of line"])
    kinds = len(counts) + 1  # and one for unknown words
    wanted = sum(
        math.log((counts[word] + 0.5) / (counts.total() + 0.5 * kinds))
        for word in "the cat saw a dog".split() + ["end of line"]
    )
    assert totals == [pytest.approx(wanted, abs=1e-9)] * 2


def test_without_smoothing_unseen_words_are_impossible(files, capsys):
    out = files / "bag"
    assert call(capsys, "train", "bow", files / "train.txt", "--out", out, "--no-smoothing")[0] == 0
    code, said, _ = call(capsys, "eval", "lm", out, files / "test.txt", "--json")
    found = json.loads(said)
    assert code == 0 and found["impossible"] == 2 and found["perplexity"] is None  # an, owl
    code, said, told = call(capsys, "eval", "lm", out, files / "test.txt")
    assert code == 0 and "impossible" in said and "inf" in said and "nothing is smoothed" in told
    # Of its own text the perplexity is exp of the entropy of the words.
    code, said, _ = call(
        capsys, "eval", "lm", out, files / "train.txt", "--allow-overlap", "--json"
    )
    counts = Counter(word for line in TRAIN if line for word in [*line.split(), "end of line"])
    shares = [count / counts.total() for count in counts.values()]
    entropy = -sum(share * math.log(share) for share in shares)
    assert json.loads(said)["perplexity"] == pytest.approx(math.exp(entropy))


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
        (["--prune", 0, 2, 1], 2, "that do not fall"),
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
    assert code == 3 and "no words" in said and "empty.txt" in said
    code, _, said = call(capsys, "train", "ngram", files / "none.txt", "--out", out)
    assert code == 3 and "none.txt" in said
    code, _, said = call(capsys, "train", "ngram", files / "train.txt", "--out", files)
    assert code == 2 and "there already" in said
    code, _, said = call(capsys, "sample", files)
    assert code == 3 and "no config.json" in said and "regard train ngram" in said
    assert call(capsys, "export", "arpa", files, files / "x.arpa")[0] == 3
    code, _, said = call(capsys, "sample", files / "none")
    assert code == 3 and "no such file or folder" in said
    assert call(capsys, "train", "ngram", files / "train.txt", "--out", out, "--order", 2)[0] == 0
    code, _, said = call(capsys, "sample", out, "--orders", 3)
    assert code == 2 and "1 to 2" in said


@pytest.mark.parametrize("more", [["--order", 30], ["--order", 3, "--prune", 0, 1000]])
def test_an_order_longer_than_the_text_is_that_of_its_runs(files, capsys, more):
    code, _, notes = call(
        capsys, "train", "ngram", files / "train.txt", "--out", files / "m", *more
    )
    assert code == 0 and "instead of" in notes
    code, said, _ = call(capsys, "eval", "lm", files / "m", files / "test.txt", "--json")
    assert code == 0 and json.loads(said)["perplexity"] > 1
    assert call(capsys, "sample", files / "m")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["train", "bow", "T", "--out", "O", "--k", "nan"],
        ["train", "ngram", "T", "--out", "O", "--smoothing", "add", "--k", "inf"],
        ["sample", "T", "--seed", "-1"],
        ["guess", "T", "--auto", "--seed", "-1"],
    ],
)
def test_numbers_that_are_none(files, capsys, words):
    places = {"T": str(files / "train.txt"), "O": str(files / "m")}
    code, _, error = call(capsys, *(places.get(word, word) for word in words))
    assert code == 2 and words[-1] in error


def test_damaged_arpa(files, capsys):
    assert (
        call(capsys, "train", "ngram", files / "train.txt", "--out", files / "m", "-n", 2)[0] == 0
    )
    assert call(capsys, "export", "arpa", files / "m", files / "m.arpa")[0] == 0
    text = (files / "m.arpa").read_text()
    line = next(line for line in text.splitlines() if "\tcat" in line)
    for wrong in ("0.5", "nan"):
        changed = line.replace(line.split("\t")[0], wrong, 1)
        (files / "m.arpa").write_text(text.replace(line, changed, 1))
        code, _, error = call(capsys, "eval", "lm", files / "m.arpa", files / "test.txt")
        assert code == 3 and "0 or less" in error
    (files / "m.arpa").write_bytes(b"\\data\\\n\xff\n")
    code, _, error = call(capsys, "eval", "lm", files / "m.arpa", files / "test.txt")
    assert code == 3 and "line 2, byte 7 (0xff) is not UTF-8" in error


def test_validation_on_the_training_file_is_warned_of(files, capsys):
    (files / "again.txt").write_bytes((files / "train.txt").read_bytes())
    train = ("train", "ngram", files / "train.txt", "--out")
    for name, valid, warned in (("a", "again.txt", True), ("b", "test.txt", False)):
        code, _, said = call(capsys, *train, files / name, "--valid", files / valid)
        assert code == 0 and ("again.txt is validated on and trained on" in said) == warned


@pytest.mark.parametrize("valid, said", [("none.txt", "no such file"), ("empty.txt", "no tokens")])
def test_validation_that_fails_leaves_no_folder(files, capsys, valid, said):
    (files / "empty.txt").write_text("")
    train = ("train", "ngram", files / "train.txt", "--out", files / "m")
    code, _, error = call(capsys, *train, "--valid", files / valid)
    assert code == 3 and said in error and valid in error and not (files / "m").exists()


def test_an_order_beyond_the_memory_is_refused_before_it_is_counted(files, capsys, monkeypatch):
    monkeypatch.setattr("regard.cli.train_ngram.free_memory", lambda: 100_000)
    (files / "long.txt").write_text(" ".join(map(str, range(300))))
    train = ("train", "ngram", files / "long.txt", "--out", files / "m", "--order")
    code, _, error = call(capsys, *train, 200)
    assert code == 4 and "--order 200" in error and "for 302 tokens" in error
    assert "--order 11 fits" in error and not (files / "m").exists()
    assert call(capsys, *train, 11)[0] == 0


@pytest.mark.parametrize("name, value", [("start", "x"), ("base", []), ("order", -1), ("vocab", 9)])
def test_a_broken_config_is_named(files, capsys, name, value):
    out = files / "m"
    call(capsys, "train", "ngram", files / "train.txt", "--out", out)
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config | {name: value}))
    code, _, error = call(capsys, "score", out, "the cat")
    assert code == 3 and "reading" in error and str(out) in error
