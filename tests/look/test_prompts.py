"""The token of an answer: the same whichever verb asks."""

from __future__ import annotations

import pytest

import regard
from regard.errors import DataError
from regard.loading import load
from regard.look.prompts import find_token
from tests.cli.small_folders import masker, writer  # noqa: F401

TEXT = "the cat sat on the"


def test_the_first_token_after_a_text(writer):  # noqa: F811
    tokenizer, said = load(writer).tokenizer, []
    spaced = tokenizer.encode(" mat", special=False)[0]
    assert find_token(tokenizer, TEXT, "mat", said.append) == spaced
    assert find_token(tokenizer, TEXT, " mat", said.append) == spaced
    assert find_token(tokenizer, TEXT + " ", "mat", said.append) != spaced  # the blank is there
    bare = tokenizer.encode("mat", special=False)[0]
    assert find_token(tokenizer, "", "mat", said.append) == bare
    said.clear()
    find_token(tokenizer, TEXT, "xylophone", said.append)
    assert len(said) == 1 and "its first" in said[0]
    with pytest.raises(DataError, match="no token"):
        find_token(tokenizer, TEXT, "", said.append)


def test_an_unknown_word_is_no_answer(masker):  # noqa: F811
    with pytest.raises(DataError, match="no token of this model"):
        find_token(load(masker).tokenizer, "the", "犬", print)


def test_three_verbs_ask_alike(writer, tmp_path, capsys):  # noqa: F811
    note = "'cat' is 2 tokens, ' c' 'at': its first, ' c', counts\n"
    lens = regard.look.lens(writer, TEXT, target="cat")
    assert capsys.readouterr().err == note
    explained = regard.look.explain(writer, TEXT, target="cat")
    assert capsys.readouterr().err == note
    assert explained.explanation.value == pytest.approx(lens.goal)
    line = f"{TEXT}\tthe cat mat on the\tcat\tmat\n"
    (tmp_path / "pairs.tsv").write_text(line * 3)
    patched = regard.look.patch(writer, tmp_path / "pairs.tsv")
    assert capsys.readouterr().err == note  # once for three lines
    both = regard.look.lens(writer, TEXT, target="cat", against="mat")
    assert patched.clean == pytest.approx(both.goal, abs=1e-4)
