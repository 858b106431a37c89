"""The token that a word begins with after a text: what every command that names an answer asks."""

from __future__ import annotations

from collections.abc import Callable

from regard.errors import DataError
from regard.tokens.tokenizer import Side, Tokenizer


def find_token(
    tokenizer: Tokenizer,
    before: str,
    word: str,
    note: Callable[[str], None],
    side: Side = "target",
) -> int:
    """The first token of a word as it goes on after a text; `note` is told where it has several."""
    ids = ids_after(tokenizer, before, word, side) if word else []
    while word.strip() and ids and not tokenizer.decode(ids[:1], side=side).strip():
        ids = ids[1:]  # a blank before the word is not what is asked for
    if not ids or ids[0] == tokenizer.specials.get("unk"):
        raise DataError(
            "finding the token of an answer",
            f"{word!r} is no token of this model",
            "a word, or part of one, of its vocabulary",
            "`regard tok encode` shows how a model cuts words",
        )
    if len(ids) > 1:
        first, *rest = tokenizer.pieces(ids, side)
        cut = " ".join((first, *rest))
        note(f"{word!r} is {len(ids)} tokens, {cut}: its first, {first}, counts")
    return ids[0]


def ids_after(tokenizer: Tokenizer, before: str, word: str, side: Side) -> list[int]:
    """What the tokens of the text with the word have more, with the blank that goes between them.

    Where they change the text's own tokens, those of the word alone.
    """
    blank = "" if not before or before[-1].isspace() or word[:1].isspace() else " "
    text = tokenizer.encode(before, special=False, side=side)
    whole = tokenizer.encode(before + blank + word, special=False, side=side)
    if whole[: len(text)] == text:
        return whole[len(text) :]
    return tokenizer.encode(blank + word, special=False, side=side)
