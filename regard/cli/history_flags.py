"""Arguments of the verbs for what came before attention. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import positive
from regard.cli.write_flags import number, whole

WAYS = ("kneser-ney", "witten-bell", "katz", "add")


def add_train_ngram(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train ngram`."""
    words = "text files or folders, compressed or not"
    parser.add_argument("files", metavar="FILE", nargs="*", help=words)
    parser.add_argument("--out", metavar="M", required=True, help="a new or empty folder")
    order = "words that a probability looks at, the predicted one counted (5)"
    parser.add_argument("--order", "-n", type=whole, default=5, metavar="N", help=order)
    way = "how unseen words get their share (kneser-ney: interpolated, modified)"
    parser.add_argument("--smoothing", choices=WAYS, default="kneser-ney", help=way)
    parser.add_argument("--k", type=number, default=1.0, help="of add: what each count gets (1)")
    prune = "leave out n-grams seen so often or less: of 1, 2, … words; the last holds on"
    parser.add_argument("--prune", type=whole, nargs="+", default=[], metavar="N", help=prune)
    tokens = "spaced (default), words, bpe, chars, graphemes, bytes; or a folder with a tokenizer"
    parser.add_argument("--tokens", default="spaced", metavar="KIND", help=tokens)
    parser.add_argument("--vocab", type=positive, metavar="N", help="tokens at most")
    least = "how often a word must stand in the texts to be known (1)"
    parser.add_argument("--min-count", type=positive, default=1, metavar="N", help=least)
    shape = parser.add_mutually_exclusive_group()
    text = "each line is a sentence with a beginning and an end (default: spaced and words)"
    shape.add_argument("--lines", action="store_true", default=None, help=text)
    shape.add_argument("--running", action="store_false", dest="lines", help="one running text")
    parser.add_argument("--valid", metavar="FILE", nargs="+", default=[], help="print perplexity")


def add_sample(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard sample`."""
    parser.add_argument("path", metavar="M", help="a folder of `regard train ngram`")
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="words to go on from")
    orders = "orders to show (1 to the model's)"
    parser.add_argument("--orders", type=whole, nargs="+", metavar="N", help=orders)
    parser.add_argument("--words", type=positive, default=40, metavar="N", help="of each text (40)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (0)")


HISTORY = {
    "train ngram": (
        "regard.cli.train_ngram",
        "count n-grams and smooth them: add-k, Katz, Witten–Bell, Kneser–Ney",
        add_train_ngram,
        (
            "regard train ngram train.txt --out m --order 5 --valid valid.txt",
            "regard train ngram tale.txt --out m --tokens chars --order 8",
            "regard train ngram train.txt --out m --smoothing katz --prune 0 0 1",
        ),
    ),
    "sample": (
        "regard.cli.sample",
        "texts drawn by n-grams of every order, side by side",
        add_sample,
        (
            "regard sample m",
            'regard sample m "the king of" --orders 1 2 3 --words 20',
            "regard sample m --seed 7 --json",
        ),
    ),
}
"""Each verb: its module, what it does, its arguments, three examples."""
