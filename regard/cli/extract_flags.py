"""Arguments of `regard extract` and `regard embed`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, natural, positive


def position(text: str) -> str | int:
    """all, last, mean, or an index."""
    if text in ("all", "last", "mean"):
        return text
    try:
        return int(text)
    except ValueError:
        known = "all, last, mean or a whole number"
        raise argparse.ArgumentTypeError(f"{text!r} is none of {known}") from None


def add_out(parser: argparse.ArgumentParser, required: bool) -> None:
    """The folder that is written, and its form."""
    out = "a new or empty folder" + ("" if required else " for what --capture asks for")
    parser.add_argument("--out", required=required, metavar="DIR", help=out)
    force = "write over an extraction that is there"
    parser.add_argument("--force", action="store_true", help=force)


def add_extract(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard extract`."""
    parser.add_argument("path", metavar="MODEL", help="a folder that `regard.load` opens")
    files = "texts, one on each line, compressed or not (stdin); source TAB target for a decoder's "
    files += "taps in an encoder-decoder"
    parser.add_argument("files", metavar="FILE", nargs="*", help=files)
    tap = "names or patterns, as `regard info --taps` lists them"
    parser.add_argument(
        "--tap", nargs="+", action="extend", required=True, metavar="PATTERN", help=tap
    )
    add_out(parser, required=True)
    place = "which tokens have a row: all, the last, the one at an index, or one mean (all)"
    parser.add_argument(
        "--position", type=position, default="all", metavar="last|mean|all|N", help=place
    )
    head = "one head of attn.q, k, v or z (all, side by side)"
    parser.add_argument("--head", type=natural, metavar="N", help=head)
    stored = "of the numbers on the disk (fp32); the model runs in float32"
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help=stored)
    form = "of the shards (safetensors); arrow needs the extra arrow"
    parser.add_argument(
        "--format", choices=("safetensors", "arrow"), default="safetensors", help=form
    )
    shard = "megabytes of a shard; twice as many are held in memory (256)"
    parser.add_argument("--shard-mb", type=positive, default=256, metavar="N", help=shard)
    tokens = "tokens of a batch, padding counted (1024; 16384 on a GPU); changes no number"
    parser.add_argument("--batch-tokens", type=positive, metavar="N", help=tokens)
    add_running(parser)


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
    "extract": (
        "regard.cli.extract",
        "write the activations of a corpus to a folder, row by row",
        add_extract,
        "regard extract folder corpus.txt --tap '*.resid_post' --out acts",
        "regard extract folder --tap blocks.5.attn.z --head 3 --position last --out z < a.txt",
        "regard extract translator pairs.tsv --tap 'decoder.*.mlp.post' --out acts --json",
    ),
    "embed": (
        "regard.cli.embed",
        "a vector for each line; or what context makes of one word",
        add_embed,
        "regard embed folder river.txt money.txt --word bank",
        "regard embed folder river.txt money.txt --word bank --layer all --json",
        "regard embed folder sentences.txt --out vectors.npy",
    ),
}
