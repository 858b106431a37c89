"""`regard extract`: the activations of a corpus, written to a folder in shards."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from regard.cli.lines import line_groups
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.errors import DataError
from regard.look.activation_store import check_free
from regard.look.extraction import TOGETHER, extract_corpus


def run(args: argparse.Namespace, show: Show) -> int:
    """Read a corpus and write what passes the taps."""
    check_free(Path(args.out), args.force)
    kit = open_kit(args.path, args.device, "fp32", edits=args.edit)

    def texts() -> Iterator[str | DataError]:
        for group in line_groups(None, args.files or ["-"], TOGETHER):
            for line in group:
                fault = line.fault
                yield DataError("reading a line", fault, "UTF-8 text") if fault else line.text

    extraction = extract_corpus(
        kit,
        args.path,
        texts(),
        args.tap,
        Path(args.out),
        position=args.position,
        head=args.head,
        precision=args.precision,
        shard_mb=args.shard_mb,
        batch_tokens=args.batch_tokens,
        force=args.force,
        edits=args.edit,
    )
    if show.as_json:
        show.result(extraction.to_dict())
    else:
        show.line(str(extraction))
    return extraction.exit_code
