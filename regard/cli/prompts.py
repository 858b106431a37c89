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

from regard.cli.answers import find_token
from regard.cli.fill import encode_gaps
from regard.cli.lengths import check_length
from regard.data.files import read_lines
from regard.decode.prompt import prompt_ids
from regard.errors import DataError, UsageError
from regard.interop.side import start_id
from regard.kit import Kit
from regard.look.goal import Goal
from regard.look.patching import Pairs
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


class Asked(NamedTuple):
    """A line as a model reads it."""

    clean: list[int]
    corrupt: list[int]
    before: str
    """What the answer follows."""
    good: str
    bad: str | None
    gap: int | None = None
    """The column of a masked language model's gap."""


def read_line(kit: Kit, line: Line) -> Asked:
    """By the kind of model."""
    tokenizer = kit.tokenizer
    if tokenizer is None or kit.model.config.head.take == "first":
        raise UsageError(DOING, "a model that predicts no words", "one that does")
    if kit.model.encoder is None:
        clean, corrupt = (prompt_ids(tokenizer, text) for text in line[:2])
        return Asked(clean, corrupt, line.clean, line.good, line.bad)
    if kit.model.decoder is not None:
        clean, corrupt = (tokenizer.encode(text) for text in line[:2])
        good, bad = line.good.split(), (line.bad or line.good).split()
        most = min(len(good), len(bad)) - 1
        same = next((n for n in range(most) if good[n] != bad[n]), most)
        other = None if line.bad is None else " ".join(bad[same:])
        return Asked(clean, corrupt, " ".join(good[:same]), " ".join(good[same:]), other)
    mask = tokenizer.specials.get("mask")
    if mask is None:
        raise UsageError(DOING, "an encoder that predicts no words", "a masked language model")
    clean, corrupt = (encode_gaps(tokenizer, text, mask, DOING) for text in line[:2])
    gap = clean.index(mask)
    if len(clean) == len(corrupt) and corrupt.index(mask) != gap:
        raise DataError(DOING, f"gaps at different tokens: {line.clean!r}", "one place for both")
    before = tokenizer.decode(clean[:gap])
    return Asked(clean, corrupt, before, line.good, line.bad, gap)


def make_pairs(kit: Kit, lines: Sequence[Line], note: Callable[[str], None]) -> Pairs:
    """Lines as batches on the model's device; a pair must have as many tokens on either side."""
    asked, tokenizer = [read_line(kit, line) for line in lines], kit.tokenizer
    assert tokenizer is not None
    clean, corrupt = [x.clean for x in asked], [x.corrupt for x in asked]
    longest = max(range(len(lines)), key=lambda n: len(clean[n]))
    check_length(kit, clean[longest], f"{DOING}, pair {longest + 1}", lines[longest].clean)
    check_lengths(tokenizer, clean, corrupt)
    said: dict[str, None] = {}  # each note once
    good = [find_token(tokenizer, x.before, x.good, said.setdefault) for x in asked]
    bad = [
        find_token(tokenizer, x.before, x.bad, said.setdefault)
        for x in asked
        if x.bad is not None  # of all lines or of none
    ]
    for text in list(said)[:SHOWN]:
        note(text)
    if len(said) > SHOWN:
        note(f"and {len(said) - SHOWN} more answers of several tokens")
    gaps = [x.gap for x in asked if x.gap is not None]
    goal = Goal(
        torch.tensor(good),
        torch.tensor(bad) if bad else None,
        torch.tensor(gaps) if gaps else None,
        "logit" if bad else "logprob",
    )
    written = None
    if kit.model.config.target is not None:
        start = start_id(kit.files, kit.config)
        begun = [tokenizer.encode(x.before, special=False, side="target") for x in asked]
        written = [[start, *ids] for ids in begun]
    sizes = [(len(x.clean), 0 if written is None else len(written[n])) for n, x in enumerate(asked)]
    kinds = [(line.template, size) for line, size in zip(lines, sizes, strict=True)]
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
