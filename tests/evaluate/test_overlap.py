"""Planted leaks of test data into training data are caught (N14)."""

from __future__ import annotations

import pytest

import regard
from regard.errors import DataError
from tests.cli.small_folders import pair, writer  # noqa: F401
from tests.evaluate.runs import TEXT, run, text  # noqa: F401


def test_a_leak_of_lines(writer, text, tmp_path):  # noqa: F811
    train = tmp_path / "train.txt"
    train.write_text("another line\nPARIS is the  capital of france.\n")  # six words: by chance
    assert regard.evaluate.lm(writer, text, train=train).overlap == "none"
    train.write_text(TEXT.splitlines()[0].upper() + "\n")
    with pytest.raises(DataError, match="4 of 4 by lines of 8 words"):
        regard.evaluate.lm(writer, text, train=train)
    score = regard.evaluate.lm(writer, text, train=train, allow_overlap=True)
    assert score.overlap.startswith("NOT A SCORE: 4 of 4")


def test_a_run_knows_what_it_was_trained_on(writer, text, run, tmp_path, capsys):  # noqa: F811
    leak, clean, valid = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "data" / "a.txt"
    valid.parent.mkdir()
    leak.write_text(f"something else\n{TEXT.splitlines()[0].upper()}\n")
    clean.write_text("nothing of the kind\n")
    valid.write_text(TEXT)  # a model is not trained on what it was chosen by
    folder = run(writer, [leak, clean], [valid])
    with pytest.raises(DataError, match="4 of 4 by lines of 8 words"):
        regard.evaluate.lm(folder, text)
    assert str(leak) in capsys.readouterr().err
    known = regard.evaluate.lm(folder, text, allow_overlap=True).overlap
    assert known.startswith("NOT A SCORE")
    assert regard.evaluate.lm(folder, text, train=clean).overlap == "none"  # what is said counts
    leak.write_text("another text\n")
    known = regard.evaluate.lm(folder, text).overlap
    assert known.startswith("none in 1 files; not checked") and "SHA-256" in known
    leak.unlink()
    clean.unlink()
    known = regard.evaluate.lm(folder, text).overlap
    assert known.startswith("not checked") and known.count("No such file") == 2
    assert f"overlap {known}" in capsys.readouterr().err
    (folder.parent / "receipt.json").unlink()
    regard.evaluate.lm(folder, text)
    assert "no --train" in capsys.readouterr().err
