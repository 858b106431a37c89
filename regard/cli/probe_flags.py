"""Arguments of `regard eval winograd`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import positive
from regard.cli.write_flags import add_place, whole

MODEL = "a folder, .gguf or other checkpoint with a tokenizer"


def add_winograd(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard eval winograd`."""
    parser.add_argument("path", metavar="MODEL", help=f"{MODEL}, or n-grams")
    file = "WSC's .xml, XWinograd's .tsv, WinoGrande's .jsonl, or columns text a b answer [pair]"
    parser.add_argument("file", metavar="FILE", help=file)
    full = "score the whole text, not what follows the candidate alone"
    parser.add_argument("--full", action="store_true", help=full)
    only = "schemas of groups that begin so, such as fr, or 'en original'"
    parser.add_argument("--only", metavar="GROUP", help=only)
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N schemas (all)")
    parser.add_argument("--seed", type=whole, help="accepted as everywhere; nothing is drawn")
    add_place(parser)


PROBE = {
    "eval winograd": (
        "regard.cli.winograd",
        "which noun does the pronoun mean? Single schemas and pairs",
        add_winograd,
        "regard eval winograd folder wsc285.xml",
        "regard eval winograd model.gguf xwinograd.tsv --only fr -v",
        "regard eval winograd folder schemas.jsonl --full --json",
    ),
}
"""As WRITING in write_flags.py; a verb of two words has a parser of its own."""
