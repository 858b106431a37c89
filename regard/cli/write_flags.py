"""Arguments of the verbs that write, fill, score and evaluate. No torch here: help is quick."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from regard.cli.extract_flags import add_out
from regard.cli.options import MOST, add_action, add_common, add_device, positive

LINES = "none: one per line of stdin"
FOLDER = "a folder that `regard.load` opens"
EVALUATIONS = {
    "translate": (
        "BLEU and chrF of translations, with sacrebleu's signatures",
        "regard eval translate folder test.tsv --train train.tsv",
        "regard eval translate folder test.tsv --beams 1 --json",
        "regard eval translate folder test.tsv --train train.tsv --allow-overlap",
    ),
}
"""What each evaluation measures, and three examples."""


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


def add_translate(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard translate`."""
    parser.add_argument(
        "texts", metavar="TEXT", nargs="*", help=f"sentences or paragraphs; {LINES}"
    )
    place = "read lines from here; - is stdin"
    parser.add_argument("--file", action="append", metavar="FILE", help=place)
    model = f"{FOLDER}, or the name of one in the box (fr-en)"
    parser.add_argument("--model", metavar="FOLDER", default="fr-en", help=model)
    why = "where each word came from, how sure it is, how rare its source; writes a page too"
    parser.add_argument("--explain", action="store_true", help=why)
    page = "where --explain writes it (regard-translate.html), a .png beside it with matplotlib"
    parser.add_argument("--page", metavar="FILE", help=page)
    add_search(parser, 4, "width of the beam (4)")
    several = "so many translations of each, at most 200, TABs between; words too with --json (1)"
    parser.add_argument("--alternatives", type=whole, default=1, metavar="N", help=several)
    for name, text in (
        ("--must", "a word that translations hold; may be given several times"),
        ("--ban", "a word that none holds; may be given several times"),
    ):
        parser.add_argument(name, action="append", default=[], metavar="WORD", help=text)
    parser.add_argument("--begin", default="", metavar="TEXT", help="how translations begin")
    coin = "may write words that training never did (only for lines of files, one translation each)"
    parser.add_argument("--coin", action=argparse.BooleanOptionalAction, help=coin)
    alpha = "strength of the length penalty; 0 prefers short (0.6)"
    parser.add_argument("--alpha", type=number, default=0.6, metavar="X", help=alpha)
    most = "tokens at most (50 more than the source has)"
    parser.add_argument("--max-new", type=whole, metavar="N", help=most)
    parser.add_argument("--seed", type=whole, help="accepted as everywhere; beams draw nothing")
    batch = (
        "sentences translated together, of long ones fewer (as suits the beam); changes no answer"
    )
    parser.add_argument("--batch", type=whole, metavar="N", help=batch)
    share = "processes for many lines on a CPU (as many as cores)"
    parser.add_argument("--workers", type=whole, metavar="N", help=share)
    add_full(parser)
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


def add_eval(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard eval`."""
    choices = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, (summary, *examples) in EVALUATIONS.items():
        sub = add_action(choices, name, summary, examples)
        sub.add_argument("path", metavar="FOLDER", help=FOLDER)
        sub.add_argument("test", metavar="FILE", help="source TAB target on each line")
        train = "training files, to find test lines that stand in them"
        sub.add_argument("--train", nargs="+", metavar="FILE", help=train)
        allow = "evaluate even so, and mark the numbers"
        sub.add_argument("--allow-overlap", action="store_true", help=allow)
        add_search(sub, 4, "width of the beam (4)")
        add_full(sub)
        share = "processes for many lines on a CPU (as many as cores)"
        sub.add_argument("--workers", type=whole, metavar="N", help=share)
        length = "BLEU by the number of words of the source too"
        sub.add_argument("--by-length", action="store_true", help=length)
        sub.add_argument("--seed", type=whole, help="nothing is drawn")
        add_place(sub)
        add_common(sub)


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
    "translate": (
        "regard.cli.translate",
        "translate by beam search, one line out for each line in",
        add_translate,
        'regard translate --alternatives 4 --explain "Il m\'a entarté."',
        "regard translate --model folder --file lines.fr > lines.en",
        "regard translate --model folder --alternatives 4 --json < lines.fr",
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
    "eval": (
        "regard.cli.evaluate",
        "BLEU and chrF of translations",
        add_eval,
        "regard eval translate folder test.tsv",
        "regard eval translate folder test.tsv --json",
        "regard eval translate folder test.tsv --train train.tsv",
    ),
}
"""Where each verb lives, what it does, its arguments and three examples: the fields of a Verb."""
