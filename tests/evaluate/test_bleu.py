"""BLEU and chrF of translations, and test pairs that were trained on (N14)."""

from __future__ import annotations

import sys

import pytest

import regard
from regard.errors import DataError, UsageError
from regard.translation.document import Document, TargetText
from regard.translation.translator import Translator
from tests.cli.small_folders import pair, writer  # noqa: F401
from tests.evaluate.runs import pairs, run  # noqa: F401


def test_scores_with_signatures(pair, pairs):  # noqa: F811
    scores = regard.evaluate.translate(pair, pairs, beams=2, by_length=True)
    assert 0 <= scores.bleu < 100 and scores.lines == 3 and scores.beams == 2
    assert "tok:13a" in scores.bleu_signature and "nc:6" in scores.chrf_signature
    assert sum(band.lines for band in scores.by_length) == 3
    assert "BLEU by words of the source" in str(scores)


def test_the_same_text_has_100(pair, pairs, monkeypatch):  # noqa: F811
    lines = [line.split("\t")[1] for line in pairs.read_text().splitlines()]
    lines = [f"{line} et encore des mots" for line in lines]
    pairs.write_text("".join(f"x\t{line}\n" for line in lines))
    answers = [Document("", [], [TargetText(line, 0.0, [])]) for line in lines]
    monkeypatch.setattr(Translator, "translate", lambda translator, texts, tell: answers)
    scores = regard.evaluate.translate(pair, pairs)
    assert scores.bleu == pytest.approx(100) and scores.chrf == pytest.approx(100)


@pytest.mark.parametrize(
    ("leak", "side"),
    [("the cat\tun autre", "1 of 3 by source"), ("x\tLE CHAT", "1 of 3 by target")],
)
def test_planted_leaks_are_caught(pair, pairs, tmp_path, leak, side):  # noqa: F811
    train = tmp_path / "train.tsv"
    train.write_text(f"a\tb\n{leak}\n")
    with pytest.raises(DataError, match=side) as error:
        regard.evaluate.translate(pair, pairs, train=train)
    assert "line 1" in error.value.found and "--allow-overlap" in error.value.fix
    flags = {"train": train, "allow_overlap": True, "beams": 1}
    assert regard.evaluate.translate(pair, pairs, **flags).overlap.startswith("NOT A SCORE")
    train.write_text("a\tb\n")
    assert regard.evaluate.translate(pair, pairs, **flags).overlap == "none"


def test_without_sacrebleu(pair, pairs, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(UsageError, match="sacrebleu") as error:
        regard.evaluate.translate(pair, pairs, beams=1)
    assert error.value.fix == "pip install 'regard[score]'"


def test_wrong_pairs(pair, writer, pairs, tmp_path):  # noqa: F811
    (tmp_path / "odd").write_text("one\ttwo\nno tab\n")
    with pytest.raises(DataError, match="line 2"):
        regard.evaluate.translate(pair, tmp_path / "odd")
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="no pairs"):
        regard.evaluate.translate(pair, tmp_path / "empty")
    with pytest.raises(UsageError) as error:
        regard.evaluate.translate(writer, pairs)
    assert error.value.expected == "an encoder-decoder"


@pytest.mark.parametrize("two", [False, True])
def test_pairs_that_a_run_was_trained_on(pair, pairs, run, tmp_path, two):  # noqa: F811
    if two:
        files = [tmp_path / "train.fr", tmp_path / "train.en"]
        files[0].write_text("le chien\nthe cat\n")
        files[1].write_text("the dog\nun autre\n")
    else:
        files = [tmp_path / "train.tsv"]
        files[0].write_text("le chien\tthe dog\nthe cat\tun autre\n")
    with pytest.raises(DataError, match="1 of 3 by source"):
        regard.evaluate.translate(run(pair, files), pairs)
