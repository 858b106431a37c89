"""Prompts with corrupted twins, read from a file or made, as a batch of pairs.

A line is `clean TAB corrupted TAB answer` and, where it is compared with one, `TAB other answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from regard.cli.answers import find_token
from regard.cli.lengths import check_length
from regard.data.files import read_lines
from regard.decode.prompt import prompt_ids
from regard.errors import DataError, UsageError
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


def read_prompts(path: str) -> list[Line]:
    """The pairs of a file; wrong lines are named."""
    made = []
    for number, text in enumerate(read_lines([path]), 1):
        if not text.strip():
            continue
        parts = text.split("\t")
        if len(parts) not in (3, 4) or not all(part.strip() for part in parts):
            found = f"{path}, line {number}: {len(parts)} columns, or an empty one"
            raise DataError(DOING, found, "clean TAB corrupted TAB answer [TAB other answer]")
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


def make_pairs(kit: Kit, lines: Sequence[Line], note: Callable[[str], None]) -> Pairs:
    """Lines as batches on the model's device; a pair must have as many tokens on either side."""
    tokenizer = check_writer(kit)
    clean = [prompt_ids(tokenizer, line.clean) for line in lines]
    corrupt = [prompt_ids(tokenizer, line.corrupt) for line in lines]
    longest = max(range(len(lines)), key=lambda n: len(clean[n]))
    check_length(kit, clean[longest], f"{DOING}, pair {longest + 1}", lines[longest].clean)
    check_lengths(tokenizer, clean, corrupt)
    said: dict[str, None] = {}  # each note once
    good = [find_token(tokenizer, x.clean, x.good, said.setdefault) for x in lines]
    bad = None
    if lines[0].bad is not None:
        bad = torch.tensor(
            [find_token(tokenizer, x.clean, x.bad or "", said.setdefault) for x in lines]
        )
    for text in list(said)[:SHOWN]:
        note(text)
    if len(said) > SHOWN:
        note(f"and {len(said) - SHOWN} more answers of several tokens")
    goal = Goal(torch.tensor(good), bad, kind="logit" if bad is not None else "logprob")
    return Pairs(kit.batch(clean), kit.batch(corrupt), goal)


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
