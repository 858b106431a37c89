"""`regard eval ioi`: does a model know who is meant, and which heads find out (Wang 2022)."""

from __future__ import annotations

import argparse
import math
from typing import Any

import torch

from regard.cli.measured import check_outputs, write_measured
from regard.cli.opening import open_kit
from regard.cli.patching import ioi_lines
from regard.cli.prompts import make_pairs
from regard.cli.show import Show
from regard.look.head_scores import repeats_for
from regard.look.hooks import HookedModel
from regard.look.ioi_task import MIN_ATTENTION, MIN_EFFECT, RULES, ClassHead, HeadClasses
from regard.look.patching import Pairs, last_columns

Z95 = 1.96


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure, and look for the heads."""
    check_outputs(args.out)
    kit = open_kit(args.path, args.device, None)
    lines = ioi_lines(kit, args.count, args.seed, show)
    pairs = make_pairs(kit, lines, show.note)
    figures = measure(kit.hooked, pairs)
    made: dict[str, Any] = {"prompts": len(lines), **figures}
    classes: dict[str, list[ClassHead]] = {}
    if args.heads:
        repeats = repeats_for(kit.model, kit.tokenizer, seed=args.seed)
        classes = HeadClasses(kit.hooked, pairs, repeats).find()
        made["thresholds"] = {"looks": MIN_ATTENTION, "effect": MIN_EFFECT}
        made["rules"] = RULES
        made["heads"] = {name: [h.to_dict() for h in heads] for name, heads in classes.items()}
    if args.out:
        write_measured(args, kit, made)
    if show.as_json:
        show.result(made)
        return 0
    show.fields(f"{args.path}, {len(lines)} prompts", {k: f"{v:.4f}" for k, v in figures.items()})
    if args.heads:
        print_classes(classes, args.top, show)
    return 0


def print_classes(classes: dict[str, list[ClassHead]], top: int, show: Show) -> None:
    """The heads for people; a class without any is named too."""

    def shown(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    rows = []
    for name in classes:
        rows += [
            (
                name if n == 0 else "",
                f"{head.block}.{head.head}",
                f"{head.looks:.2f}",
                shown(head.effect, "+.3f"),
                shown(head.score, ".2f"),
            )
            for n, head in enumerate(classes[name][:top])
        ] or [(name, "none", "–", "–", "–")]
    columns = ("class", "head", "looks there", "effect", "repeats")
    show.table("heads by what they do", columns, rows, 2)
    show.line(
        f"  listed: attention of {MIN_ATTENTION} or more to where the class looks, and an effect, "
        f"where one is measured, of {100 * MIN_EFFECT:g} % or more of the difference"
    )


@torch.no_grad()
def measure(hooked: HookedModel, pairs: Pairs) -> dict[str, float]:
    """Logit difference, its interval, share of prompts with IO above S, probability of IO."""
    logits, _ = hooked.run(pairs.clean)
    gap = pairs.goal(logits, pairs.clean)
    rows = torch.arange(len(logits), device=logits.device)
    last = logits[rows, last_columns(pairs.clean).to(logits.device)]
    chance = last.softmax(-1)[rows, pairs.goal.good.to(logits.device)]
    other, _ = hooked.run(pairs.corrupt)
    return {
        "logit_difference": float(gap.mean()),
        "plus_minus": Z95 * float(gap.std()) / len(gap) ** 0.5 if len(gap) > 1 else math.nan,
        "io_above_s": float((gap > 0).float().mean()),
        "probability_io": float(chance.mean()),
        "corrupted_difference": float(pairs.goal(other, pairs.corrupt).mean()),
    }
