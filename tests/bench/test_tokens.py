"""The corpus that `bench/tokens.py` makes of a text."""

from __future__ import annotations

import pytest

from bench.tokens import write_corpus


def test_a_text_is_repeated_to_the_size_wanted(tmp_path):
    (tmp_path / "a.txt").write_text("in the end\n")
    write_corpus(tmp_path / "a.txt", tmp_path / "corpus", 1)
    assert (tmp_path / "corpus").stat().st_size == 10**6


def test_an_empty_text_is_an_error_not_a_loop(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(SystemExit, match="a.txt: an empty file"):
        write_corpus(tmp_path / "a.txt", tmp_path / "corpus", 1)
