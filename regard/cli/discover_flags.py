"""Arguments of `regard discover`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, amount, natural, positive


def add_discover(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard discover`."""
    files = "lines that keep the rule, then lines that break it; without NEG random lines do"
    parser.add_argument("files", metavar="POS [NEG]", nargs="*", help=files)
    parser.add_argument("--animals", action="store_true", help="the 26 lines of eight animals")
    blocks = "POS has two blocks with an empty line between them: positives, negatives"
    parser.add_argument("--blocks", action="store_true", help=blocks)
    parser.add_argument("--chars", action="store_true", help="tokens are characters, not words")
    column = "the sequences are in this column of .csv, .tsv or .jsonl"
    parser.add_argument("--column", metavar="NAME", help=column)
    labels = "yes and no are in this column of POS; there is no NEG"
    parser.add_argument("--label-column", metavar="NAME", help=labels)
    answer = "an answered probe, as 'a b a : yes'; may be given often"
    parser.add_argument("--label", metavar="'SEQ : yes|no'", action="append", help=answer)
    seconds = "time for the search, after which the best so far is printed (60)"
    parser.add_argument("--seconds", type=amount, default=60.0, metavar="S", help=seconds)
    parser.add_argument("--top", type=positive, default=20, metavar="N", help="rules listed (20)")
    parser.add_argument("--dot", metavar="FILE", help="write the best rule's automaton; - prints")
    parser.add_argument("--png", metavar="FILE", help="draw the best rule's automaton")
    parser.add_argument("--checker", metavar="FILE", help="write a Python program that checks it")
    parser.add_argument("--seed", type=natural, default=0, help="of shuffles and searches (0)")
    neural = "train a small Transformer too, and open it: automaton, edits, heads (a minute)"
    parser.add_argument("--neural", action="store_true", help=neural)
    add_device(parser)


DISCOVER = {
    "discover": (
        "regard.cli.discover",
        "the rule behind labelled sequences, its exceptions, its rivals, and what would decide",
        add_discover,
        "regard discover pos.txt neg.txt --checker rule.py",
        "regard discover --animals --label 'leeuw olifant leeuw olifant : no'",
        "regard discover table.csv --column text --label-column ok --chars --json",
    ),
}
"""As WRITING in write_flags.py."""
