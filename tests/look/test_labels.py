"""Tokens as people read them."""

from __future__ import annotations

from regard.loading import load_kit
from regard.look.labels import token_label


def test_a_token_that_is_a_blank_alone_is_shown_as_one() -> None:
    tokenizer = load_kit("fr-en").text_tokenizer
    ids = tokenizer.encode("The king", special=False)
    spelt = [tokenizer.engine.piece(id, "target") for id in ids]
    assert "Ġ" in spelt, "the vocabulary spells king after a blank of its own"
    assert token_label(tokenizer, ids[spelt.index("Ġ")]) == " "
