"""Arguments of the verbs about words: vectors, analogies, clusters. No numpy: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import natural, positive
from regard.cli.write_flags import number, whole

VECTORS = "a folder of `regard train w2v`, or a file of word2vec's, text or binary"


def add_matrix(parser: argparse.ArgumentParser) -> None:
    """Which vectors of a model."""
    text = "vectors of words as inputs, or as what is predicted (in)"
    parser.add_argument("--matrix", choices=("in", "out"), default="in", help=text)


def add_words(parser: argparse.ArgumentParser) -> None:
    """How texts become words."""
    cut = "words and marks apart, or what stands between blanks (words)"
    parser.add_argument("--tokens", choices=("words", "spaced"), default="words", help=cut)
    parser.add_argument("--lower", action="store_true", help="in lower case")
    rare = "rarer words are left out (5)"
    parser.add_argument("--min-count", type=positive, default=5, metavar="N", help=rare)


def add_w2v(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard train w2v`."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="texts, a sentence on each line")
    out = "a new or empty folder; or a file: .bin is word2vec's binary form, .txt or .vec its text"
    parser.add_argument("--out", required=True, metavar="M", help=out)
    mode = "a word from those around it, or those around it from a word (skipgram)"
    parser.add_argument("--mode", choices=("cbow", "skipgram"), default="skipgram", help=mode)
    for name, value, text in (
        ("--dim", 100, "numbers of a vector (100)"),
        ("--window", 5, "words on each side at most (5): a window of 11 words in all"),
        ("--negative", 5, "words of noise for each word that is predicted (5)"),
        ("--epochs", None, "times the text is read (5; small texts more often, at most 100)"),
        ("--seed", 0, "of all that is drawn (0)"),
        ("--workers", 2, "threads; the vectors are the same with any number (2)"),
    ):
        parser.add_argument(name, type=whole, default=value, metavar="N", help=text)
    thin = "words above this share of the text are thinned out (0.001); 0 keeps all"
    parser.add_argument("--subsample", type=number, default=1e-3, metavar="T", help=thin)
    rate = "learning rate at first (skipgram 0.025, cbow 0.05)"
    parser.add_argument("--lr", type=number, metavar="X", help=rate)
    add_words(parser)


def add_analogy(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard analogy`."""
    parser.add_argument("path", metavar="M", help=VECTORS)
    for name, text in (("a", "a is to b"), ("b", "as c"), ("c", "is to whom?")):
        parser.add_argument(name, metavar=name, help=text)
    parser.add_argument("--top", type=positive, default=10, metavar="K", help="answers (10)")
    parser.add_argument("--mul", action="store_true", help="3CosMul instead of 3CosAdd")
    add_matrix(parser)


def add_neighbours(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard neighbours`."""
    parser.add_argument("path", metavar="M", help=VECTORS)
    parser.add_argument("word", metavar="WORD", help="whose neighbours")
    parser.add_argument("--top", type=positive, default=10, metavar="K", help="neighbours (10)")
    add_matrix(parser)


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


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard cluster`."""
    both = "vectors, clustered by k-means; or a text, by Brown's way"
    parser.add_argument("path", metavar="M|FILE", help=both)
    parser.add_argument("--k", type=positive, required=True, metavar="N", help="clusters")
    brown = "cluster the words of a text by their neighbours (Brown 1992)"
    parser.add_argument("--brown", action="store_true", help=brown)
    file = "write all: bits or number TAB word, on each line"
    parser.add_argument("--out", metavar="FILE", help=file)
    parser.add_argument("--top", type=positive, default=10, metavar="K", help="words shown (10)")
    parser.add_argument("--seed", type=natural, default=0, help="of k-means (0)")
    add_words(parser)
    add_matrix(parser)


HOME = "regard.cli.words"
WORDS = {
    "train w2v": (
        HOME,
        "vectors of words from the words around them (word2vec)",
        add_w2v,
        "regard train w2v tale.txt --out vectors",
        "regard train w2v tale.txt --out vectors --mode cbow --window 5 --dim 300",
        "regard train w2v corpus.txt.xz more.txt --out vectors.bin --lower --seed 7",
    ),
    "analogy": (
        HOME,
        "man is to woman as king is to whom? By vectors of words",
        add_analogy,
        "regard analogy vectors man woman king",
        "regard analogy vectors.bin France Paris Italy --mul",
        "regard analogy vectors man woman king --top 3 --json",
    ),
    "neighbours": (
        HOME,
        "the words nearest to a word",
        add_neighbours,
        "regard neighbours vectors king",
        "regard neighbours vectors.bin king --top 20",
        "regard neighbours vectors king --matrix out --json",
    ),
    "cluster": (
        HOME,
        "words in classes: k-means of vectors, or Brown's clusters of a text",
        add_cluster,
        "regard cluster vectors --k 50",
        "regard cluster tale.txt --k 50 --brown --out classes.tsv",
        "regard cluster tale.txt --k 20 --min-count 2 --json",
    ),
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
