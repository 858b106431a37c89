"""Prompts with corrupted twins, read from a file or made, as a batch of pairs.

A line is `clean TAB corrupted TAB answer` and, where it is compared with one, `TAB other answer`;
a fifth column names its template.
Prompts of a masked language model have a gap; those of an encoder-decoder are sources, and of its
answers the words that both begin with, or all but the last, stand as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from regard.ambient import note
from regard.data.text_files import read_lines
from regard.errors import DataError
from regard.look.answer_tokens import AskedText, find_token, read_asked
from regard.look.labels import token_labels
from regard.look.patching import Goal, Pairs

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "reading pairs of prompts"
SHOWN = 5  # wrong lines, and notes, that are listed


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


AskedPair = tuple[AskedText, AskedText, str, str | None]
"""A pair as a model reads it: clean, corrupted, answer, other answer."""


def read_pair(kit: Kit, pair: PromptPair, number: int) -> AskedPair:
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
    return clean, corrupt, good, bad


def make_pairs(kit: Kit, prompts: Sequence[PromptPair]) -> Pairs:
    """Prompts as batches on the model's device; twins must have as many tokens."""
    tokenizer = kit.text_tokenizer
    asked = [read_pair(kit, pair, number) for number, pair in enumerate(prompts, 1)]
    cleans, corrupts = [pair[0] for pair in asked], [pair[1] for pair in asked]
    check_lengths(kit, cleans, corrupts)
    notes: dict[str, None] = {}  # each once
    good = [find_token(tokenizer, x.before, word, notes.setdefault) for x, _, word, _ in asked]
    bad = [
        find_token(tokenizer, x.before, word, notes.setdefault)
        for x, _, _, word in asked
        if word is not None  # of all lines or of none
    ]
    for text in list(notes)[:SHOWN]:
        note(text)
    if len(notes) > SHOWN:
        note(f"and {len(notes) - SHOWN} more answers of several tokens")
    gaps = [x.gap for x in cleans if x.gap is not None]
    goal = Goal(
        torch.tensor(good),
        torch.tensor(bad) if bad else None,
        torch.tensor(gaps) if gaps else None,
        "logit" if bad else "logprob",
    )
    written = [x.written for x in cleans if x.written is not None] or None
    kinds = [
        (pair.template, len(x.ids), len(x.written or ()))
        for pair, x in zip(prompts, cleans, strict=True)
    ]
    numbers = {kind: n for n, kind in enumerate(dict.fromkeys(kinds))}
    templates = torch.tensor([numbers[kind] for kind in kinds])
    clean, corrupt = ([x.ids for x in side] for side in (cleans, corrupts))
    return Pairs(kit.batch(clean, written), kit.batch(corrupt, written), goal, templates)


def check_lengths(kit: Kit, clean: Sequence[AskedText], corrupt: Sequence[AskedText]) -> None:
    """Refuse pairs of unequal length, their tokens shown side by side."""
    unequal = []
    for number, sides in enumerate(
        ((a.ids, b.ids) for a, b in zip(clean, corrupt, strict=True)), 1
    ):
        if len(sides[0]) != len(sides[1]):
            labels = (token_labels(kit.text_tokenizer, ids, "source") for ids in sides)
            rows = "\n    ".join(" | ".join(map(str.strip, tokens)) for tokens in labels)
            sizes = f"{len(sides[0])} and {len(sides[1])} tokens"
            unequal.append(f"\n  pair {number}: {sizes}\n    {rows}")
    if unequal:
        more = f"\n  and {len(unequal) - SHOWN} more" if len(unequal) > SHOWN else ""
        problem = f"{len(unequal)} pairs of unequal length{''.join(unequal[:SHOWN])}{more}"
        raise DataError(DOING, problem, "as many tokens in a prompt as in its corrupted twin")
