"""`regard eval translate`: BLEU of the same text, and planted leaks (N14)."""

from __future__ import annotations

import json

import pytest

from regard.translation.document import Candidate, Document
from regard.translation.translator import Translator
from tests.cli.small_folders import pair, writer  # noqa: F401
from tests.evaluate.runs import pairs, run  # noqa: F401


def test_scores_with_signatures(here, pair, pairs):  # noqa: F811
    code, out, _ = here("eval", "translate", pair, pairs, "--beams", 2, "--json", "-q")
    found = json.loads(out)
    assert code == 0 and 0 <= found["bleu"] < 100 and found["lines"] == 3 and found["beams"] == 2
    assert "tok:13a" in found["bleu_signature"] and "nc:6" in found["chrf_signature"]


def test_the_same_text_has_100(here, pair, pairs, monkeypatch):  # noqa: F811
    lines = [line.split("\t")[1] for line in pairs.read_text().splitlines()]
    lines = [f"{line} et encore des mots" for line in lines]
    pairs.write_text("".join(f"x\t{line}\n" for line in lines))
    answers = [Document("", [], [Candidate(line, 0.0, [])]) for line in lines]
    monkeypatch.setattr(Translator, "translate", lambda crew, given, tell: answers)
    found = json.loads(here("eval", "translate", pair, pairs, "--json", "-q")[1])
    assert found["bleu"] == pytest.approx(100) and found["chrf"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("leak", "side"),
    [("the cat\tun autre", "1 of 3 by source"), ("x\tLE CHAT", "1 of 3 by target")],
)
def test_planted_leaks_are_caught(here, pair, pairs, tmp_path, leak, side):  # noqa: F811
    train = tmp_path / "train.tsv"
    train.write_text(f"a\tb\n{leak}\n")
    code, out, err = here("eval", "translate", pair, pairs, "--train", train, "--json")
    assert (code, out) == (3, "") and side in err and "line 1" in err and "--allow-overlap" in err
    flags = ("--train", train, "--allow-overlap", "--beams", 1, "--json")
    found = json.loads(here("eval", "translate", pair, pairs, *flags)[1])
    assert found["overlap"].startswith("NOT A SCORE")
    train.write_text("a\tb\n")
    found = json.loads(here("eval", "translate", pair, pairs, *flags)[1])
    assert found["overlap"] == "none"


def test_without_sacrebleu(here, pair, pairs, monkeypatch):  # noqa: F811
    import sys

    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    code, _, err = here("eval", "translate", pair, pairs, "--beams", 1)
    assert code == 2 and "pip install 'regard[score]'" in err


def test_wrong_pairs(here, pair, writer, pairs, tmp_path):  # noqa: F811
    (tmp_path / "odd").write_text("one\ttwo\nno tab\n")
    code, _, err = here("eval", "translate", pair, tmp_path / "odd")
    assert code == 3 and "line 2" in err
    (tmp_path / "empty").write_text("")
    assert here("eval", "translate", pair, tmp_path / "empty")[0] == 3
    assert "an encoder-decoder" in here("eval", "translate", writer, pairs)[2]


@pytest.mark.parametrize("two", [False, True])
def test_pairs_that_a_run_was_trained_on(here, pair, pairs, run, tmp_path, two):  # noqa: F811
    if two:
        files = [tmp_path / "train.fr", tmp_path / "train.en"]
        files[0].write_text("le chien\nthe cat\n")
        files[1].write_text("the dog\nun autre\n")
    else:
        files = [tmp_path / "train.tsv"]
        files[0].write_text("le chien\tthe dog\nthe cat\tun autre\n")
    code, _, err = here("eval", "translate", run(pair, files), pairs)
    assert code == 3 and "1 of 3 by source" in err
