"""Arguments of `regard lang learn`. No torch here: help is quick."""

from __future__ import annotations

import argparse

from regard.cli.options import add_device, positive

MODELS = ("none", "sinusoidal", "randomised", "rotary", "relative", "alibi", "rnn", "lstm", "gru")


def add_learn(parser: argparse.ArgumentParser) -> None:
    """Arguments of `regard lang learn`."""
    tasks = "tasks of `regard lang list`"
    parser.add_argument("tasks", nargs="+", metavar="TASK", help=tasks)
    models = f"Transformers by their positions, or recurrent models: {', '.join(MODELS)}"
    parser.add_argument(
        "--models", nargs="+", default=["sinusoidal", "relative", "rnn", "lstm"], metavar="NAME",
        help=f"{models} (sinusoidal relative rnn lstm)",
    )  # fmt: skip
    parser.add_argument("--steps", type=positive, default=10_000, metavar="N", help="(10000)")
    rate = "peak learning rate (1e-3)"
    parser.add_argument("--lr", type=float, default=1e-3, metavar="X", help=rate)
    longest = "longest sequence of training (40)"
    parser.add_argument("--train-length", type=positive, default=40, metavar="N", help=longest)
    tested = "longest sequence of the test (500)"
    parser.add_argument("--test-length", type=positive, default=500, metavar="N", help=tested)
    seeds = "train with so many seeds; the best and the mean are shown (1)"
    parser.add_argument("--seeds", type=positive, default=1, metavar="N", help=seeds)
    parser.add_argument("--seed", type=int, default=0, help="the first of them (0)")
    rows = "sequences of each length in the test (64)"
    parser.add_argument("--rows", type=positive, default=64, metavar="N", help=rows)
    out = "write a line of JSON after each run, with the accuracy at each length"
    parser.add_argument("--out", metavar="FILE", help=out)
    add_device(parser)


LEARN = {
    "lang learn": (
        "regard.cli.learn",
        "train on short sequences of a task, test on long ones",
        add_learn,
        "regard lang learn parity even-pairs --models sinusoidal rnn --steps 2000",
        "regard lang learn bucket-sort --models relative randomised --seeds 3 --out runs.jsonl",
        "regard lang learn reverse --models lstm --test-length 100 --json",
    ),
}
