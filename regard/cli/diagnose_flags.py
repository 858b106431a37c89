"""Arguments of `regard diagnose`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import positive

KINDS = ("mlp", "rnn", "lstm", "gru", "transformer")


def add_diagnose(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard diagnose`."""
    parser.add_argument("what", metavar="gradients", choices=("gradients",), help="what to look at")
    trained = "trained language models (none: fresh ones of each kind)"
    parser.add_argument("folders", metavar="FOLDER", nargs="*", help=trained)
    parser.add_argument("--text", metavar="FILE", help="what trained models read")
    kinds = f"of fresh models ({' '.join(KINDS)})"
    parser.add_argument("--kinds", nargs="+", choices=KINDS, metavar="KIND", help=kinds)
    for name, usual, text in (
        ("--length", 64, "tokens before the loss (64)"),
        ("--rows", 8, "texts that the mean goes over (8)"),
        ("--dim", 64, "width of fresh models (64)"),
        ("--depth", 1, "layers of fresh models (1)"),
    ):
        parser.add_argument(name, type=positive, default=usual, metavar="N", help=text)
    parser.add_argument("--seed", type=int, default=0, help="of fresh weights and tokens (0)")
    drawn = "draw the curves into this PNG (needs the plot extra)"
    parser.add_argument("--picture", metavar="FILE", help=drawn)


DIAGNOSE = {
    "diagnose": (
        "regard.cli.diagnose",
        "how far back the gradient of a loss reaches in MLP, RNN, LSTM, GRU and Transformer",
        add_diagnose,
        "regard diagnose gradients --picture gradients.png",
        "regard diagnose gradients --kinds rnn lstm --length 200 --json",
        "regard diagnose gradients lstm/final gpt/final --text test.txt",
    ),
}
