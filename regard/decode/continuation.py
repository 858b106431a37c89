"""Continuations: texts that a model goes on with."""

from __future__ import annotations

from regard.errors import DataError
from regard.tokens.tokenizer import Tokenizer


def prompt_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text to be gone on with: without the end that a tokenizer may put after texts.

    The empty text is the token that begins texts, or else the one that separates them.
    """
    ids = tokenizer.encode(text)
    after = tokenizer.encode("")
    end = tokenizer.specials.get("eos", tokenizer.specials.get("sep"))
    if after and after[-1] == end and ids[-1] == end:
        ids = ids[:-1]
    if ids:
        return ids
    for role in ("bos", "eos", "cls"):
        if role in tokenizer.specials:
            return [tokenizer.specials[role]]
    raise DataError("reading a prompt", "an empty text", "at least one token to go on from")
