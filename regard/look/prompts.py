"""Prompts: a text as a model reads it, the token its answer begins with, and pairs of them.

Prompts with corrupted twins are read from a file, or made. A line is `clean TAB corrupted TAB
answer` and, where it is compared with one, `TAB other answer`; a fifth column names its template.
Prompts of a masked language model have a gap; those of an encoder-decoder are sources, and of its
answers the words that both begin with, or all but the last, stand as written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from regard.ambient import note
from regard.data.text_files import read_lines
from regard.decode.prompt import encode_gaps, prompt_ids
from regard.errors import DataError, UsageError
from regard.look.labels import token_labels
from regard.look.patching import Goal, Pairs
from regard.look.text_limits import check_length
from regard.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "reading pairs of prompts"
SHOWN = 5  # wrong lines, and notes, that are listed


# One text ---------------------------------------------------------------------------------------


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
        ids = check_length(kit, tokenizer.encode(text), doing)
        after = tokenizer.encode(begun, special=False, side="target")
        kit.check_room(len(after) + 1)
        return AskedText(ids, begun, written=[kit.start, *after])
    if model.decoder is not None:
        return AskedText(check_length(kit, prompt_ids(tokenizer, text), doing), text)
    mask = tokenizer.specials.get("mask")
    if mask is None or model.config.head.size != getattr(model.config.front, "vocab", None):
        raise UsageError(doing, "an encoder that predicts no words", "a masked language model")
    ids = check_length(kit, encode_gaps(tokenizer, text, mask, doing), doing)
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


# Pairs ------------------------------------------------------------------------------------------


class PromptPair(NamedTuple):
    """A prompt, its twin, the answer and what it is compared with."""

    clean: str
    corrupt: str
    good: str
    bad: str | None = None
    template: str = ""
    """Prompts of one template, and of one length, have the same roles at the same places."""


def read_prompts(path: str | Path) -> list[PromptPair]:
    """The pairs of a file; wrong lines are named."""
    prompts = []
    for number, text in enumerate(read_lines([path]), 1):
        if not text.strip():
            continue
        columns = text.split("\t")
        if len(columns) not in (3, 4, 5) or not all(column.strip() for column in columns):
            problem = f"{path}, line {number}: {len(columns)} columns, or an empty one"
            expected = "clean TAB corrupted TAB answer [TAB other answer [TAB template]]"
            raise DataError(DOING, problem, expected)
        prompts.append(PromptPair(*columns))
    if not prompts:
        raise DataError(DOING, f"no lines in {path}", "at least one")
    if len({pair.bad is None for pair in prompts}) > 1:
        problem = f"{path}: some lines have an other answer and some none"
        raise DataError(DOING, problem, "all lines alike")
    return prompts


AskedPair = tuple[AskedText, AskedText, int, int | None]
"""A pair as a model reads it: clean, corrupted, and the tokens of answer and other answer."""


def read_pair(kit: Kit, pair: PromptPair, number: int, tell: Callable[[str], object]) -> AskedPair:
    """Read both prompts; an encoder-decoder has written what both answers begin with."""
    begun, good, bad = "", pair.good, pair.bad
    if kit.model.config.target is not None:
        words, others = pair.good.split(), (pair.bad or pair.good).split()
        most = min(len(words), len(others)) - 1
        same = next((n for n in range(most) if words[n] != others[n]), most)
        begun, good = " ".join(words[:same]), " ".join(words[same:])
        bad = None if pair.bad is None else " ".join(others[same:])
    doing = f"{DOING}, pair {number}"
    clean, corrupt = (read_asked(kit, text, doing, begun) for text in (pair.clean, pair.corrupt))
    if len(clean.ids) == len(corrupt.ids) and clean.gap != corrupt.gap:
        raise DataError(doing, f"gaps at different tokens: {pair.clean!r}", "one place for both")
    find = partial(find_token, kit.text_tokenizer, clean.before, tell=tell)
    return clean, corrupt, find(good), None if bad is None else find(bad)


def make_pairs(kit: Kit, prompts: Sequence[PromptPair]) -> Pairs:
    """Prompts as batches on the model's device; twins must have as many tokens."""
    notes: dict[str, None] = {}  # each once
    asked = [read_pair(kit, pair, n, notes.setdefault) for n, pair in enumerate(prompts, 1)]
    cleans, corrupts = [pair[0] for pair in asked], [pair[1] for pair in asked]
    check_lengths(kit, cleans, corrupts)
    bad = [pair[3] for pair in asked if pair[3] is not None]  # of all lines or of none
    for text in list(notes)[:SHOWN]:
        note(text)
    if len(notes) > SHOWN:
        note(f"and {len(notes) - SHOWN} more answers of several tokens")
    gaps = [x.gap for x in cleans if x.gap is not None]
    goal = Goal(
        torch.tensor([pair[2] for pair in asked]),
        torch.tensor(bad) if bad else None,
        torch.tensor(gaps) if gaps else None,
        "logit" if bad else "logprob",
    )
    written = [x.written for x in cleans if x.written is not None] or None
    named = zip(prompts, cleans, strict=True)
    kinds = [(pair.template, len(x.ids), len(x.written or ())) for pair, x in named]
    numbers = dict[tuple[str, int, int], int]()
    templates = torch.tensor([numbers.setdefault(kind, len(numbers)) for kind in kinds])
    clean, corrupt = (kit.batch([x.ids for x in side], written) for side in (cleans, corrupts))
    return Pairs(clean, corrupt, goal, templates)


def check_lengths(kit: Kit, clean: Sequence[AskedText], corrupt: Sequence[AskedText]) -> None:
    """Refuse pairs of unequal length, their tokens shown side by side."""
    unequal = []
    for n, (a, b) in enumerate(zip(clean, corrupt, strict=True), 1):
        if len(a.ids) != len(b.ids):
            labels = (token_labels(kit.text_tokenizer, x.ids, "source") for x in (a, b))
            rows = "\n    ".join(" | ".join(map(str.strip, tokens)) for tokens in labels)
            unequal.append(f"\n  pair {n}: {len(a.ids)} and {len(b.ids)} tokens\n    {rows}")
    if unequal:
        more = f"\n  and {len(unequal) - SHOWN} more" if len(unequal) > SHOWN else ""
        problem = f"{len(unequal)} pairs of unequal length{''.join(unequal[:SHOWN])}{more}"
        raise DataError(DOING, problem, "as many tokens in a prompt as in its corrupted twin")
