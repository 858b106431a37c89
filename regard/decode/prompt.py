"""Prompts: a text as the beginning of what a decoder writes, or with gaps to fill."""

from __future__ import annotations

from regard.data.pairs import shorten
from regard.errors import DataError
from regard.tokens.tokenizer import Tokenizer

MASKS = ("<mask>", "[MASK]")  # accepted for whatever the tokenizer calls it


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


def encode_gaps(
    tokenizer: Tokenizer, text: str, mask: int, doing: str = "filling a gap"
) -> list[int]:
    """Ids of a text in which the mask's spelling, and no other control token's, is a token."""
    own = tokenizer.pieces([mask], "source")[0]
    for other in MASKS:
        text = text.replace(other, own)
    if own not in text:
        wrong = f"no {own} in {shorten(text)!r}"
        raise DataError(doing, wrong, f"{own} where a word is missing")
    for id in tokenizer.specials.values():
        piece = tokenizer.pieces([id], "source")[0]
        if id != mask and piece in text:
            wrong = f"the text spells the control token {piece}"
            raise DataError(doing, wrong, f"no control token but {own}")
    return tokenizer.encode(text, allow_special=True)
