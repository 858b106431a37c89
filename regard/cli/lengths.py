"""How long a text may be that is looked into: what a model has positions for, and what fits."""

from __future__ import annotations

from regard.cli.view_flags import LONGEST
from regard.data.pairs import shorten
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.model.front_text import TextFront


def most_tokens(kit: Kit, doing: str) -> int:
    """Its table of positions; without one what it was trained on, or 5,000 where that is less."""
    front = kit.model.front
    if not isinstance(front, TextFront):
        found = f"a model that reads {kit.model.config.front.kind}"
        raise UsageError(doing, found, "one that reads text")
    return room_of(front)


def room_of(front: TextFront) -> int:
    """The tokens that one side of a model reads at once."""
    table = None if front.positions is None else front.positions.size
    return table or max(front.config.length or 0, LONGEST)


def check_length(kit: Kit, ids: list[int], doing: str, text: str = "") -> list[int]:
    """The ids of a text, if there are any and no more than fit; else up to where it does."""
    if not ids:
        raise DataError(doing, "no tokens in the text", "at least one")
    most = most_tokens(kit, doing)
    if len(ids) <= most:
        return ids
    assert kit.tokenizer is not None
    ends = [end for _, end in kit.tokenizer.offsets(text, special=False)]
    spare = len(ids) - most
    fits = ends[len(ends) - spare - 1] if spare < len(ends) else 0
    fix = f"a shorter text: up to {shorten(text[:fits][-20:])!r} it fits" if fits else ""
    raise DataError(doing, f"a text of {len(ids):,} tokens", f"at most {most:,}", fix)
