"""Arguments of the verbs that write, fill, score and evaluate. No torch here: help is quick."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from regard.cli.extract_flags import add_out
from regard.cli.options import MOST, add_device, positive

LINES = "none: one per line of stdin"
FOLDER = "a folder that `regard.load` opens"


def number(text: str) -> float:
    """A number; its range is checked where it is used, which names the limit."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return found


def warmth(text: str) -> float:
    """A number, or inf."""
    return math.inf if text.strip().lower() == "inf" else number(text)


def whole(text: str) -> int:
    """A whole number of either sign."""
    try:
        found = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if abs(found) > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range: at most {MOST:,}")
    return found


def add_search(parser: argparse.ArgumentParser, beams: int | None, note: str) -> None:
    """Beam width and strict mode."""
    parser.add_argument("--beams", type=whole, default=beams, metavar="B", help=note)
    text = "the same bits whatever is in the batch; slower"
    parser.add_argument("--strict", action="store_true", help=text)


def add_full(parser: argparse.ArgumentParser) -> None:
    """Whether a shortlist in the folder counts."""
    text = "score all words at each step, also where the folder has a shortlist"
    parser.add_argument("--no-shortlist", action="store_true", help=text)


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where to run, and how exactly."""
    add_device(parser)
    choices = ("auto", "fp32", "bf16", "int8")
    text = "of the matrix products; less is faster (auto: int8 for weights stored so, else float32)"
    parser.add_argument("--precision", choices=choices, default="auto", help=text)
    edit = "change what passes a tap: *.9.attn.z=zero,head=3; mean; patch,file=F; "
    edit += "add,file=F,minus=F,scale=X: F is one vector or a folder of `regard extract`, whose "
    edit += "mean counts; resample,file=F,seed=N: rows of it, drawn; repeatable"
    parser.add_argument("--edit", action="append", default=[], metavar="TAP=KIND,…", help=edit)


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard generate`."""
    parser.add_argument("path", metavar="FOLDER", help=FOLDER)
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help=f"what to go on from; {LINES}")
    most = "new tokens at most (64)"
    parser.add_argument("--max-new", type=whole, default=64, metavar="N", help=most)
    parser.add_argument("--greedy", action="store_true", help="the likeliest token each time")
    for name, kind, text in (
        ("--temperature", warmth, "draw; below 1 sharper, above 1 flatter, 0 greedy, inf uniform"),
        ("--top-k", whole, "draw from this many likeliest tokens"),
        ("--top-p", number, "draw from the likeliest tokens that reach this probability"),
        ("--min-p", number, "draw from tokens at least this share as likely as the best"),
        ("--typical", number, "draw from tokens of typical surprise that reach this probability"),
        ("--repetition", number, "draw; scores of tokens that occurred are divided by this"),
        ("--frequency", number, "draw; subtract this from a score for each time it occurred"),
        ("--presence", number, "draw; subtract this from the score of tokens that occurred"),
        ("--seed", int, "of the draws (0); the same seed gives the same text"),
    ):
        parser.add_argument(name, type=kind, metavar="X", help=text)
    add_search(parser, None, "beam search of this width instead")
    every = "exhaustive scores every sequence of --max-new tokens: for tiny vocabularies"
    parser.add_argument("--search", choices=("exhaustive",), help=every)
    stop = "end before this text; may be given several times"
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help=stop)
    capture = "write what passes these taps meanwhile to --out, a row for each token read"
    parser.add_argument(
        "--capture", nargs="+", action="extend", default=[], metavar="TAP", help=capture
    )
    add_out(parser, required=False)
    add_place(parser)


def add_shortlist(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard shortlist`."""
    parser.add_argument("path", metavar="FOLDER", help="a translator's, where the list is written")
    pairs = "sentence pairs: source TAB target, compressed or not; folders; or two files"
    parser.add_argument("files", metavar="PAIRS", nargs="+", help=pairs)
    for name, number, text in (
        ("--best", 20, "translations of each source word, at most (20)"),
        ("--always", 4000, "frequent words that every source has (4000)"),
        ("--pairs", 200_000, "pairs that are learnt from, evenly spaced (200000)"),
    ):
        parser.add_argument(name, type=positive, default=number, metavar="N", help=text)


def add_fill(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard fill`."""
    parser.add_argument("path", metavar="FOLDER", help="a masked language model")
    parser.add_argument("text", metavar="TEXT", nargs="?", help=f"text with <mask> in it; {LINES}")
    parser.add_argument("--top", type=whole, default=5, metavar="K", help="words for each gap (5)")
    parser.add_argument("--seed", type=whole, help="accepted as everywhere; nothing is drawn")
    add_place(parser)


def add_score(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard score`."""
    parser.add_argument("path", metavar="FOLDER", help=FOLDER)
    text = f"a text; source TAB target for an encoder-decoder; {LINES}"
    parser.add_argument("text", metavar="TEXT", nargs="?", help=text)
    parser.add_argument("--seed", type=whole, help="accepted as everywhere; nothing is drawn")
    add_place(parser)


Row = tuple[str, str, Callable[[argparse.ArgumentParser], None], str, str, str]

WRITING: dict[str, Row] = {
    "generate": (
        "regard.cli.generate",
        "go on from a prompt: greedily, by drawing or by beam search",
        add_generate,
        'regard generate folder "Once upon a time"',
        'regard generate folder "Dear" --temperature 0.8 --top-p 0.95 --seed 7',
        "regard generate folder --max-new 20 --greedy --json < prompts.txt",
    ),
    "shortlist": (
        "regard.cli.shortlist",
        "list the words that translations need: a CPU then scores a few thousand, not all",
        add_shortlist,
        "regard shortlist folder train.tsv",
        "regard shortlist folder train.tsv.xz more.tsv --always 2000",
        "regard shortlist folder train.fr train.en --best 50 --pairs 500000 --json",
    ),
    "fill": (
        "regard.cli.fill",
        "the likeliest words for a gap in a text",
        add_fill,
        'regard fill folder "Paris is the <mask> of France"',
        'regard fill folder "Paris is the <mask> of France" --top 10',
        "regard fill folder --json < lines.txt",
    ),
    "score": (
        "regard.cli.score",
        "log-probability of each token of a text",
        add_score,
        'regard score folder "The cat sat on the mat."',
        "regard score folder --json < lines.txt",
        "regard score translator < pairs.tsv",
    ),
}
"""Where each verb lives, what it does, its arguments and three examples: the fields of a Verb."""
