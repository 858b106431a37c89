"""Prompts: nothing after them, and something where there is no text."""

from __future__ import annotations

import pytest

from regard.decode.prompt import prompt_ids
from regard.errors import DataError
from regard.tokens.trainers import train_tokenizer

CORPUS = ["the cat sat on the mat"] * 5


@pytest.mark.parametrize("wrap", ["none", "bos", "eos", "bos-eos", "cls-sep"])
def test_the_end_is_left_out_and_the_beginning_kept(wrap):
    tokenizer = train_tokenizer(CORPUS, "bpe", 280, specials=("pad",), wrap=wrap)
    bare = tokenizer.encode("the cat", special=False)
    begin = tokenizer.specials.get("bos", tokenizer.specials.get("cls"))
    first = [] if begin is None else [begin]
    assert prompt_ids(tokenizer, "the cat") == [*first, *bare]
    if wrap == "none":
        with pytest.raises(DataError, match="an empty text"):
            prompt_ids(tokenizer, "")
    else:
        assert prompt_ids(tokenizer, "") == (first or [tokenizer.specials["eos"]])
