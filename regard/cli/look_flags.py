"""Arguments of `regard look heads` and `regard look lens`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, positive

FOLDER = "a folder that `regard.load` opens"
SORTS = ("induction", "previous", "duplicate", "norm", "entropy")


def add_heads(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard look heads`."""
    parser.add_argument("path", metavar="MODEL", help=FOLDER)
    given = parser.add_mutually_exclusive_group()
    text = "measure entropy, distance and norm on this (else on random repeats, as the rest)"
    given.add_argument("--text", metavar="TEXT", help=text)
    given.add_argument("--file", metavar="FILE", help="the same on each line of a file")
    length = "tokens of the random half that is repeated (100, or what the model reads)"
    parser.add_argument("--length", type=positive, metavar="N", help=length)
    batch = "rows of random repeats, and lines of --file run together (4)"
    parser.add_argument("--batch", type=positive, default=4, metavar="N", help=batch)
    order = "largest first, of entropy smallest first (as the model has them)"
    parser.add_argument("--sort", choices=SORTS, help=order)
    parser.add_argument("--top", type=positive, metavar="N", help="show so many heads (all)")
    parser.add_argument("--seed", type=int, default=0, help="of the random tokens (0)")
    add_device(parser)


def add_lens(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard look lens`."""
    parser.add_argument("path", metavar="MODEL", help=FOLDER)
    text = "what comes before; with <mask> for BERT; source TAB beginning for an encoder-decoder"
    parser.add_argument("text", metavar="TEXT", help=text)
    target = "the token to follow through the layers (the one the model finds likeliest)"
    parser.add_argument("--target", metavar="WORD", help=target)
    against = "take the difference of its logit and this one's apart"
    parser.add_argument("--against", metavar="WORD", help=against)
    neurons = "each neuron for itself, instead of a block's MLP as one"
    parser.add_argument("--neurons", action="store_true", help=neurons)
    top = "show so many contributions (20)"
    parser.add_argument("--top", type=positive, default=20, metavar="N", help=top)
    parser.add_argument("--seed", type=int, help="accepted as everywhere; nothing is drawn")
    add_device(parser)


LOOK = {
    "look heads": (
        "regard.cli.look_heads",
        "what each attention head does: induction, previous token, entropy, norm",
        add_heads,
        "regard look heads folder --sort induction --top 10",
        "regard look heads folder --file test.txt --sort entropy",
        "regard look heads folder --length 50 --batch 8 --seed 7 --json",
    ),
    "look lens": (
        "regard.cli.look_lens",
        "what each layer would say, and which heads and MLPs wrote the answer",
        add_lens,
        'regard look lens folder "When Mary and John went to the bar, John gave a drink to"',
        'regard look lens folder "Mary and John … a drink to" --target Mary --against John',
        'regard look lens bert "Paris is the <mask> of France." --target capital --json',
    ),
}
