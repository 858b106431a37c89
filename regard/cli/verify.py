"""`regard verify resume`: kill a real run at random moments and compare its final weights (N2)."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.cli.show import Progress, Show
from regard.errors import RegardError
from regard.receipt import read_receipt

DOING = "verifying resume"
WORDS = "the a cat dog sees likes old red house tree runs and then under big small".split()
PATIENCE = 120.0  # seconds until a process that shows nothing is given up
SETTINGS = (
    "--dim 32 --depth 2 --heads 2 --length 32 --batch-tokens 256 --accumulate 3 --warm-up 5 "
    "--dropout 0.1 --ema 0.9 --save-every 5 --eval-every 12 --log-every 1 --device cpu --vocab 300"
).split()


@dataclass(frozen=True)
class Kill:
    """What one kill met."""

    number: int
    moment: str
    step: int
    """Last step in metrics.jsonl."""
    writing: bool
    """A checkpoint was half written."""
    workers: int


def run(args: argparse.Namespace, show: Show) -> int:
    """Run once untouched and once killed again and again; 1 when the weights differ."""
    dice = random.Random(args.seed)
    steps = max(20, 4 * args.kills)
    with (
        TemporaryDirectory(prefix="regard-verify-") as name,
        show.progress(f"verifying resume, {args.kind}") as progress,
    ):
        folder = Path(name)
        corpus = write_corpus(folder, args.kind)
        progress("uninterrupted run")
        whole = Run(args.kind, corpus, folder / "whole", steps)
        whole.finish(workers=1)
        killed = Run(args.kind, corpus, folder / "killed", steps)
        kills = kill_often(killed, args.kills, dice, progress)
        progress("last run, to the end")
        killed.finish(workers=3)
        hashes = [read_receipt(run.folder)["results"] for run in (whole, killed)]
        curves = [run.losses() for run in (whole, killed)]
    same = hashes[0] == hashes[1] and curves[0] == curves[1]
    report(show, args, kills, hashes, same)
    return 0 if same else 1


class Run:
    """One run of the command, started as often as needed."""

    def __init__(self, kind: str, corpus: Path, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.command = [sys.executable, "-m", "regard", "train", kind, str(corpus)]
        self.command += ["--out", str(folder), "--steps", str(steps), "--resume", *SETTINGS]

    def start(self, workers: int) -> subprocess.Popen[bytes]:
        """The process; one thread, since small models gain nothing from more."""
        command = [*self.command, "--workers", str(workers)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdout=quiet, stderr=subprocess.PIPE, env=environment)

    def finish(self, workers: int) -> None:
        """Go to the end."""
        process = self.start(workers)
        _, said = process.communicate()
        if process.returncode:
            found = f"exit code {process.returncode}: {said.decode(errors='replace')[-500:]}"
            raise RegardError(DOING, found, "a run to its end")

    def step(self) -> int:
        """The last step that metrics.jsonl holds."""
        try:
            lines = (self.folder / "metrics.jsonl").read_bytes().splitlines()
            return int(json.loads(lines[-1])["step"]) if lines else 0
        except (OSError, ValueError):
            return 0

    def writing(self) -> bool:
        """Whether a checkpoint is half written."""
        return any((self.folder / "checkpoints").glob(".part-*"))

    def losses(self) -> list[tuple[int, float]]:
        """The curve that metrics.jsonl holds."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        made = [json.loads(line) for line in lines]
        return [(m["step"], m.get("loss", m.get("valid_nll"))) for m in made]


def kill_often(run: Run, count: int, dice: random.Random, progress: Progress) -> list[Kill]:
    """Kill the run `count` times, spread over its steps, with another number of workers each."""
    kills: list[Kill] = []
    for number in range(1, count + 1):
        progress(f"kill {number} of {count}")
        workers = number % 4
        process = run.start(workers)
        target = (number - 1) * run.steps // (count + 1) + dice.randint(0, 3)
        moment = "preparing" if number == 1 else dice.choice(("in a step", "in a checkpoint"))
        if moment == "preparing":
            time.sleep(dice.uniform(0.2, 2.0))
        else:
            wait_for(run, process, min(target, run.steps - 2), moment, dice)
        process.kill()
        process.communicate()
        if process.returncode != -9:
            found = f"process {number} ended by itself with {process.returncode}"
            raise RegardError(DOING, found, "a run that is still going", "try another --seed")
        kills.append(Kill(number, moment, run.step(), run.writing(), workers))
    return kills


def wait_for(
    run: Run, process: subprocess.Popen[bytes], target: int, moment: str, dice: random.Random
) -> None:
    """Wait until a step is reached, then for the moment asked for."""
    end = time.monotonic() + PATIENCE
    started = (run.folder / "log.txt").stat().st_size if (run.folder / "log.txt").exists() else 0
    while process.poll() is None and time.monotonic() < end:
        log = run.folder / "log.txt"
        # A fresh log line "first batch" says that this process, not the one before, is training.
        if log.exists() and b"first batch" in log.read_bytes()[started:] and run.step() >= target:
            break
        time.sleep(0.002)
    if moment == "in a step":
        time.sleep(dice.uniform(0, 0.03))
        return
    while process.poll() is None and time.monotonic() < end and run.step() < run.steps - 1:
        if run.writing():
            time.sleep(dice.uniform(0, 0.004))
            return


def write_corpus(folder: Path, kind: str) -> Path:
    """A few hundred lines of made-up text, or pairs of a sentence and its reverse."""
    dice = random.Random(0)
    lines = [dice.choices(WORDS, k=dice.randint(3, 9)) for _ in range(400)]
    path = folder / ("pairs.tsv" if kind == "seq2seq" else "text.txt")
    texts = [" ".join(words) for words in lines]
    if kind == "seq2seq":
        texts = [f"{text}\t{' '.join(reversed(text.split()))}" for text in texts]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def report(
    show: Show,
    args: argparse.Namespace,
    kills: list[Kill],
    results: list[dict[str, object]],
    same: bool,
) -> None:
    """Kills, hashes and the verdict."""
    if show.as_json:
        made = {"kind": args.kind, "same": same, "kills": [vars(kill) for kill in kills]}
        show.result({**made, "whole": results[0], "killed": results[1]})
        return
    rows = [
        (str(k.number), k.moment, "yes" if k.writing else "no", str(k.step), str(k.workers))
        for k in kills
    ]
    columns = ("kill", "aimed at", "half a checkpoint", "step", "workers")
    show.table(f"kills of `train {args.kind}`", columns, rows, left=3)
    for name, result in zip(("uninterrupted", "killed"), results, strict=True):
        show.line(f"{name:13}  weights {result['weights']}")
    verdict = "the same weights and losses" if same else "DIFFERENT"
    show.line(f"{len(kills)} kills: {verdict}")
