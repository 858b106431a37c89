"""Arguments of the verbs about words: vectors, analogies, clusters. No numpy: help is quick."""

from __future__ import annotations

import argparse

VECTORS = "a folder of `regard train w2v`, or a file of word2vec's, text or binary"


def add_matrix(parser: argparse.ArgumentParser) -> None:
    """Which vectors of a model."""
    text = "vectors of words as inputs, or as what is predicted (in)"
    parser.add_argument("--matrix", choices=("in", "out"), default="in", help=text)


def add_eval_analogies(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard eval analogies`."""
    parser.add_argument("path", metavar="M", help=VECTORS)
    text = "lines `a b c d` in sections `: name` (without it a small set of our own)"
    parser.add_argument("questions", metavar="QUESTIONS", nargs="?", help=text)
    parser.add_argument("--mul", action="store_true", help="3CosMul instead of 3CosAdd")
    add_matrix(parser)


def add_eval_similarity(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard eval similarity`."""
    parser.add_argument("path", metavar="M", help=VECTORS)
    text = "lines of two words and how alike people find them, such as WordSim-353"
    parser.add_argument("pairs", metavar="PAIRS", nargs="?", help=text)
    add_matrix(parser)


HOME = "regard.cli.words"
WORDS = {
    "eval analogies": (
        HOME,
        "share of analogies that vectors of words solve",
        add_eval_analogies,
        "regard eval analogies vectors",
        "regard eval analogies vectors questions-words.txt",
        "regard eval analogies vectors.bin questions-words.txt --mul --json",
    ),
    "eval similarity": (
        HOME,
        "how far vectors of words agree with people on what is alike",
        add_eval_similarity,
        "regard eval similarity vectors wordsim353.tsv",
        "regard eval similarity vectors.bin simlex999.txt --json",
        "regard eval similarity vectors wordsim353.tsv --matrix out",
    ),
}
"""As WRITING in write_flags.py; a verb of two words has a parser of its own."""
