"""Arguments of `regard probe`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, positive
from regard.cli.write_flags import whole

MODEL = "a folder, .gguf or other checkpoint with a tokenizer"


def add_probe(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard probe`."""
    parser.add_argument("path", metavar="MODEL", help=MODEL)
    file = "CoNLL-U, or columns parted by TABs with a blank line between sentences"
    parser.add_argument("file", metavar="FILE", help=file)
    what = parser.add_mutually_exclusive_group(required=True)
    label = "columns to be read off the vectors: upos, xpos, deprel, or others of the file; "
    label += "several: which layer knows what"
    what.add_argument("--label", nargs="+", metavar="COLUMN", help=label)
    what.add_argument("--tree", action="store_true", help="structural probe of the heads")
    speech = "with --tree: also without fillers and restarts (UD's reparandum too)"
    parser.add_argument("--speech", action="store_true", help=speech)
    where = parser.add_mutually_exclusive_group()
    layer = "the stream after block N, the last, or all: embeddings and every block (all)"
    where.add_argument("--layer", default="all", metavar="N|last|all", help=layer)
    where.add_argument("--taps", nargs="+", metavar="PATTERN", help="names as `regard info --taps`")
    kinds = ("linear", "mlp")
    parser.add_argument("--kind", choices=kinds, default="linear", help="of probe (linear)")
    control = "also a control task, random labels by word type: selectivity"
    parser.add_argument("--control", action="store_true", help=control)
    rare = "leave out labels with fewer than 2 words to train on"
    parser.add_argument("--drop-rare", action="store_true", help=rare)
    token = "which token stands for a word (last; an encoder's first)"
    parser.add_argument("--token", choices=("first", "last"), help=token)
    names = "names of the file's columns in their order, if it is not CoNLL-U; one is form"
    parser.add_argument("--columns", nargs="+", metavar="NAME", help=names)
    limit = "sentences, evenly spaced in the file (1000)"
    parser.add_argument("--limit", type=positive, default=1000, metavar="N", help=limit)
    rank = "of the structural probe's matrix (64)"
    parser.add_argument("--rank", type=positive, default=64, metavar="K", help=rank)
    show = "test sentences whose trees are printed (1)"
    parser.add_argument("--show", type=whole, default=1, metavar="N", help=show)
    parser.add_argument("--seed", type=whole, default=0, help="of split, control and MLP (0)")
    add_device(parser)


PROBE = {
    "probe": (
        "regard.cli.probe",
        "what labels, or trees, can be read off a model's vectors, layer by layer",
        add_probe,
        "regard probe folder dev.conllu --label upos --control",
        "regard probe folder dev.conllu --label upos deprel --kind mlp --drop-rare",
        "regard probe folder dev.conllu --tree --limit 500 --json",
    ),
}
"""As WRITING in write_flags.py; a verb of two words has a parser of its own."""
