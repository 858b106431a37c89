"""What a model is asked: a text as it reads it, and the token that an answer begins with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from regard.ambient import note
from regard.decode.prompt import encode_gaps, prompt_ids
from regard.errors import DataError, UsageError
from regard.interop.side import start_id
from regard.look.labels import token_labels
from regard.look.text_limits import check_length
from regard.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.kit import Kit


class AskedText(NamedTuple):
    """A text whose next or missing word is asked for."""

    ids: list[int]
    before: str
    """What the answer follows."""
    gap: int | None = None
    """The column of a masked language model's gap; its answer stands there, others' at the end."""
    written: list[int] | None = None
    """What an encoder-decoder has written."""


def read_asked(kit: Kit, text: str, doing: str, begun: str = "") -> AskedText:
    """A text as a model of its kind reads it; `begun` is how an encoder-decoder's answer begins."""
    model, tokenizer = kit.model, kit.tokenizer
    if tokenizer is None or model.config.head.take != "all" or model.head.out is None:
        raise UsageError(doing, "a model that predicts no words", "one that does")
    if model.config.target is not None:
        ids = check_length(kit, tokenizer.encode(text), doing, text)
        after = tokenizer.encode(begun, special=False, side="target")
        kit.check_room(len(after) + 1)
        return AskedText(ids, begun, written=[start_id(kit.files, kit.config), *after])
    if model.decoder is not None:
        return AskedText(check_length(kit, prompt_ids(tokenizer, text), doing, text), text)
    mask = tokenizer.specials.get("mask")
    if mask is None or model.config.head.size != getattr(model.config.front, "vocab", None):
        raise UsageError(doing, "an encoder that predicts no words", "a masked language model")
    ids = check_length(kit, encode_gaps(tokenizer, text, mask, doing), doing, text)
    gap = ids.index(mask)
    return AskedText(ids, tokenizer.decode(ids[:gap]), gap)


def find_token(
    tokenizer: Tokenizer, before: str, word: str, tell: Callable[[str], object] = note
) -> int:
    """The first token of a word as it goes on after a text; `tell` hears where it has several.

    With the blank that goes between them, it is what the text with the word has more; where the
    text's own tokens change, it is that of the word alone.
    """
    encode = partial(tokenizer.encode, special=False, side="target")
    blank = "" if not before or before[-1].isspace() or word[:1].isspace() else " "
    text, whole = encode(before), encode(before + blank + word)
    ids = whole[len(text) :] if whole[: len(text)] == text else encode(blank + word)
    ids = ids if word else []
    while word.strip() and ids and not tokenizer.decode(ids[:1], side="target").strip():
        ids = ids[1:]  # a blank before the word is not what is asked for
    if not ids or ids[0] == tokenizer.specials.get("unk"):
        raise DataError(
            "finding the token of an answer",
            f"{word!r} is no token of this model",
            "a word, or part of one, of its vocabulary",
            "`regard tokens encode` shows how a model cuts words",
        )
    if len(ids) > 1:
        cut = [repr(label) for label in token_labels(tokenizer, ids, "target")]
        tell(f"{word!r} is {len(ids)} tokens, {' '.join(cut)}: its first, {cut[0]}, counts")
    return ids[0]
