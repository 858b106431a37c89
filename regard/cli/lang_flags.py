"""Arguments of `regard lang` and its actions. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_action, add_common, natural, positive

ACTIONS = {
    "make": (
        "draw words of a language, each of a length as likely as any other, and non-members",
        "regard lang make anbn --length 20 --count 5",
        "regard lang make dyck-2 -n 2-40 --count 1000 --negatives 1000 --out dyck.txt",
        "regard lang make grammar.txt -n 1-12 --seed 7 --json",
    ),
    "test": (
        "say of each line whether it is in a language, and where it goes wrong",
        "regard lang test anbncn lines.txt",
        "regard lang test grammar.txt lines.txt --json",
        'regard lang test ".* leeuw .* olifant .*" lines.txt',
    ),
    "draw": (
        "the smallest automaton of a regular language: its states, an expression, DOT or a PNG",
        'regard lang draw "(a|b)*abb"',
        "regard lang draw parity --out parity.png",
        'regard lang draw "~(.* leeuw .*)" --words --out no-lion.dot',
    ),
    "list": (
        "the languages by name, and the tasks of `regard lang learn`, length generalisation",
        "regard lang list",
        "regard lang list --json",
        "regard lang list | grep context-sensitive",
    ),
}
"""What each action does, and three examples."""

WHAT = "a name of `regard lang list`, the file of a grammar, or a regular expression"


def lengths(text: str) -> tuple[int, int]:
    """A length, or two with a dash between: 20 or 2-40."""
    low, dash, high = text.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a length nor a range such as 2-40")
    ends = int(low), int(high) if dash else int(low)
    if ends[0] > ends[1] or ends[1] > 2000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range that goes up, to 2000 at most")
    return ends


def add_lang(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard lang`."""
    choices = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (summary, *examples) in ACTIONS.items():
        sub = add_action(choices, name, summary, examples)
        if name != "list":
            sub.add_argument("language", metavar="LANGUAGE", help=WHAT)
            words = "an expression is over words (as it is when it has blanks)"
            sub.add_argument("--words", action="store_true", default=None, help=words)
        if name == "make":
            add_make(sub)
        elif name == "test":
            text = "one word of the language a line, ε the empty one; -: stdin"
            sub.add_argument("file", metavar="FILE", help=text)
            sub.add_argument("--top", type=natural, default=40, metavar="N", help="rows shown (40)")
        elif name == "draw":
            sub.add_argument("--out", metavar="FILE", help="write .dot or .png instead of DOT here")
            sub.add_argument("--dead", action="store_true", help="show the dead state too")
        add_common(sub)


def add_make(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard lang make`."""
    text = "symbols of a word, or a range of lengths (1-20)"
    parser.add_argument("--length", "-n", type=lengths, default=(1, 20), metavar="N", help=text)
    parser.add_argument("--count", type=positive, default=10, metavar="N", help="members (10)")
    strangers = "non-members too: half near misses, half random (0)"
    parser.add_argument("--negatives", type=natural, default=0, metavar="N", help=strangers)
    out = "write members here, non-members beside it (x.txt and x-not.txt)"
    parser.add_argument("--out", metavar="FILE", help=out)
    parser.add_argument("--seed", type=int, default=0, help="of the draws (0)")


LANG = {
    "lang": (
        "regard.cli.lang",
        "formal languages: words drawn and tested, automata drawn, from a^n to Swiss German",
        add_lang,
        "regard lang make anbn --length 20 --count 5",
        "regard lang test anbncn lines.txt",
        "regard lang list",
    ),
}
"""The verb: where it lives, what it does, its arguments and three examples."""
