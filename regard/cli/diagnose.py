"""`regard diagnose gradients`: how far back a loss reaches, model by model (#22)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.cli.diagnose_flags import KINDS
from regard.cli.measured import check_outputs
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.data.text_files import read_pieces
from regard.errors import DataError, UsageError
from regard.files import write_whole
from regard.kit import Kit
from regard.look.gradient_reach import gradient_by_lag
from regard.look.picture import draw_curves, png
from regard.model.model import Model
from regard.model.recurrent import model_class
from regard.train.shape import ShapeConfig

DOING = "diagnosing gradients"
VOCAB = 64  # tokens of fresh models


def run(args: argparse.Namespace, show: Show) -> int:
    """Follow the gradient back in each model."""
    if args.length < 2:
        raise UsageError(DOING, f"--length {args.length}", "2 or more")
    check_outputs(png=args.picture)
    curves: dict[str, list[float]] = {}
    with show.progress(DOING) as progress:
        for name, model, ids in trained(args) if args.folders else fresh(args):
            progress(name)
            curves[name] = gradient_by_lag(model, ids)
    if args.picture:
        labels = "steps before the loss", "gradient of the loss by the state"
        write_whole(Path(args.picture), png(draw_curves(curves, *labels)))
        show.note(f"picture: {args.picture}")
    if show.as_json:
        listed = [{"name": name, "gradient": found} for name, found in curves.items()]
        show.result({"length": args.length, "lags": list(range(1, args.length)), "models": listed})
        return 0
    show.table("gradient of the loss by the state so many steps before it", *rows(curves))
    return 0


def fresh(args: argparse.Namespace) -> Iterator[tuple[str, Model, Tensor]]:
    """New models of one size and the same random tokens for each."""
    generator = torch.Generator().manual_seed(args.seed)
    ids = torch.randint(VOCAB, (args.rows, args.length + 1), generator=generator)
    for kind in args.kinds or KINDS:
        family: Any = "llama" if kind == "transformer" else kind
        heads = next(n for n in (4, 2, 1) if args.dim % n == 0)
        shape = ShapeConfig(family, args.dim, args.depth, heads=heads).resolve("lm")
        config, _ = shape.build(VOCAB, args.length)
        yield kind, model_class(config).fresh(config, args.seed), ids


def trained(args: argparse.Namespace) -> Iterator[tuple[str, Model, Tensor]]:
    """Models of folders, each with the same places of a text in its own tokens."""
    if args.text is None or args.kinds is not None:
        found = "folders without --text" if args.text is None else "folders and --kinds"
        raise UsageError(DOING, found, "--text FILE for trained models, --kinds for fresh ones")
    for path in args.folders:
        kit = open_kit(path, "cpu", "auto")
        yield path, kit.model, read_rows(kit, args)


def read_rows(kit: Kit, args: argparse.Namespace) -> Tensor:
    """Ids (rows, length + 1) from the beginning of a text on."""
    tokenizer, wanted = kit.text_tokenizer, args.rows * (args.length + 1)
    every = (
        id for piece in read_pieces(args.text) for id in tokenizer.encode(piece, special=False)
    )
    ids = list(islice(every, wanted))
    if len(ids) < wanted:
        found = f"{len(ids):,} tokens in {args.text}"
        raise DataError(DOING, found, f"{wanted:,}", "a smaller --length or --rows")
    return torch.tensor(ids).view(args.rows, -1)


def rows(curves: Mapping[str, list[float]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of a table, at lags of 1, 2, 4, … and the last."""
    count = len(next(iter(curves.values())))
    lags = sorted({*(2**n for n in range(count.bit_length())), count})
    lines = [(str(lag), *(f"{curve[lag - 1]:.2e}" for curve in curves.values())) for lag in lags]
    return ("lag", *curves), lines
