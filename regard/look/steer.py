"""Steering and masks: edits made from runs or by name. For `Board.editing` and `Kit.edit`.

A steering vector is the difference of means of two sets of prompts at a tap (Turner 2023; Rimsky
2023): `kit.edit({tap: add(4 * vector)})` around `generate` leans the texts that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from regard.errors import UsageError, nearest
from regard.look.capture import Board
from regard.look.edit import Edit, zero
from regard.look.extract import Choice, Position, choose_taps, kind_of, pick
from regard.look.patching import Site, head_sites
from regard.model.batch import Batch


@torch.no_grad()
def steering_vector(
    board: Board, toward: Batch, away: Batch, tap: str, position: Position = "last"
) -> Tensor:
    """Mean (D,) at a tap over the prompts of one batch, less that over the prompts of another.

    The last token of each prompt counts, one at an index, or the mean of all; "all" weighs every
    token of a batch alike. Heads stand side by side; `regard.add` puts them in their places.
    """
    if not isinstance(toward, Batch) or not isinstance(away, Batch):
        found = f"a {type(toward).__name__} and a {type(away).__name__}"
        raise UsageError("making a steering vector", found, "two batches: kit.batch(texts)")
    choice = choose_taps(board, tap, position)
    if len(choice.taps) != 1:
        found = f"{len(choice.taps)} taps are called {tap!r}"
        raise UsageError("making a steering vector", found, "one tap")
    return mean_at(board, toward, choice) - mean_at(board, away, choice)


def mean_at(board: Board, batch: Batch, choice: Choice) -> Tensor:
    """The mean (D,) over the rows of a batch."""
    kind = kind_of(board, choice)
    ids, mask = (batch.inputs, batch.source_mask) if kind.source else (batch.ids, batch.mask)
    if mask is not None and bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise UsageError("making a steering vector", "padding on the left", "padding on the right")
    _, seen = board.run(batch, choice.taps)
    count = [ids.shape[1]] * len(ids) if mask is None else mask.sum(1).tolist()
    rows = [range(int(n)) for n in count]
    (name,) = choice.taps
    x = pick(name, seen.get(name), rows, choice)
    if not len(x):
        raise UsageError("making a steering vector", "no prompt with a token there", "one or more")
    return x.mean(0)


def head_mask(
    board: Board, heads: str | Sequence[str], keep: bool = False
) -> dict[str, list[Edit]]:
    """Edits that switch heads off by name; with `keep`, all the others.

    A head is called by its tap and number, `decoder.blocks.9.attn.z.6`, or `decoder.9.attn.6`, and
    in a model of one stack `9.6`. `*` stands for anything.
    """
    sites, chosen = head_sites(board), set[Site]()
    if not sites:
        raise UsageError("masking heads", "a model without attention", "one with heads")
    names = {site: head_names(site, len(board.model.stacks) == 1) for site in sites}
    for pattern in [heads] if isinstance(heads, str) else heads:
        hits = {s for s in sites if any(fnmatchcase(name, pattern) for name in names[s])}
        if not hits:
            close = nearest(pattern, [n for each in names.values() for n in each])
            close = close or ", ".join(each[-1] for each in [*names.values()][:3])
            found = f"no head is called {pattern!r}"
            raise UsageError("masking heads", found, f"a name such as {close}")
        chosen |= hits
    off: dict[str, list[int]] = {}
    for site in sites:
        if (site in chosen) != keep and site.head is not None:
            off.setdefault(site.tap, []).append(site.head)
    return {tap: [zero(head=numbers)] for tap, numbers in off.items()}


def head_names(site: Site, alone: bool) -> list[str]:
    """What a head may be called; `alone`: there is one stack, so that layer and number will do."""
    stack, _, layer, kind, _ = site.tap.split(".")
    names = [f"{site.tap}.{site.head}", f"{stack}.{layer}.{kind}.{site.head}"]
    return [*names, f"{layer}.{site.head}"] if alone else names
