"""`regard sample`: texts drawn by n-grams of every order, side by side (Shannon 1948)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.show import Show
from regard.errors import UsageError
from regard.history.ngram_model import NgramModel

BACKED_OFF = "·"
"""Before a word after which fewer words were looked at: nothing was seen after all of them."""


def run(args: argparse.Namespace, show: Show) -> int:
    """Draw a text for each order, from the same random numbers."""
    model = NgramModel.open(Path(args.path))
    orders = args.orders or range(1, model.tables.order + 1)
    for order in orders:
        if not 1 <= order <= model.tables.order:
            raise UsageError("drawing texts", f"order {order}", f"1 to {model.tables.order}")
    rows = [draw(model, order, args) for order in orders]
    if show.as_json:
        show.result({"samples": rows})
    else:
        marked = f"{BACKED_OFF} fewer words looked at: nothing was seen after all of them"
        table = [(str(row["order"]), row["marked"]) for row in rows]
        show.table(marked, ("order", "text"), table, left=2)
    return 0


def draw(model: NgramModel, order: int, args: argparse.Namespace) -> dict[str, Any]:
    """A text of one order; a sentence that ends is followed by another."""
    tables, tokenizer = model.tables, model.tokenizer
    begin = [] if tables.start is None else [tables.start]
    end = tokenizer.specials.get("eos") if model.lines else None
    prompt = tokenizer.encode(args.prompt, special=False) if args.prompt else []
    context, made, marks = [*begin, *prompt], list[int](), list[bool]()
    chances = np.random.default_rng(args.seed).random(args.words)
    for chance in chances:
        word, used, _ = tables.draw(context, order, float(chance))
        made.append(word)
        marks.append(used < min(order, len(context) + 1))
        context = begin if word == end else [*context, word][-tables.order :]
    pieces = [tokenizer.decode([id]) if id != end else "." for id in made]
    blank = " " if model.lines else ""
    shown = (BACKED_OFF * mark + piece for piece, mark in zip(pieces, marks, strict=True))
    ids = [id for id in made if id != end]
    return {
        "order": order,
        "text": tokenizer.decode(ids),
        "marked": blank.join(shown),
        "tokens": made,
        "backed_off": sum(marks),
    }
