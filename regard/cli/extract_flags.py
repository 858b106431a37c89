"""Arguments of `regard embed`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, positive


def add_out(parser: argparse.ArgumentParser, required: bool) -> None:
    """The folder that is written, and its form."""
    out = "a new or empty folder" + ("" if required else " for what --capture asks for")
    parser.add_argument("--out", required=required, metavar="DIR", help=out)
    force = "write over an extraction that is there"
    parser.add_argument("--force", action="store_true", help=force)


def add_running(parser: argparse.ArgumentParser) -> None:
    """How the model runs."""
    parser.add_argument("--seed", type=int, help="accepted as everywhere; nothing is drawn")
    edit = "change what passes a tap meanwhile, as `regard generate --edit`; repeatable"
    parser.add_argument("--edit", action="append", default=[], metavar="TAP=KIND,…", help=edit)
    add_device(parser)


def add_embed(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard embed`."""
    model = "a folder that `regard.load` opens; with --word vectors of words too"
    parser.add_argument("path", metavar="MODEL", help=model)
    files = "sentences, one on each line, compressed or not (stdin); with --word one file a sense"
    parser.add_argument("files", metavar="FILE", nargs="*", help=files)
    word = "its vector in each line, the mean of its tokens': cosines within and between files"
    parser.add_argument("--word", metavar="WORD", help=word)
    layer = "with --word: the stream after block N, or all (the last block's)"
    parser.add_argument("--layer", metavar="N|all", help=layer)
    top = "with --word: nearest words of the lines that are shown (6)"
    parser.add_argument("--top", type=positive, default=6, metavar="K", help=top)
    out = "without --word: write the vectors (rows, numbers) to FILE.npy or FILE.safetensors"
    parser.add_argument("--out", metavar="FILE", help=out)
    add_running(parser)


EXTRACT = {
    "embed": (
        "regard.cli.embed",
        "a vector for each line; or what context makes of one word",
        add_embed,
        "regard embed folder river.txt money.txt --word bank",
        "regard embed folder river.txt money.txt --word bank --layer all --json",
        "regard embed folder sentences.txt --out vectors.npy",
    ),
}
