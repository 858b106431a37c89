"""Arguments of the verbs that train translators by counting. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.write_flags import number, whole


def add_pairs(parser: argparse.ArgumentParser) -> None:
    """What all of them read and write."""
    pairs = "sentence pairs: source TAB target, compressed or not; folders; or two files"
    parser.add_argument("files", metavar="PAIRS", nargs="*", help=pairs)
    parser.add_argument("--out", metavar="M", required=True, help="a new or empty folder")
    parser.add_argument("--seed", type=whole, help="accepted as everywhere; nothing is drawn")


def add_bayes(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train bayes`."""
    add_pairs(parser)
    k = "what each count gets, so that what was not seen is not ruled out (0.1)"
    parser.add_argument("--k", type=number, default=0.1, help=k)


def add_logreg(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train logreg`."""
    add_pairs(parser)
    parser.add_argument("--l2", type=number, default=1.0, metavar="X", help="pull to 0 (1)")
    best = "target words that each source word has weights for, at most (30)"
    parser.add_argument("--best", type=whole, default=30, metavar="N", help=best)
    steps = "steps of L-BFGS at most; fewer if the slope is 0 before (60)"
    parser.add_argument("--steps", type=whole, default=60, metavar="N", help=steps)


def add_ibm1(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train ibm1`."""
    add_pairs(parser)
    rounds = "of expectation and maximisation (10)"
    parser.add_argument("--rounds", type=whole, default=10, metavar="N", help=rounds)


COUNTING = {
    "train bayes": (
        "regard.cli.train_counting",
        "translate by naive Bayes: which words a bag of source words has",
        add_bayes,
        "regard train bayes pairs.tsv --out m",
        "regard train bayes train.fr train.en --out m --k 1",
        "regard train bayes pairs.tsv.xz --out m --json",
    ),
    "train logreg": (
        "regard.cli.train_counting",
        "the same by multinomial logistic regression",
        add_logreg,
        "regard train logreg pairs.tsv --out m",
        "regard train logreg pairs.tsv --out m --l2 0.1 --best 50",
        "regard train logreg pairs.tsv.xz --out m --steps 200 --json",
    ),
    "train ibm1": (
        "regard.cli.train_counting",
        "translate word by word: IBM model 1 finds which word is a translation of which",
        add_ibm1,
        "regard train ibm1 pairs.tsv --out m",
        "regard train ibm1 train.fr train.en --out m --rounds 20",
        "regard train ibm1 pairs.tsv.xz --out m --json",
    ),
}
"""Each verb: its module, what it does, its arguments, three examples."""
