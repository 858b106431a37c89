"""Arguments of `regard shortlist`. No torch here: help is quick."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from regard.cli.options import positive


def number(text: str) -> float:
    """A number; its range is checked where it is used, which names the limit."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def add_shortlist(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard shortlist`."""
    parser.add_argument("path", metavar="FOLDER", help="a translator's, where the list is written")
    pairs = "sentence pairs: source TAB target, compressed or not; folders; or two files"
    parser.add_argument("files", metavar="PAIRS", nargs="+", help=pairs)
    for name, number, text in (
        ("--best", 20, "translations of each source word, at most (20)"),
        ("--always", 4000, "frequent words that every source has (4000)"),
        ("--pairs", 200_000, "pairs that are learnt from, evenly spaced (200000)"),
    ):
        parser.add_argument(name, type=positive, default=number, metavar="N", help=text)


Row = tuple[str, str, Callable[[argparse.ArgumentParser], None], str, str, str]

WRITING: dict[str, Row] = {
    "shortlist": (
        "regard.cli.shortlist",
        "list the words that translations need: a CPU then scores a few thousand, not all",
        add_shortlist,
        "regard shortlist folder train.tsv",
        "regard shortlist folder train.tsv.xz more.tsv --always 2000",
        "regard shortlist folder train.fr train.en --best 50 --pairs 500000 --json",
    ),
}
"""Where each verb lives, what it does, its arguments and three examples: the fields of a Verb."""
