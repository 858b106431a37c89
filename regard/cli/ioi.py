"""`regard eval ioi`: does a model know who is meant, and which heads find out (Wang 2022)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.cli.opening import open_kit
from regard.cli.patching import ioi_lines
from regard.cli.prompts import make_pairs
from regard.cli.show import Show
from regard.errors import DataError
from regard.look.capture import Board
from regard.look.goal import last_columns
from regard.look.ioi import Roles, find_roles
from regard.look.patching import Pairs, patch_paths
from regard.look.sites import Site, head_sites

LOOKS = 0.2  # attention from which a head is said to look there
MOVERS = 4  # whose queries S-inhibition is looked for in
Z95 = 1.96


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure, and look for the heads."""
    kit = open_kit(args.path, args.device, None)
    lines = ioi_lines(kit, args.count, args.seed, show)
    pairs = make_pairs(kit, lines, show.note)
    made = measure(kit.board, pairs)
    classes: dict[str, list[Found]] = {}
    if args.heads:
        with show.progress("looking for heads") as progress:
            classes = find_classes(kit.board, pairs, args.top, progress)
    if show.as_json:
        told = {name: [head._asdict() for head in heads] for name, heads in classes.items()}
        show.result(made | ({"heads": told} if args.heads else {}))
        return 0
    show.fields(f"{args.path}, {len(lines)} prompts", {k: f"{v:.4f}" for k, v in made.items()})
    rows = [
        (name if n == 0 else "", f"{head.block}.{head.head}", f"{head.looks:.2f}", effect(head))
        for name, heads in classes.items()
        for n, head in enumerate(heads)
    ]
    if args.heads:
        show.table("heads by what they do", ("class", "head", "looks there", "effect"), rows, 2)
        show.line(f"  listed: attention of {LOOKS} or more to the token that the class looks at")
    return 0


@torch.no_grad()
def measure(board: Board, pairs: Pairs) -> dict[str, float]:
    """Logit difference, its interval, share of prompts with IO above S, probability of IO."""
    logits, _ = board.run(pairs.clean)
    gap = pairs.goal(logits, pairs.clean)
    rows = torch.arange(len(logits), device=logits.device)
    last = logits[rows, last_columns(pairs.clean).to(logits.device)]
    chance = last.softmax(-1)[rows, pairs.goal.good.to(logits.device)]
    other, _ = board.run(pairs.corrupt)
    return {
        "logit_difference": float(gap.mean()),
        "plus_minus": Z95 * float(gap.std()) / len(gap) ** 0.5 if len(gap) > 1 else 0.0,
        "io_above_s": float((gap > 0).float().mean()),
        "probability_io": float(chance.mean()),
        "corrupted_difference": float(pairs.goal(other, pairs.corrupt).mean()),
    }


class Found(NamedTuple):
    """A head of a class."""

    block: int
    head: int
    looks: float
    """Mean attention from the column where the class acts to the one it looks at."""
    effect: float | None
    """Share of the logit difference that goes its way, where that was measured."""


def effect(head: Found) -> str:
    """The effect for people."""
    return "–" if head.effect is None else f"{head.effect:+.3f}"


def find_classes(
    board: Board, pairs: Pairs, top: int, progress: Callable[[str], None]
) -> dict[str, list[Found]]:
    """Heads by the scheme of Wang et al.: what they look at, and what they do for the answer."""
    sites = head_sites(board)
    progress("attention between the names")
    looks = attention(board, pairs, sites)
    progress(f"direct paths of {len(sites)} heads")
    direct = patch_paths(board, pairs, sites).mean

    def listed(role: str, score: Tensor | None, largest: bool = True) -> list[Found]:
        order = (looks[role] if score is None else score).argsort(descending=largest)
        made = []
        for n in order.tolist():
            wrong = score is not None and (float(score[n]) <= 0) == largest
            if float(looks[role][n]) >= LOOKS and not wrong:
                value = None if score is None else float(score[n])
                block = int(sites[n].tap.split(".")[2])
                made.append(Found(block, sites[n].head or 0, float(looks[role][n]), value))
        return made[:top]

    movers = listed("end → io", direct)
    queries = [Site(f"decoder.blocks.{m.block}.attn.q", m.head) for m in movers[:MOVERS]]
    progress("paths to the queries of the name movers")
    steering = patch_paths(board, pairs, sites, queries).mean if queries else None
    return {
        "name movers": movers,
        "negative name movers": listed("end → io", direct, largest=False),
        "S-inhibition": [] if steering is None else listed("end → s2", steering),
        "induction": listed("s2 → s1+1", None),
        "duplicate token": listed("s2 → s1", None),
        "previous token": listed("s1+1 → s1", None),
    }


@torch.no_grad()
def attention(board: Board, pairs: Pairs, sites: Sequence[Site]) -> dict[str, Tensor]:
    """Mean weight (N,) of each head from one role's column to another's."""
    goal, batch = pairs.goal, pairs.clean
    assert goal.bad is not None
    roles = []
    for row, io, s in zip(batch.ids, goal.good.tolist(), goal.bad.tolist(), strict=True):
        found = find_roles(row.tolist(), io, s)
        if found is None:
            raise DataError("finding the names", "a prompt whose names are not single tokens")
        roles.append(found)
    ends = last_columns(batch).tolist()
    where: dict[str, Callable[[Roles, int], tuple[int, int]]] = {
        "end → io": lambda r, end: (end, r.io),
        "end → s2": lambda r, end: (end, r.s2),
        "s2 → s1+1": lambda r, end: (r.s2, r.s1 + 1),
        "s2 → s1": lambda r, end: (r.s2, r.s1),
        "s1+1 → s1": lambda r, end: (r.s1 + 1, r.s1),
    }
    taps = list(dict.fromkeys(site.tap.removesuffix(".z") + ".pattern" for site in sites))
    weights: dict[str, list[Tensor]] = {name: [] for name in where}
    for tap in taps:  # one at a time: all patterns of a large model are much
        _, seen = board.run(batch, tap)
        for name, columns in where.items():
            places = [columns(role, end) for role, end in zip(roles, ends, strict=True)]
            picked = [seen[tap][n, :, a, b] for n, (a, b) in enumerate(places)]  # (H,) each
            weights[name].append(torch.stack(picked).mean(0).cpu())
    return {name: torch.cat(parts) for name, parts in weights.items()}
