"""Prompts with corrupted twins, read from a file or made, as a batch of pairs.

A line is `clean TAB corrupted TAB answer` and, where it is compared with one, `TAB other answer`;
a fifth column names its template.
Prompts of a masked language model have a gap; those of an encoder-decoder are sources, and of its
answers the words that both begin with, or all but the last, stand as written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from regard.data.text_files import read_lines
from regard.errors import DataError, UsageError
from regard.kit import Kit
from regard.look.answer_tokens import AskedText, find_token, read_asked
from regard.look.patching import Goal, Pairs
from regard.tokens.tokenizer import Tokenizer

DOING = "reading pairs of prompts"
SHOWN = 5  # wrong lines, and notes, that are listed


class Line(NamedTuple):
    """A prompt, its twin, the answer and what it is compared with."""

    clean: str
    corrupt: str
    good: str
    bad: str | None = None
    template: str = ""
    """Prompts of one template, and of one length, have the same roles at the same places."""


def read_prompts(path: str) -> list[Line]:
    """The pairs of a file; wrong lines are named."""
    made = []
    for number, text in enumerate(read_lines([path]), 1):
        if not text.strip():
            continue
        parts = text.split("\t")
        if len(parts) not in (3, 4, 5) or not all(part.strip() for part in parts):
            found = f"{path}, line {number}: {len(parts)} columns, or an empty one"
            expected = "clean TAB corrupted TAB answer [TAB other answer [TAB template]]"
            raise DataError(DOING, found, expected)
        made.append(Line(*parts))
    if not made:
        raise DataError(DOING, f"no lines in {path}", "at least one")
    if len({line.bad is None for line in made}) > 1:
        found = f"{path}: some lines have an other answer and some none"
        raise DataError(DOING, found, "all lines alike")
    return made


def check_writer(kit: Kit) -> Tokenizer:
    """The tokenizer of a model that goes on with texts; others are refused."""
    if kit.tokenizer is None or kit.model.decoder is None or kit.model.encoder is not None:
        raise UsageError(DOING, "a model that does not go on with texts", "a language model")
    return kit.tokenizer


class Pair(NamedTuple):
    """A line as a model reads it."""

    clean: AskedText
    corrupt: AskedText
    good: str
    bad: str | None


def read_line(kit: Kit, line: Line, number: int) -> Pair:
    """By the kind of model."""
    begun, good, bad = "", line.good, line.bad
    if kit.model.config.target is not None:
        words, others = line.good.split(), (line.bad or line.good).split()
        most = min(len(words), len(others)) - 1
        same = next((n for n in range(most) if words[n] != others[n]), most)
        begun, good = " ".join(words[:same]), " ".join(words[same:])
        bad = None if line.bad is None else " ".join(others[same:])
    doing = f"{DOING}, pair {number}"
    clean, corrupt = (read_asked(kit, text, doing, begun) for text in line[:2])
    if len(clean.ids) == len(corrupt.ids) and clean.gap != corrupt.gap:
        raise DataError(doing, f"gaps at different tokens: {line.clean!r}", "one place for both")
    return Pair(clean, corrupt, good, bad)


def make_pairs(kit: Kit, lines: Sequence[Line], note: Callable[[str], None]) -> Pairs:
    """Lines as batches on the model's device; a pair must have as many tokens on either side."""
    asked = [read_line(kit, line, number) for number, line in enumerate(lines, 1)]
    tokenizer, cleans = kit.text_tokenizer, [pair.clean for pair in asked]
    clean, corrupt = [x.ids for x in cleans], [pair.corrupt.ids for pair in asked]
    check_lengths(tokenizer, clean, corrupt)
    said: dict[str, None] = {}  # each note once
    good = [find_token(tokenizer, x.clean.before, x.good, said.setdefault) for x in asked]
    bad = [
        find_token(tokenizer, x.clean.before, x.bad, said.setdefault)
        for x in asked
        if x.bad is not None  # of all lines or of none
    ]
    for text in list(said)[:SHOWN]:
        note(text)
    if len(said) > SHOWN:
        note(f"and {len(said) - SHOWN} more answers of several tokens")
    gaps = [x.gap for x in cleans if x.gap is not None]
    goal = Goal(
        torch.tensor(good),
        torch.tensor(bad) if bad else None,
        torch.tensor(gaps) if gaps else None,
        "logit" if bad else "logprob",
    )
    written = [x.written for x in cleans if x.written is not None] or None
    kinds = [
        (line.template, len(x.ids), len(x.written or ()))
        for line, x in zip(lines, cleans, strict=True)
    ]
    numbers = {kind: n for n, kind in enumerate(dict.fromkeys(kinds))}
    templates = torch.tensor([numbers[kind] for kind in kinds])
    return Pairs(kit.batch(clean, written), kit.batch(corrupt, written), goal, templates)


def check_lengths(
    tokenizer: Tokenizer, clean: Sequence[list[int]], corrupt: Sequence[list[int]]
) -> None:
    """Refuse pairs of unequal length, their tokens shown side by side."""
    wrong = [n for n, (a, b) in enumerate(zip(clean, corrupt, strict=True)) if len(a) != len(b)]
    if not wrong:
        return
    told = []
    for n in wrong[:SHOWN]:
        rows = (" | ".join(tokenizer.pieces(ids)) for ids in (clean[n], corrupt[n]))
        told.append(
            f"pair {n + 1}: {len(clean[n])} and {len(corrupt[n])} tokens\n    "
            + "\n    ".join(rows)
        )
    more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    found = f"{len(wrong)} pairs of unequal length\n  " + "\n  ".join(told) + more
    raise DataError(DOING, found, "as many tokens in a prompt as in its corrupted twin")
