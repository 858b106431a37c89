"""`regard ladder` as a user types it, on tiny corpora with a few steps."""

from __future__ import annotations

import json
import random

import pytest

from regard.cli.ladder import mark_order
from regard.cli.ladder_train import Clock, pace
from regard.history.ladder import PAIRS, TEXTS, beaten_by

NOUNS = {"chat": "cat", "chien": "dog", "roi": "king", "jardin": "garden", "livre": "book"}
SMALL = ("--steps", 4, "--dim", 16, "--device", "cpu")
FRANCE = "I grew up in France and then we went to the city I speak fluent French"


def write_pairs(path, count=60):
    dice = random.Random(1)
    with path.open("w") as file:
        for n in range(count):
            some = dice.choices(list(NOUNS), k=dice.randint(1, 8))
            left = " ".join(f"le {noun}" for noun in some)
            right = " ".join(f"the {NOUNS[noun]}" for noun in some)
            file.write(f"{left} {n}\t{right} {n}\n")
    return path


def write_text(path, count=80, line=FRANCE):
    dice = random.Random(2)
    words = line.split()
    rows = [" ".join(dice.sample(words, len(words))) for _ in range(count)]
    path.write_text("\n".join([line, line, *rows]) + "\n")
    return path


def ladder(here, file, *words):
    code, out, err = here("ladder", file, *SMALL, *words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_every_rung_of_translation_stands_in_one_object(here, tmp_path):
    out = tmp_path / "out"
    made = ladder(here, write_pairs(tmp_path / "pairs.tsv"), "--vocab", 300, "--out", out)
    assert [row["name"] for row in made["rungs"]] == [rung.name for rung in PAIRS]
    assert made["kind"] == "translation" and made["steps"] == 4 and made["minutes"] is None
    assert made["lines"] == {"train": 54, "valid": 3, "test": 3}
    for row, rung in zip(made["rungs"], PAIRS, strict=True):
        assert 0 <= row["bleu"] < 100.1 and row["parameters"] > 0 and row["tokens_per_s"] > 0
        assert (row["bits"] is None) == rung.counts and row["joules"] > 0
        assert sum(band["lines"] for band in row["by_length"]) == 3
        assert row["out_of_order"] == bool(row["beaten_by"])
        model = out / rung.name if rung.counts else out / rung.name / "final"
        assert (model / "config.json").is_file() and (model / "model.safetensors").is_file()
    assert (out / "split" / "train.tsv").is_file() and not (out / ".trial").exists()
    quality = {row["name"]: row["bleu"] for row in made["rungs"]}
    assert {row["name"]: row["beaten_by"] for row in made["rungs"]} == beaten_by(PAIRS, quality)


def test_the_same_seed_gives_the_same_figures(here, tmp_path):
    file = write_pairs(tmp_path / "pairs.tsv")
    words = ("--vocab", 300, "--rungs", "transformer,ibm1", "--seed", 3)
    first, again = (ladder(here, file, *words)["rungs"] for _ in range(2))
    assert [row["name"] for row in first] == ["ibm1", "transformer"]
    for a, b in zip(first, again, strict=True):
        assert all(a[key] == b[key] for key in ("bleu", "bits", "parameters", "by_length"))


def test_every_rung_of_a_text_and_the_curve(here, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    made = ladder(here, write_text(tmp_path / "tale.txt"), "--out", out)
    assert [row["name"] for row in made["rungs"]] == [rung.name for rung in TEXTS]
    assert made["french"]["lacking"] == [] and made["french"]["distances"][0] == 0
    for row in made["rungs"]:
        assert row["perplexity"] == pytest.approx(2 ** row["bits"])
        assert row["joules"] > 0 and row["parameters"] > 0 and row["tokens_per_s"] > 0
        assert len(row["french"]) == len(made["french"]["distances"])
        assert all(0 < p < 1 for p in row["french"])
    single = made["rungs"][0]["french"]
    assert single == pytest.approx([single[0]] * len(single))  # sees nothing of what went before
    assert made["energy"]["measured"] is False or "counter" in made["energy"]["source"]
    assert here("neighbours", out / "word2vec", "France")[0] == 0  # its vectors are kept
    assert (out / "ladder.png").read_bytes().startswith(b"\x89PNG")


def test_words_that_are_not_known_are_named_instead_of_a_curve(here, tmp_path):
    file = write_text(tmp_path / "tale.txt", line="the cat and the dog see the king")
    code, out, err = here("ladder", file, *SMALL, "--rungs", "1-gram,2-gram,rnn")
    assert code == 0 and "not in the vocabulary: I, grew" in out
    assert "rung 3 of 3: RNN" in err and "4 steps each" in out
    code, out, _ = here("ladder", file, *SMALL, "--rungs", "2-gram", "--tokens", "chars")
    assert code == 0 and "F, r" not in out


def test_the_table_says_which_rung_is_out_of_order(here, tmp_path):
    file = write_pairs(tmp_path / "pairs.tsv")
    code, out, _ = here("ladder", file, *SMALL, "--vocab", 300, "--rungs", "ibm1,fixed")
    assert code == 0 and "OUT OF ORDER: not better than IBM model 1" in out
    assert "BLEU by words of the source" in out
    code, out, _ = here("ladder", file, "--rungs", "ibm1", "--watts", 3)
    assert code == 0 and "energy of training: CPU seconds × 3 W" in out and " J" in out


def test_a_rung_is_out_of_order_where_a_lower_one_is_as_good():
    found = [{"name": rung.name, "perplexity": 10.0 - rung.level} for rung in TEXTS]
    mark_order(TEXTS, found, pairs=False)
    assert not any(row["out_of_order"] for row in found)
    (rnn,) = (row for row in found if row["name"] == "rnn")
    rnn["perplexity"] = 9.0
    mark_order(TEXTS, found, pairs=False)
    assert [row["name"] for row in found if row["out_of_order"]] == ["rnn"]
    assert rnn["beaten_by"] == ["2-gram", "3-gram", "5-gram", "classes", "word2vec"]


def test_a_budget_is_shared_and_decides_the_steps(here, tmp_path):
    file = write_text(tmp_path / "tale.txt")
    words = ("--minutes", 0.05, "--dim", 16, "--device", "cpu", "--rungs", "rnn,gru", "--json")
    code, out, err = here("ladder", file, *words)
    made = json.loads(out)
    assert code == 0 and made["minutes"] == 0.05 and made["steps"] is None
    assert "about" in err and [row["name"] for row in made["rungs"]] == ["rnn", "gru"]
    assert 50 < Clock(1).left <= 60


def test_pace_is_taken_from_the_later_lines_of_a_run(tmp_path):
    lines = [{"tokens_per_s": s, "count": c} for s, c in ((1, 10), (100, 20), (300, 30))]
    lines.append({"valid_nll": 1.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert pace(tmp_path) == pytest.approx((150, 20))


def test_test_lines_are_left_out_of_training(here, tmp_path):
    file = write_pairs(tmp_path / "pairs.tsv")
    test = tmp_path / "test.tsv"
    test.write_text("".join(file.read_text().splitlines(keepends=True)[:5]))
    code, out, err = here("ladder", file, "--test", test, "--rungs", "bayes", "--json")
    made = json.loads(out)
    assert code == 0 and made["taken_out"] == 5 and "5 lines" in err
    assert made["lines"] == {"train": 52, "valid": 3, "test": 5}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--rungs", "bays"), 2, "did you mean bayes?"),
        (("--rungs", "lstm"), 2, "no rung 'lstm'"),
        (("--minutes", "0"), 2, "--minutes 0"),
        (("--minutes", "nan"), 2, "'nan' is not a number"),
        (("--out", "."), 2, "not empty"),
        (("--tokens", "runes", "--rungs", "bayes"), 2, "--tokens runes"),
        (("--test", "nowhere.tsv"), 3, "nowhere.tsv"),
    ],
)
def test_bad_arguments(here, tmp_path, words, code, said):
    file = write_pairs(tmp_path / "pairs.tsv")
    found, out, err = here("ladder", file, *words)
    assert (found, out) == (code, "") and said in err


def test_too_few_lines(here, tmp_path):
    found, _, err = here("ladder", write_pairs(tmp_path / "few.tsv", 5), "--rungs", "bayes")
    assert found == 3 and "5 pairs" in err and "20 or more" in err
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    found, _, err = here("ladder", empty)
    assert found == 3 and "0 lines" in err
