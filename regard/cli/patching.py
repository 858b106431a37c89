"""`regard patch`: what each head, MLP or position does, by putting it into another run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from regard.cli.measured import check_outputs
from regard.cli.opening import open_kit
from regard.cli.prompts import Line, check_writer, make_pairs, read_prompts
from regard.cli.show import Show
from regard.errors import DataError, UsageError
from regard.files import write_whole
from regard.kit import Kit
from regard.look.edits import zero
from regard.look.hooks import HookedModel
from regard.look.ioi_task import FRAMES, make_prompts
from regard.look.patching import (
    Effects,
    Pairs,
    Site,
    attribute_sites,
    head_sites,
    mlp_sites,
    patch_paths,
    patch_sites,
)
from regard.look.picture import draw_map, png
from regard.look.tap_names import find_taps

DOING = "patching activations"


def run(args: argparse.Namespace, show: Show) -> int:
    """Patch every place alone, and say which matter."""
    check_outputs(png=args.png)
    kit = open_kit(args.path, args.device, None)
    pairs = open_pairs(args, kit, show)
    sites = find_sites(args.over, kit.hooked, pairs)
    with show.progress("patching") as progress:
        progress(f"{len(sites)} places, {len(pairs.clean.ids)} pairs")
        found = patched(args, kit.hooked, pairs, sites)
    made = as_data(args, sites, found)
    if args.png:
        write_whole(Path(args.png), png(draw_map(*grid(sites, found.mean), args.over)))
    if show.as_json:
        show.result(made)
        return 0
    show.line(told(args, found))
    order = found.mean.abs().argsort(descending=True)[: args.top].tolist()
    rows = [(str(sites[n]), f"{float(found.mean[n]):+.3f}", spread(found.effect[n])) for n in order]
    show.table("share of the difference", ("place", "mean", "standard error"), rows)
    if args.png:
        show.line(f"picture: {args.png}")
    return 0


def open_pairs(args: argparse.Namespace, kit: Kit, show: Show) -> Pairs:
    """The prompts of a file, or of a task."""
    if (args.pairs is None) == (args.task is None):
        raise UsageError(DOING, "PAIRS and --task, or neither", "one of them")
    if args.pairs is not None:
        return make_pairs(kit, read_prompts(args.pairs), show.note)
    return make_pairs(kit, ioi_lines(kit, args.count, args.seed, show), show.note)


def ioi_lines(kit: Kit, count: int, seed: int, show: Show) -> list[Line]:
    """Prompts about indirect objects whose names are single tokens here."""
    tokenizer, dropped = check_writer(kit), list[str]()

    def usable(word: str) -> bool:
        single = len(tokenizer.encode(f" {word}", special=False)) == 1
        dropped.extend([] if single else [word])
        return single

    prompts = make_prompts(count, seed, usable)
    if not prompts:
        found = f"{len(dropped)} names, places and things that are no single tokens here"
        raise DataError("making prompts", found, "5 names, a place and a thing of one token each")
    if dropped:
        show.note(f"{len(dropped)} words are several tokens here and left out: {' '.join(dropped)}")
    return [Line(p.clean, p.corrupt, p.io, p.s, FRAMES[p.frame]) for p in prompts]


def find_sites(over: str, hooked: HookedModel, pairs: Pairs) -> list[Site]:
    """What is to be patched."""
    if over != "stream":
        found = head_sites(hooked) if over == "heads" else mlp_sites(hooked)
        return found or refuse(over)
    clean = pairs.clean
    if any(mask is not None and not bool(mask.all()) for mask in (clean.mask, clean.source_mask)):
        raise DataError(DOING, "prompts of different lengths", "one length, for --over stream")
    streams = [
        tap
        for tap in hooked.taps
        if tap.endswith((".resid_pre", ".state")) and ".back." not in tap  # which reads backwards
    ]
    return [
        Site(tap, None, n)
        for tap in streams or refuse(over)
        for n in range((clean.inputs if tap.startswith("encoder.") else clean.ids).shape[1])
    ]


def refuse(over: str) -> NoReturn:
    """A model may have no such parts."""
    fix = "--over stream patches the states of a recurrent model"
    raise UsageError(DOING, f"a model without {over}", "one that has them", fix)


def patched(
    args: argparse.Namespace, hooked: HookedModel, pairs: Pairs, sites: Sequence[Site]
) -> Effects:
    """By the way that was asked for."""
    if args.to:
        if args.over != "heads" or args.fast:
            raise UsageError(DOING, "--to with --over or --fast", "paths from heads, exactly")
        return patch_paths(hooked, pairs, sites, receivers(args.to, hooked))
    if args.fast:
        return attribute_sites(hooked, pairs, sites)
    return patch_sites(hooked, pairs, sites, "noise" if args.noise else "denoise")


def receivers(given: Sequence[str], hooked: HookedModel) -> list[Site]:
    """`end`, or taps with their heads."""
    if "end" in given:
        if len(given) > 1:
            found = f"--to {' '.join(given)}"
            raise UsageError(DOING, found, "`end` alone, or taps alone", "run it once for each")
        return []
    made = []
    for text in given:
        pattern, _, head = text.partition(":")
        if head and not head.isdecimal():
            raise UsageError(DOING, f"head {head!r} in {text!r}", "TAP:HEAD, such as *.9.attn.q:3")
        for tap in find_taps(pattern, hooked.taps):
            made.append(Site(tap, int(head) if head else None))
            if head:
                hooked.place({tap: zero(head=int(head))})  # says which heads there are
    return made


def told(args: argparse.Namespace, found: Effects) -> str:
    """What was done, in a sentence."""
    clean, corrupt = float(found.clean.mean()), float(found.corrupt.mean())
    if args.to:
        way = f"corrupted values of each head, to {' '.join(args.to)} alone, in clean prompts"
    elif args.noise or args.fast:
        way = "corrupted values in clean prompts" + (", to first order" if args.fast else "")
    else:
        way = "clean values in corrupted prompts"
    return f"goal {clean:.4f} clean, {corrupt:.4f} corrupted, {len(found.clean)} pairs; {way}"


def spread(values: Tensor) -> str:
    """Standard error of a mean."""
    return "–" if len(values) < 2 else f"{float(values.std()) / len(values) ** 0.5:.3f}"


def as_data(args: argparse.Namespace, sites: Sequence[Site], found: Effects) -> dict[str, Any]:
    """The object of `--json`."""
    return {
        "pairs": len(found.clean),
        "clean": float(found.clean.mean()),
        "corrupted": float(found.corrupt.mean()),
        "way": "paths" if args.to else "first order" if args.fast else "patching",
        "direction": "noise" if args.noise or args.fast or args.to else "denoise",
        "effects": [
            {"tap": site.tap, "head": site.head, "position": site.position, "effect": effect}
            for site, effect in zip(sites, found.mean.tolist(), strict=True)
        ],
    }


def grid(sites: Sequence[Site], values: Tensor) -> tuple[list[list[float]], list[str], list[str]]:
    """Values by tap (rows) and head or position (columns), with the names of both."""
    taps = list(dict.fromkeys(site.tap for site in sites))
    columns = [site.head if site.head is not None else site.position or 0 for site in sites]
    across = sorted(set(columns))
    made = torch.zeros(len(taps), len(across))
    for site, column, value in zip(sites, columns, values.tolist(), strict=True):
        made[taps.index(site.tap), across.index(column)] = value
    return made.tolist(), taps, [str(n) for n in across]
