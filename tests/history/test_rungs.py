"""The ladder on tiny corpora with a few steps."""

from __future__ import annotations

import random
import re
import time

import pytest

import regard
from regard.errors import DataError, UsageError
from regard.history import rungs
from regard.history.rungs import PAIRS, TEXTS, beaten_by, pace

NOUNS = {"chat": "cat", "chien": "dog", "roi": "king", "jardin": "garden", "livre": "book"}
SMALL = {"steps": 4, "dim": 16}
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


def test_every_rung_of_translation_stands_in_one_result(tmp_path):
    out = tmp_path / "out"
    found = regard.ladder(write_pairs(tmp_path / "pairs.tsv"), vocab=300, out=out, **SMALL)
    assert [row.name for row in found.rungs] == [rung.name for rung in PAIRS]
    assert found.kind == "translation" and found.steps == 4 and found.minutes is None
    assert found.lines == {"train": 54, "valid": 3, "test": 3}
    for row, rung in zip(found.rungs, PAIRS, strict=True):
        assert 0 <= row.bleu < 100.1 and row.parameters > 0 and row.tokens_per_s > 0
        assert (row.bits is None) == (rung.verb is None) and row.joules > 0
        assert sum(band["lines"] for band in row.by_length) == 3
        model = out / rung.name if rung.verb is None else out / rung.name / "final"
        assert (model / "config.json").is_file() and (model / "model.safetensors").is_file()
    assert (out / "split" / "train.tsv").is_file() and not (out / ".trial").exists()
    quality = {row.name: row.bleu for row in found.rungs}
    assert {row.name: row.beaten_by for row in found.rungs} == beaten_by(PAIRS, quality)


def test_the_same_seed_gives_the_same_figures(tmp_path):
    file = write_pairs(tmp_path / "pairs.tsv")
    with regard.settings(seed=3):
        first, again = (
            regard.ladder(file, vocab=300, rungs="transformer,ibm1", **SMALL).rungs
            for _ in range(2)
        )
    assert [row.name for row in first] == ["ibm1", "transformer"]
    for a, b in zip(first, again, strict=True):
        assert (a.bleu, a.bits, a.parameters, a.by_length) == (
            *(b.bleu, b.bits),
            *(b.parameters, b.by_length),
        )


def test_every_rung_of_a_text_and_the_curve(tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    found = regard.ladder(write_text(tmp_path / "tale.txt"), out=out, **SMALL)
    assert [row.name for row in found.rungs] == [rung.name for rung in TEXTS]
    assert found.french["lacking"] == [] and found.french["distances"][0] == 0
    for row in found.rungs:
        assert row.perplexity == pytest.approx(2**row.bits)
        assert row.joules > 0 and row.parameters > 0 and row.tokens_per_s > 0
        assert len(row.french) == len(found.french["distances"])
        assert all(0 < p < 1 for p in row.french)
    single = found.rungs[0].french
    assert single == pytest.approx([single[0]] * len(single))  # sees nothing of what went before
    assert found.energy["measured"] is False or "counter" in found.energy["source"]
    assert regard.history.neighbours(out / "word2vec", "France").neighbours  # its vectors are kept


def test_words_that_are_not_known_are_named_instead_of_a_curve(tmp_path, capsys):
    file = write_text(tmp_path / "tale.txt", line="the cat and the dog see the king")
    said = str(regard.ladder(file, rungs="1-gram,2-gram,rnn", **SMALL))
    assert "not in the vocabulary: I, grew" in said and "4 steps each" in said
    assert "rung 3 of 3: RNN" in capsys.readouterr().err
    assert "F, r" not in str(regard.ladder(file, rungs="2-gram", tokens="chars", **SMALL))


def test_the_table_says_which_rung_is_out_of_order(tmp_path):
    file = write_pairs(tmp_path / "pairs.tsv")
    said = str(regard.ladder(file, vocab=300, rungs="ibm1,fixed", **SMALL))
    assert "OUT OF ORDER: not better than IBM model 1" in said
    assert "BLEU by words of the source" in said
    said = str(regard.ladder(file, rungs="ibm1", watts=3))
    assert "energy of training: CPU seconds × 3 W" in said and "joules" in said


def test_a_rung_is_out_of_order_where_a_lower_one_is_as_good():
    quality = {rung.name: rung.level - 10.0 for rung in TEXTS}
    assert not any(beaten_by(TEXTS, quality).values())
    quality["rnn"] = -9.0
    better = beaten_by(TEXTS, quality)
    assert [name for name in better if better[name]] == ["rnn"]
    assert better["rnn"] == ["2-gram", "3-gram", "5-gram", "classes", "word2vec"]


def test_a_budget_is_shared_and_decides_the_steps(tmp_path, capsys):
    file = write_text(tmp_path / "tale.txt")
    found = regard.ladder(file, minutes=0.05, dim=16, rungs="rnn,gru")
    assert found.minutes == 0.05 and found.steps is None
    assert [row.name for row in found.rungs] == ["rnn", "gru"]
    assert "about" in capsys.readouterr().err


def test_steps_follow_the_clock_and_later_rungs_keep_their_share(tmp_path, monkeypatch, capsys):
    """The trial says that steps are forty times as fast as they are; the test takes as long."""
    monkeypatch.setattr(rungs, "pace", lambda metrics: (40 * pace(metrics)[0], pace(metrics)[1]))
    evaluate = regard.evaluate.lm

    def slow(*words, **options):
        time.sleep(4)
        return evaluate(*words, **options)

    monkeypatch.setattr(regard.evaluate, "lm", slow)
    file = write_text(tmp_path / "tale.txt", 400)
    found = regard.ladder(file, minutes=0.1, dim=16, rungs="rnn,gru")
    told = [float(part) for part in re.findall(r"about (\d+) s", capsys.readouterr().err)]
    assert len(told) == 2 and min(told) >= 2  # of six seconds, though the first took all
    assert all(row.seconds < 5 for row in found.rungs)


def test_pace_is_taken_from_the_later_lines_of_a_run():
    lines = [{"tokens_per_s": s, "count": c} for s, c in ((1, 10), (100, 20), (300, 30))]
    assert pace([*lines, {"valid_nll": 1.0}]) == pytest.approx((150, 20))


def test_test_lines_are_left_out_of_training(tmp_path, capsys):
    file = write_pairs(tmp_path / "pairs.tsv")
    test = tmp_path / "test.tsv"
    test.write_text("".join(file.read_text().splitlines(keepends=True)[:5]))
    found = regard.ladder(file, test=test, rungs="bayes")
    assert found.taken_out == 5 and "5 lines" in capsys.readouterr().err
    assert found.lines == {"train": 52, "valid": 3, "test": 5}


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"rungs": "bays"}, UsageError, "did you mean bayes?"),
        ({"rungs": "lstm"}, UsageError, "no rung 'lstm'"),
        ({"minutes": 0}, UsageError, "minutes = 0"),
        ({"minutes": float("nan")}, UsageError, "minutes = nan"),
        ({"out": "."}, UsageError, "there already"),
        ({"tokens": "runes", "rungs": "bayes"}, UsageError, "--tokens runes"),
        ({"test": "nowhere.tsv"}, DataError, "nowhere.tsv"),
    ],
)
def test_bad_arguments(tmp_path, options, kind, said):
    with pytest.raises(kind) as found:
        regard.ladder(write_pairs(tmp_path / "pairs.tsv"), **options)
    assert said in str(found.value)


def test_too_few_lines(tmp_path):
    with pytest.raises(DataError, match="5 pairs") as found:
        regard.ladder(write_pairs(tmp_path / "few.tsv", 5), rungs="bayes")
    assert "20 or more" in str(found.value)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="0 lines"):
        regard.ladder(tmp_path / "empty.txt")
