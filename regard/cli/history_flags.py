"""Arguments of the verbs for what came before attention. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, natural, positive
from regard.cli.write_flags import number, whole

WAYS = ("kneser-ney", "witten-bell", "jelinek-mercer", "katz", "add")
ALPHABETS = ("27", "26", "as-is")


def add_counted(parser: argparse.ArgumentParser) -> None:
    """What is counted: files, their tokens, and whether lines are sentences."""
    words = "text files or folders, compressed or not"
    parser.add_argument("files", metavar="FILE", nargs="*", help=words)
    parser.add_argument("--out", metavar="M", required=True, help="a new or empty folder")
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


def add_smoothed(parser: argparse.ArgumentParser, usual: int) -> None:
    """How long n-grams are, how they are smoothed and pruned."""
    add_counted(parser)
    order = f"words that a probability looks at, the predicted one counted ({usual})"
    parser.add_argument("--order", "-n", type=whole, default=usual, metavar="N", help=order)
    way = "how unseen words get their share (kneser-ney: interpolated, modified)"
    parser.add_argument("--smoothing", choices=WAYS, default="kneser-ney", help=way)
    parser.add_argument("--k", type=number, default=1.0, help="of add: what each count gets (1)")
    prune = "leave out n-grams seen so often or less: of 1, 2, … words; the last holds on"
    parser.add_argument("--prune", type=whole, nargs="+", default=[], metavar="N", help=prune)


def add_train_ngram(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train ngram`."""
    add_smoothed(parser, 5)
    parser.set_defaults(classes=0)


def add_train_classes(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train classes`."""
    add_smoothed(parser, 3)
    count = "classes of words, by Brown's way (100, or as many as there are words)"
    parser.add_argument("--classes", type=whole, metavar="K", help=count)


def add_train_bow(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train bow`: n-grams of order 1, so that order plays no part."""
    add_counted(parser)
    share = parser.add_mutually_exclusive_group()
    share.add_argument("--k", type=number, default=1.0, help="what each count gets (1)")
    plain = "unseen words are impossible: the same as --k 0"
    share.add_argument("--no-smoothing", action="store_const", dest="k", const=0.0, help=plain)
    parser.set_defaults(order=1, smoothing="add", prune=[], classes=0)


def add_sample(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard sample`."""
    parser.add_argument(
        "path", metavar="M", help="a folder of `regard train ngram`, `bow` or `classes`"
    )
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="words to go on from")
    orders = "orders to show (1 to the model's)"
    parser.add_argument("--orders", type=whole, nargs="+", metavar="N", help=orders)
    parser.add_argument("--words", type=positive, default=40, metavar="N", help="of each text (40)")
    parser.add_argument("--seed", type=natural, default=0, help="of the draws (0)")


def add_alphabet(parser: argparse.ArgumentParser, usual: str) -> None:
    """What counts as a letter."""
    text = f"27: a to z and the blank; 26: a to z; as-is: every character ({usual})"
    parser.add_argument("--alphabet", choices=ALPHABETS, help=text)


def add_entropy(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard entropy`."""
    parser.add_argument("file", metavar="FILE", help="a text, compressed or not")
    model = "a model folder or ARPA file that predicts the text too; its tokens may be any"
    parser.add_argument("--model", metavar="M", help=model)
    order = "up to F_N, and letters that the learning n-grams look at (6)"
    parser.add_argument("--order", "-n", type=whole, default=6, metavar="N", help=order)
    add_alphabet(parser, "27; with --model as-is")
    parser.add_argument("--letters", type=positive, metavar="N", help="of the file's beginning")
    parser.add_argument("--seed", type=whole, help="accepted as everywhere; nothing is drawn")
    add_device(parser)


def add_guess(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard guess`."""
    parser.add_argument("file", metavar="FILE", help="a text, compressed or not")
    parser.add_argument("--auto", action="store_true", help="only models play")
    model = "a model that plays too, whose tokens are characters; may be given several times"
    parser.add_argument("--model", action="append", default=[], metavar="M", help=model)
    orders = "n-grams that play, trained on the rest of the file (1 2 3 5 8)"
    parser.add_argument("--orders", type=whole, nargs="+", default=[1, 2, 3, 5, 8], help=orders)
    count = "letters to guess (50; with --auto 1000)"
    parser.add_argument("--letters", type=positive, metavar="N", help=count)
    add_alphabet(parser, "27")
    parser.add_argument("--seed", type=natural, default=0, help="of the place in the text (0)")
    add_device(parser)


HISTORY = {
    "train bow": (
        "regard.cli.train_ngram",
        "a bag of words: each has its probability, whatever stands around it",
        add_train_bow,
        "regard train bow train.txt --out m",
        "regard train bow train.txt --out m --k 0.1 --valid valid.txt",
        "regard train bow train.txt --out m --no-smoothing",
    ),
    "train ngram": (
        "regard.cli.train_ngram",
        "count n-grams and smooth them: add-k, Katz, Jelinek–Mercer, Witten–Bell, Kneser–Ney",
        add_train_ngram,
        "regard train ngram train.txt --out m --order 5 --valid valid.txt",
        "regard train ngram tale.txt --out m --tokens chars --order 8",
        "regard train ngram train.txt --out m --smoothing katz --prune 0 0 1",
    ),
    "train classes": (
        "regard.cli.train_ngram",
        "n-grams of classes of words: a class from those before it, then a word of the class",
        add_train_classes,
        "regard train classes train.txt --out m --classes 200 --valid valid.txt",
        "regard train classes train.txt --out m --order 2 --min-count 2",
        "regard train classes train.txt --out m --smoothing witten-bell --json",
    ),
    "sample": (
        "regard.cli.sample",
        "texts drawn by n-grams of every order, side by side",
        add_sample,
        "regard sample m",
        'regard sample m "the king of" --orders 1 2 3 --words 20',
        "regard sample m --seed 7 --json",
    ),
    "entropy": (
        "regard.cli.entropy",
        "bits per letter of a text: Shannon's F0 … FN, and what an arithmetic coder reaches",
        add_entropy,
        "regard entropy tale.txt",
        "regard entropy tale.txt --model m",
        "regard entropy tale.txt --order 8 --alphabet 26 --json",
    ),
    "guess": (
        "regard.cli.guess",
        "Shannon's game: guess a text letter by letter, beside the models",
        add_guess,
        "regard guess tale.txt",
        "regard guess tale.txt --auto --letters 2000",
        "regard guess tale.txt --auto --model m --json",
    ),
}
"""Each verb: its module, what it does, its arguments, three examples."""
