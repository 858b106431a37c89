"""Arguments of `regard ladder`. No torch here: help is quick."""

from __future__ import annotations

import argparse
import math

from regard.cli.options import add_device, amount, positive


def number(text: str) -> float:
    """A number; its range is checked where it is used, which names the limit."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def add_ladder(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard ladder`."""
    file = "sentence pairs (.tsv: source TAB target) or a text, compressed or not"
    parser.add_argument("file", metavar="FILE", help=file)
    for name, text in (("--valid", "validation"), ("--test", "test")):
        held = f"{text} data of the same form (a part of FILE's end is held out)"
        parser.add_argument(name, metavar="FILE", help=held)
    budget = "budget of all rungs together; those that are trained share what is left (20)"
    parser.add_argument("--minutes", type=number, default=20.0, metavar="M", help=budget)
    steps = "train so many steps instead, however long they take: the same figures every time"
    parser.add_argument("--steps", type=positive, metavar="N", help=steps)
    rungs = "some of them, with commas: bayes,logreg,ibm1,fixed,additive,transformer; of a text "
    rungs += "1-gram,2-gram,3-gram,5-gram,classes,word2vec,mlp,rnn,lstm,gru,transformer (all)"
    parser.add_argument("--rungs", metavar="A,B", help=rungs)
    out = "keep the split, the models and ladder.png in this new or empty folder"
    parser.add_argument("--out", metavar="FOLDER", help=out)
    tokens = "of a text: spaced (default), words, chars, bpe; of pairs: pieces"
    parser.add_argument("--tokens", metavar="KIND", help=tokens)
    parser.add_argument("--vocab", type=positive, metavar="N", help="tokens at most (pairs: 4000)")
    least = "of words: how often one must stand in the text to be known (2)"
    parser.add_argument("--min-count", type=positive, default=2, metavar="N", help=least)
    width = "width of the trained rungs (128)"
    parser.add_argument("--dim", type=positive, default=128, metavar="N", help=width)
    power = "of a busy core, for the energy, instead of the machine's counters (10 W without any)"
    parser.add_argument("--watts", type=amount, metavar="W", help=power)
    parser.add_argument("--seed", type=int, default=0, help="of weights and order (0)")
    add_device(parser)


LADDER = {
    "ladder": (
        "regard.cli.ladder",
        "train every rung from counting words to the Transformer on one split, in one table",
        add_ladder,
        "regard ladder pairs.tsv --minutes 20 --out ladder",
        "regard ladder tale.txt --tokens chars --rungs 5-gram,lstm,transformer",
        "regard ladder train.tsv.xz --valid dev.tsv --test test.tsv --json",
    ),
}
"""The verb: its module, what it does, its arguments, three examples."""
