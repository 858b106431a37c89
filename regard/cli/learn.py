"""`regard lang learn`: which structure does a model learn, and does it hold on longer sequences?"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.ambient import choose_device
from regard.cli.learn_flags import MODELS
from regard.cli.show import Show
from regard.errors import UsageError, check_known
from regard.formal.length_generalisation import CELLS, Lesson, accuracy, train
from regard.formal.tasks import LengthTask, find_task

NEAR = 100  # lengths up to here are told apart from the rest
EACH = 20  # of longer ones, every so many-th is tested


def run(args: argparse.Namespace, show: Show) -> int:
    """Train and test every task with every model and seed."""
    tasks = [find_task(name) for name in args.tasks]
    check(args)
    device, made = choose_device(args.device), []
    for chosen in tasks:
        for name in args.models:
            for seed in range(args.seed, args.seed + args.seeds):
                line = run_one(args, chosen, name, seed, str(device), show)
                made.append(line)
                if args.out:
                    with Path(args.out).open("a") as file:
                        file.write(json.dumps(line) + "\n")
                show.note(told(line, args.train_length))
    if show.as_json:
        show.result({"runs": made})
    else:
        print_table(args, tasks, made, show)
    return 0


def check(args: argparse.Namespace) -> None:
    """Refuse unknown models, and a test that is no longer than the training."""
    for name in args.models:
        check_known(name, MODELS, "choosing a model")
    if args.test_length <= args.train_length:
        found = f"--test-length {args.test_length}, --train-length {args.train_length}"
        raise UsageError("choosing lengths", found, "a test on longer sequences than training")


def run_one(
    args: argparse.Namespace, chosen: LengthTask, name: str, seed: int, device: str, show: Show
) -> dict[str, Any]:
    """One training and its test."""
    start = time.monotonic()
    with show.progress(f"{chosen.name}, {name}, seed {seed}") as progress:
        lesson = Lesson(chosen, args.train_length, seed=seed)
        last = [0.0]

        def watch(step: int, loss: float) -> None:
            last[0] = loss
            progress(f"step {step:,} of {args.steps:,}, loss {loss:.4f}")

        model = train(name, lesson, args.steps, args.lr, device, watch)
        trained = time.monotonic() - start
        lengths = test_lengths(args.train_length, args.test_length)
        found = {}
        for length in lengths:
            progress(f"testing length {length}")
            found[length] = accuracy(model, chosen, length, args.rows, seed)
    return {
        "task": chosen.name,
        "model": name,
        "seed": seed,
        "steps": args.steps,
        "lr": args.lr,
        "loss": last[0],
        "short": found[args.train_length],
        "near": mean(found, args.train_length, NEAR),
        "far": mean(found, args.train_length, args.test_length),
        "chance": chosen.chance,
        "published": published(chosen, name),
        "train_s": round(trained, 1),
        "test_s": round(time.monotonic() - start - trained, 1),
        "lengths": found,
    }


def test_lengths(short: int, long: int) -> list[int]:
    """The longest of training, then every fifth to 100, then every 20th."""
    near = range(short + 5, min(NEAR, long) + 1, 5)
    return [short, *(near or [long]), *range(max(NEAR, short) + EACH, long + 1, EACH)]


def mean(found: dict[int, float], above: int, up_to: int) -> float | None:
    """Mean accuracy over lengths in (above, up_to], each length in between counting alike.

    Lengths are not tested in equal steps, so each stands for those since the one before it.
    """
    total, count, before = 0.0, 0, above
    for length in sorted(length for length in found if above < length <= up_to):
        total, count = total + found[length] * (length - before), count + length - before
        before = length
    return total / count if count else None


def published(chosen: LengthTask, name: str) -> float | None:
    """The study's best accuracy; a Transformer's is over all its positions."""
    if name in CELLS:
        return getattr(chosen.published, name, None)
    return chosen.published.transformer


def told(line: dict[str, Any], short: int) -> str:
    """One run in a line."""
    near = "–" if line["near"] is None else f"{line['near']:.1%}"
    rest = f"to {NEAR} {near}, to the end {line['far']:.1%}, {line['train_s']} s"
    where = f"{line['task']}, {line['model']}, seed {line['seed']}"
    return f"{where}: length {short} {line['short']:.1%}, {rest}"


def print_table(
    args: argparse.Namespace,
    tasks: Sequence[LengthTask],
    made: Sequence[dict[str, Any]],
    show: Show,
) -> None:
    """Best and mean of the seeds, beside the study's figures."""
    end, short = args.test_length, args.train_length
    rows = []
    for chosen in tasks:
        for name in args.models:
            runs = [run for run in made if (run["task"], run["model"]) == (chosen.name, name)]
            known = runs[0]["published"]
            rows.append(
                [
                    chosen.name,
                    name,
                    percent(run["short"] for run in runs),
                    percent(run["near"] for run in runs),
                    percent(run["far"] for run in runs),
                    "–" if known is None else f"{known:.1f}",
                    f"{100 * chosen.chance:.0f}",
                ]
            )
    seeds = f"{args.seeds} seed{'s' if args.seeds > 1 else ''}, best (mean)"
    title = f"per cent of right symbols, trained to length {short}, {args.steps:,} steps, {seeds}"
    near = f"{short + 1}–{min(NEAR, end)}"
    columns = ["task", "model", str(short), near, f"{short + 1}–{end}", "published", "chance"]
    show.table(title, columns, rows, left=2)
    show.note(
        "published: Delétang et al. 2023, lengths 41 to 500, best of ten seeds and more steps"
    )


def percent(values: Iterable[float | None]) -> str:
    """The best, and the mean where there are several."""
    listed = [100 * value for value in values if value is not None]
    if not listed:
        return "–"
    more = f" ({statistics.mean(listed):.1f})" if len(listed) > 1 else ""
    return f"{max(listed):.1f}{more}"
