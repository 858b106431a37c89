"""`regard look heads`: what each attention head of a model does."""

from __future__ import annotations

import argparse

from regard.ambient import settings
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.data.files import read_lines
from regard.look.head_scores import measure_heads


def run(args: argparse.Namespace, show: Show) -> int:
    """Measure every head and show them."""
    kit = open_kit(args.path, args.device, None)
    texts = None if args.text is None else [args.text]
    with settings(seed=args.seed):
        scores = measure_heads(
            kit,
            args.path,
            read_lines(args.file) if args.file else texts,
            length=args.length,
            rows=args.batch,
            sort=args.sort,
            top=args.top,
            measured_on=args.text or args.file,
        )
    if show.as_json:
        show.result(scores.to_dict())
    else:
        show.line(str(scores))
    return 0
