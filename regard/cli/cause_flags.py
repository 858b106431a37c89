"""Arguments of the verbs that change a model to see what causes what. No torch here."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, positive
from regard.cli.write_flags import number

KINDS = ("resample", "mean", "zero")
RECEIPT = "write a receipt there: the JSON, and the command, code and files it came from"
OVER = ("heads", "mlps", "stream")


def add_prompts(parser: argparse.ArgumentParser) -> None:
    """The model and its pairs of prompts."""
    parser.add_argument("path", metavar="MODEL", help="a language model that `regard.load` opens")
    lines = "lines of clean TAB corrupted TAB answer [TAB other answer [TAB template]]"
    parser.add_argument("pairs", metavar="PAIRS", nargs="?", help=lines)
    task = "prompts made here instead of PAIRS: ioi (who is the indirect object?)"
    parser.add_argument("--task", choices=("ioi",), help=task)
    count = "prompts of --task (64)"
    parser.add_argument("--count", type=positive, default=64, metavar="N", help=count)
    parser.add_argument("--seed", type=int, default=0, help="of prompts and draws (0)")
    add_device(parser)


def add_patch(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard patch`."""
    add_prompts(parser)
    over = "what is patched: each head, each MLP, or the stream at each position (heads)"
    parser.add_argument("--over", choices=OVER, default="heads", help=over)
    noise = "corrupted values into clean runs; else clean ones into corrupted runs"
    parser.add_argument("--noise", action="store_true", help=noise)
    fast = "to first order: two passes forward and one back, whatever the number of places"
    parser.add_argument("--fast", action="store_true", help=fast)
    to = "paths: what each head does through these taps alone, such as decoder.blocks.9.attn.q:3"
    parser.add_argument("--to", metavar="TAP[:HEAD]", nargs="+", help=f"{to}; or `end`")
    parser.add_argument("--top", type=positive, default=15, metavar="N", help="places shown (15)")
    parser.add_argument("--png", metavar="FILE", help="write a heat map (extra plot)")


def add_circuit(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard circuit`."""
    add_prompts(parser)
    kind = "what stands in place of parts outside: values of the corrupted twin, of all that have "
    kind += "its template and length on average, or 0 (resample)"
    parser.add_argument("--kind", choices=KINDS, default="resample", help=kind)
    keep = "share of the task that the circuit must do (0.9)"
    parser.add_argument("--keep", type=number, default=0.9, metavar="X", help=keep)
    parser.add_argument("--heads-only", action="store_true", help="MLPs stay alive")
    draws = "random circuits to compare with (100)"
    parser.add_argument("--draws", type=positive, default=100, metavar="N", help=draws)
    edges = "edges between its parts that are shown (15)"
    parser.add_argument("--edges", type=int, default=15, metavar="N", help=edges)
    parser.add_argument("--png", metavar="FILE", help="write a map of all parts (extra plot)")
    parser.add_argument("--out", metavar="FILE", help=RECEIPT)


def add_ioi(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard eval ioi`."""
    parser.add_argument("path", metavar="MODEL", help="a language model that `regard.load` opens")
    parser.add_argument("--count", type=positive, default=64, metavar="N", help="prompts (64)")
    heads = "look for the classes of heads too: paths to the end, and attention between the names"
    parser.add_argument("--heads", action="store_true", help=heads)
    parser.add_argument(
        "--top", type=positive, default=5, metavar="N", help="heads a class shown (5)"
    )
    parser.add_argument("--out", metavar="FILE", help=RECEIPT)
    parser.add_argument("--seed", type=int, default=0, help="of the prompts (0)")
    add_device(parser)


CAUSE = {
    "patch": (
        "regard.cli.patching",
        "put activations of one prompt into another, and see what comes back",
        add_patch,
        "regard patch folder pairs.tsv",
        "regard patch folder pairs.tsv --over stream --png map.png",
        "regard patch folder --task ioi --to end --json",
    ),
    "circuit": (
        "regard.cli.circuit",
        "the few heads and MLPs that do a task, with a certificate",
        add_circuit,
        "regard circuit folder pairs.tsv",
        "regard circuit folder --task ioi --kind mean --heads-only",
        "regard circuit folder pairs.tsv --json --out circuit.json",
    ),
    "eval ioi": (
        "regard.cli.ioi",
        "who is the indirect object? Logit difference, and the heads that find out",
        add_ioi,
        "regard eval ioi folder",
        "regard eval ioi folder --count 200 --heads",
        "regard eval ioi folder --heads --seed 7 --out ioi.json",
    ),
}
"""Each verb: its module, what it does, its arguments, three examples."""
