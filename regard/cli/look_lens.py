"""`regard look lens`: what each layer would say, and which parts wrote the answer."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from regard.cli.answers import find_token, read_asked
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.cli.texts import check_finite
from regard.errors import UsageError
from regard.kit import Kit
from regard.look.lens import Attribution, direct_attribution, last_stack, logit_lens, standing
from regard.look.patching import Goal
from regard.model.batch import Batch

DOING = "looking through the logit lens"


def run(args: argparse.Namespace, show: Show) -> int:
    """Follow one token through the layers."""
    kit = open_kit(args.path, args.device, None)
    last_stack(kit.model, DOING)  # says so where there is none
    source, _, begun = args.text.partition("\t" if kit.model.target is not None else "\0")
    asked = read_asked(kit, source, DOING, begun)
    batch = kit.batch([asked.ids], None if asked.written is None else [asked.written])
    column = batch.ids.shape[1] - 1 if asked.gap is None else asked.gap
    scores = logit_lens(kit.board, batch, torch.tensor([[column]]))[:, 0, 0].float()
    check_finite(DOING, [float(scores[-1].sum())])
    scores = scores[:, : kit.text_tokenizer.size]  # a table of embeddings may be longer
    likeliest = int(scores[-1].argmax())
    words = [
        None if word is None else find_token(kit.text_tokenizer, asked.before, word, show.note)
        for word in (args.target, args.against)
    ]
    target, other = likeliest if words[0] is None else words[0], words[1]
    bad = None if other is None else torch.tensor([other])
    goal = Goal(torch.tensor([target]), bad, torch.tensor([column]))
    found, why = attribute(kit, batch, goal, args.neurons)
    if show.as_json:
        show.result(as_data(kit, args, scores, (target, other), found, why))
        return 0
    print_layers(kit, args.text, scores, target, show)
    if found is None:
        show.note(f"no contributions: {why}")
    else:
        print_parts(kit, found, (target, other), args.top, show)
    return 0


def attribute(kit: Kit, batch: Batch, goal: Goal, neurons: bool) -> tuple[Attribution | None, str]:
    """The logit taken apart, or why it cannot be."""
    try:
        return direct_attribution(kit.board, batch, goal, neurons), ""
    except UsageError as error:
        return None, error.found


def piece(kit: Kit, id: int) -> str:
    """A token's spelling."""
    return kit.text_tokenizer.pieces([id])[0]


def layer_names(scores: Tensor) -> list[str]:
    """Rows of the lens."""
    return ["embedding", *(f"block {n}" for n in range(len(scores) - 1))]


def print_layers(kit: Kit, text: str, scores: Tensor, target: int, show: Show) -> None:
    """What each layer would say."""
    found, best = standing(scores, torch.tensor(target)), scores.softmax(-1).max(-1)
    rows = []
    for n, name in enumerate(layer_names(scores)):
        top = piece(kit, int(best.indices[n])), f"{float(best.values[n]):.4f}"
        mine = f"{float(found.probability[n]):.4f}", f"{int(found.rank[n]):,}"
        rows.append((name, *top, *mine))
    own = piece(kit, target)
    show.table(text, ("layer", "likeliest", "p", f"p({own})", f"rank of {own}"), rows, left=2)


def print_parts(
    kit: Kit, found: Attribution, asked: tuple[int, int | None], top: int, show: Show
) -> None:
    """Who wrote the logit, largest first."""
    values = found.values[:, 0].tolist()
    order = sorted(range(len(values)), key=lambda n: -abs(values[n]))
    rows = [(found.parts[n].name, f"{values[n]:+.4f}") for n in order[:top]]
    rest = order[top:]
    if rest:
        rows.append((f"{len(rest)} smaller ones", f"{sum(values[n] for n in rest):+.4f}"))
    goal = f"logit of {piece(kit, asked[0])}"
    goal += "" if asked[1] is None else f" less that of {piece(kit, asked[1])}"
    show.table(f"{goal}: who wrote it", ("part", "contribution"), rows)
    error = float(found.error[0])
    show.line(f"  sum {sum(values):.4f}, model {float(found.goal[0]):.4f}, error {error:.1e}")


def as_data(
    kit: Kit,
    args: argparse.Namespace,
    scores: Tensor,
    asked: tuple[int, int | None],
    found: Attribution | None,
    why: str,
) -> dict[str, Any]:
    """The object of `--json`."""
    stands, best = standing(scores, torch.tensor(asked[0])), scores.softmax(-1).max(-1)
    layers = [
        {
            "layer": name,
            "likeliest": piece(kit, int(best.indices[n])),
            "likeliest_probability": float(best.values[n]),
            "probability": float(stands.probability[n]),
            "rank": int(stands.rank[n]),
        }
        for n, name in enumerate(layer_names(scores))
    ]
    target, other = (None if id is None else {"id": id, "piece": piece(kit, id)} for id in asked)
    made = {"model": args.path, "text": args.text, "target": target, "against": other}
    made |= {"layers": layers}
    if found is None:
        return made | {"parts": None, "why": why}
    parts = [
        asdict(part) | {"name": part.name, "value": value}
        for part, value in zip(found.parts, found.values[:, 0].tolist(), strict=True)
    ]
    total = {"goal": float(found.goal[0]), "error": float(found.error[0])}
    return made | {"parts": parts, **total}
