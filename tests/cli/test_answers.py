"""The token of an answer: the same whichever command asks."""

from __future__ import annotations

import json

import pytest

from regard.errors import DataError
from regard.loading import load
from regard.look.answer_tokens import find_token
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


def test_three_commands_ask_alike(here, writer, tmp_path):  # noqa: F811
    note = "'cat' is 2 tokens, Ġc at: its first, Ġc, counts\n"
    code, out, err = here("look", "lens", writer, TEXT, "--target", "cat", "--json")
    assert (code, err) == (0, note)
    lens = json.loads(out)
    code, out, err = here("explain", writer, TEXT, "--target", "cat", "--json")
    assert (code, err) == (0, note) and json.loads(out)["value"] == pytest.approx(lens["goal"])
    line = f"{TEXT}\tthe cat mat on the\tcat\tmat\n"
    (tmp_path / "pairs.tsv").write_text(line * 3)
    code, out, err = here("patch", writer, tmp_path / "pairs.tsv", "--json")
    assert (code, err) == (0, note)  # once for three lines
    both = json.loads(
        here("look", "lens", writer, TEXT, *"--target cat --against mat --json".split())[1]
    )
    assert json.loads(out)["clean"] == pytest.approx(both["goal"], abs=1e-4)
