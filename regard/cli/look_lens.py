"""`regard look lens`: what each layer would say, and which parts wrote the answer."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.cli.answers import find_token
from regard.cli.fill import encode_gaps, mask_id
from regard.cli.lengths import check_length
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.cli.texts import check_finite
from regard.decode.prompt import prompt_ids
from regard.errors import UsageError
from regard.interop.side import start_id
from regard.kit import Kit
from regard.look.goal import Goal
from regard.look.lens import Attribution, direct_attribution, last_stack, logit_lens, standing
from regard.model.batch import Batch
from regard.tokens.tokenizer import Side

DOING = "looking through the logit lens"


class Question(NamedTuple):
    """What a model is asked."""

    batch: Batch
    column: int
    """That predicts the token."""
    before: str
    """Text that the token follows."""
    side: Side


def run(args: argparse.Namespace, show: Show) -> int:
    """Follow one token through the layers."""
    kit = open_kit(args.path, args.device, None)
    last_stack(kit.model, DOING)  # says so where there is none
    asked = ask(kit, args.text, args.path)
    scores = logit_lens(kit.board, asked.batch, torch.tensor([[asked.column]]))[:, 0, 0].float()
    check_finite(DOING, [float(scores[-1].sum())])
    assert kit.tokenizer is not None
    scores = scores[:, : kit.tokenizer.size]  # a table of embeddings may be longer
    likeliest = int(scores[-1].argmax())
    words = [
        None
        if word is None
        else find_token(kit.tokenizer, asked.before, word, show.note, asked.side)
        for word in (args.target, args.against)
    ]
    target, other = likeliest if words[0] is None else words[0], words[1]
    found, why = attribute(kit, asked, target, other)
    if show.as_json:
        show.result(as_data(kit, args, scores, (target, other), found, why))
        return 0
    print_layers(kit, args.text, scores, target, show)
    if found is None:
        show.note(f"no contributions: {why}")
    else:
        print_parts(kit, found, (target, other), args.top, show)
    return 0


def ask(kit: Kit, text: str, path: str) -> Question:
    """The text as the model reads it, and the column that predicts what is missing."""
    model, tokenizer = kit.model, kit.tokenizer
    assert tokenizer is not None
    if model.config.head.take == "first" or model.head.out is None:
        raise UsageError(DOING, "a model that predicts no tokens", "a language model")
    if model.target is not None:
        source, _, begun = text.partition("\t")
        ids = check_length(kit, tokenizer.encode(source), DOING, source)
        after = tokenizer.encode(begun, special=False, side="target") if begun else []
        written = [start_id(kit.files, kit.config), *after]
        kit.check_room(len(written))
        return Question(kit.batch([ids], [written]), len(written) - 1, begun, "target")
    if model.decoder is None:
        mask = mask_id(kit, path)
        ids = check_length(kit, encode_gaps(tokenizer, text, mask, DOING), DOING, text)
        at = ids.index(mask)
        return Question(kit.batch([ids]), at, tokenizer.decode(ids[:at]), "source")
    ids = check_length(kit, prompt_ids(tokenizer, text), DOING, text)
    return Question(kit.batch([ids]), len(ids) - 1, text, "source")


def attribute(
    kit: Kit, asked: Question, target: int, other: int | None
) -> tuple[Attribution | None, str]:
    """The logit taken apart, or why it cannot be."""
    bad = None if other is None else torch.tensor([other])
    goal = Goal(torch.tensor([target]), bad, torch.tensor([asked.column]))
    try:
        return direct_attribution(kit.board, asked.batch, goal), ""
    except UsageError as error:
        return None, error.found


def piece(kit: Kit, id: int) -> str:
    """A token's spelling."""
    assert kit.tokenizer is not None
    return kit.tokenizer.pieces([id])[0]


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
