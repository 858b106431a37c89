"""Arguments of `regard look`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import positive
from regard.cli.write_flags import FOLDER, add_place

LONGEST = 5000  # tokens of either side, unless the command says otherwise


def add_view(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard look`."""
    model = f"{FOLDER}, or the name of one in the box (fr-en); one called heads or lens: ./heads"
    parser.add_argument("path", metavar="MODEL", help=model)
    text = (
        "what the model reads, and what an encoder-decoder has written so far (its translation); "
    )
    text += "none: all of stdin"
    parser.add_argument("texts", metavar="TEXT", nargs="*", help=text)
    out = "where the page goes (regard-look.html)"
    parser.add_argument("--out", metavar="PAGE", default="regard-look.html", help=out)
    png = "a picture too: of all heads, or of --head (extra plot)"
    parser.add_argument("--png", metavar="FILE", help=png)
    head = "block.head, such as 5.3, to list and to draw (the mean of all)"
    parser.add_argument("--head", metavar="L.H", help=head)
    stacks = ("encoder", "decoder", "cross")
    stack = "which attention of an encoder-decoder to list and to draw (cross)"
    parser.add_argument("--stack", choices=stacks, help=stack)
    effects = "run the text without each head too (yes, where that takes a few minutes at most)"
    parser.add_argument("--effects", action=argparse.BooleanOptionalAction, help=effects)
    most = f"tokens of either side at most ({LONGEST})"
    parser.add_argument("--max-tokens", type=positive, default=LONGEST, metavar="N", help=most)
    parser.add_argument("--seed", type=int, help="accepted as everywhere; nothing is drawn")
    add_place(parser)


VIEW = {
    "look": (
        "regard.cli.view",
        "where the heads of a model look in a text, and what each does: a page and a table",
        add_view,
        "regard look fr-en \"L'animal n'a pas traversé la rue, il était trop fatigué.\"",
        'regard look folder "When Mary and John went to the store, John gave a drink to"',
        'regard look folder "The cat sat." --head 5.3 --png head.png --out look.html',
    ),
}
"""The verb: its module, what it does, its arguments, three examples."""
