"""Arguments of `regard explain`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, positive

METHODS = ("gradient", "ig", "lime", "shap", "attention", "rollout", "flow")


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard explain`."""
    model = "a folder that `regard.load` opens, or the name of one in the box (fr-en)"
    parser.add_argument("path", metavar="MODEL", help=model)
    text = "what it reads; with <mask> in it for a masked language model"
    parser.add_argument("text", metavar="TEXT", help=text)
    target = (
        "the word, or class, that is explained (the likeliest); "
        "of an encoder-decoder, how its answer begins: the next word is explained"
    )
    parser.add_argument("--target", metavar="WORD", help=target)
    against = "explain why the target and not this one: the difference of both"
    parser.add_argument("--against", metavar="WORD", help=against)
    methods = f"{', '.join(METHODS)} (ig); the last two follow attention through all layers"
    parser.add_argument("--method", default="ig", metavar="NAME", help=methods)
    compare = "all methods, how faithful each is, and how they agree"
    parser.add_argument("--compare", action="store_true", help=compare)
    steps = "points of the path of ig, more where they are too few (50)"
    parser.add_argument("--steps", type=positive, default=50, metavar="N", help=steps)
    samples = "texts that lime runs (1000); orders that shap draws (all up to 15 tokens, then 100)"
    parser.add_argument("--samples", type=positive, metavar="N", help=samples)
    baseline = (
        "what an absent token is: zero, pad, mask, a TOKEN, or drop, left out, for lime and shap "
        "(mask where the model has one, else zero; without added positions, pad or eos)"
    )
    parser.add_argument("--baseline", metavar="NAME", help=baseline)
    parser.add_argument("--seed", type=int, default=0, help="of lime, shap and random orders (0)")
    add_device(parser)


EXPLAIN = {
    "explain": (
        "regard.cli.explain",
        "which words of the input an answer comes from: ig, lime, shap, attention, rollout",
        add_explain,
        'regard explain folder "When Mary and John went out, John gave a drink to"',
        'regard explain folder "Paris is the <mask> of France" --method shap --against city',
        'regard explain fr-en "Le chat dort." --target "The cat" --compare',
    ),
}
