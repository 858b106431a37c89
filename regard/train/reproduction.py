"""Train again and compare: a run killed at random moments (N2), a run that a receipt tells of."""

from __future__ import annotations

import inspect
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import regard.train
from regard.ambient import Progress, current, progress, settings
from regard.errors import DataError, RegardError
from regard.receipt import changed_files, compare, first_difference, read_receipt
from regard.train.results import Kill, Replay, ResumeCheck, read_metrics
from regard.train.settings import CONFIG, to_toml
from regard.verbs import hints_of

DOING = "verifying resume"
WORDS = "the a cat dog sees likes old red house tree runs and then under big small".split()
PATIENCE = 120.0  # seconds until a process that shows nothing is given up
COUNTING = ("ngram", "bow", "classes", "w2v", "bayes", "logreg", "ibm1")
"""Functions of training that count; their receipts hold their arguments."""
READING = ("regard.look.", "regard.evaluate.")
"""Functions whose figures are measured again."""
CODE = """
import regard
from regard.train.config import DataConfig, ShapeConfig, TrainConfig

often = TrainConfig(
    steps={steps}, workers={workers}, length=32, batch_tokens=256, accumulate=3, warm_up=5,
    dropout=0.1, ema=0.9, save_every=5, eval_every=12, log_every=1,
)
with regard.settings(device="cpu", quiet=True):
    regard.train.{kind}(
        {corpus!r}, resume={out!r}, config=often,
        shape=ShapeConfig(dim=32, depth=2, heads=2), data=DataConfig(vocab=300),
    )
"""
"""What a process of the kill test runs."""


# Kills --------------------------------------------------------------------------------------------


def verify_resume(kind: str, kills: int) -> ResumeCheck:
    """Run once untouched and once killed again and again; compare weights and losses."""
    dice, steps = random.Random(current().seed), max(20, 4 * kills)
    with (
        TemporaryDirectory(prefix="regard-verify-") as name,
        progress(f"verifying resume, {kind}") as say,
    ):
        corpus = write_corpus(Path(name), kind)
        whole, killed = (Victim(kind, corpus, Path(name, part), steps) for part in ("a", "b"))
        say("uninterrupted run")
        whole.finish(workers=1)
        met = kill_often(killed, kills, dice, say)
        say("last run, to the end")
        killed.finish(workers=3)
        results = [read_receipt(run.folder)["results"] for run in (whole, killed)]
        curves = [
            [(line["step"], line.get("loss", line.get("valid_nll"))) for line in lines]
            for lines in (read_metrics(whole.folder), read_metrics(killed.folder))
        ]
    return ResumeCheck(kind, results[0] == results[1] and curves[0] == curves[1], met, *results)


class Victim:
    """One run, in a process that is started as often as needed."""

    def __init__(self, kind: str, corpus: Path, folder: Path, steps: int) -> None:
        self.kind, self.corpus, self.folder, self.steps = kind, corpus, folder, steps

    def start(self, workers: int) -> subprocess.Popen[bytes]:
        """The process; one thread, since small models gain nothing from more."""
        places = {"corpus": str(self.corpus), "out": str(self.folder)}
        code = CODE.format(kind=self.kind, steps=self.steps, workers=workers, **places)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-c", code]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdout=quiet, stderr=subprocess.PIPE, env=environment)

    def finish(self, workers: int) -> None:
        """Go to the end."""
        process = self.start(workers)
        _, said = process.communicate()
        if process.returncode:
            problem = f"exit code {process.returncode}: {said.decode(errors='replace')[-500:]}"
            raise RegardError(DOING, problem, "a run to its end")

    def step(self) -> int:
        """The last step that metrics.jsonl holds."""
        lines = read_metrics(self.folder)
        return lines[-1]["step"] if lines else 0

    def writing(self) -> bool:
        """Whether a checkpoint is half written."""
        return any((self.folder / "checkpoints").glob(".part-*"))


def kill_often(run: Victim, count: int, dice: random.Random, say: Progress) -> list[Kill]:
    """Kill the run `count` times, spread over its steps, with another number of workers each."""
    kills: list[Kill] = []
    for number in range(1, count + 1):
        say(f"kill {number} of {count}")
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
            problem = f"process {number} ended by itself with {process.returncode}"
            raise RegardError(DOING, problem, "a run that is still going", "try another --seed")
        kills.append(Kill(number, moment, run.step(), run.writing(), workers))
    return kills


def wait_for(
    run: Victim, process: subprocess.Popen[bytes], target: int, moment: str, dice: random.Random
) -> None:
    """Wait until a step is reached, then for the moment asked for."""
    end, log = time.monotonic() + PATIENCE, run.folder / "log.txt"
    started = log.stat().st_size if log.exists() else 0
    while process.poll() is None and time.monotonic() < end:
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
    path = folder / ("pairs.tsv" if kind == "seq2seq" else "text.txt")
    texts = [" ".join(dice.choices(WORDS, k=dice.randint(3, 9))) for _ in range(400)]
    if kind == "seq2seq":
        texts = [f"{text}\t{' '.join(reversed(text.split()))}" for text in texts]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


# Receipts -----------------------------------------------------------------------------------------


def replay_receipt(path: Path) -> Replay:
    """Train, measure or look again as a receipt tells, and compare; a run in another folder."""
    before, doing = read_receipt(path), f"replaying {path}"
    if wrong := changed_files(before["data"]):
        problem = "; ".join(f"{name}: {why}" for name, why in wrong.items())
        raise DataError(doing, problem, "the data of the receipt")
    function = str(before.get("function"))
    if function.startswith(READING) and "out" not in before["config"]:
        room, name = function.split(".")[1:]
        with settings(device=before.get("device") or "auto", seed=before.get("seed") or 0):
            again = call_again(getattr(getattr(regard, room), name), before["config"]).to_dict()
        differs = first_difference(before["results"], again)
        return Replay(differs is None, differs or "all figures agree within 1 %", again)
    with TemporaryDirectory(prefix="regard-replay-") as name:
        folder = Path(name) / "run"
        threads = torch.get_num_threads()
        torch.set_num_threads(before.get("threads") or threads)  # sums are rounded by their split
        try:
            train_again(before, folder, Path(name) / CONFIG, doing)
        finally:
            torch.set_num_threads(threads)
        now = read_receipt(folder)
    match, compared = compare(before, now)
    return Replay(match, compared, now["results"])


def train_again(before: dict[str, Any], folder: Path, draft: Path, doing: str) -> None:
    """Call the function of a receipt, which a foreign one must not use for anything but training.

    The receipt of a run holds all its settings; that of a model that counts, the arguments.
    """
    config = before["config"]
    if "kind" not in config:
        name = str(before.get("function")).removeprefix("regard.train.")
        if name not in COUNTING:
            raise DataError(doing, f"function {before.get('function')!r}", "a function of training")
        with settings(seed=before.get("seed") or 0):
            call_again(getattr(regard.train, name), config | {"out": folder})
        return
    named = (vars(room).get(config["kind"]) for room in (regard.train, regard.tune))
    runs = [f for f in named if callable(f) and "toml" in inspect.signature(f).parameters]
    if not runs:
        raise DataError(doing, f"kind = {config['kind']!r}", "a kind of run that regard has")
    lines = [f"{key} = {to_toml(value)}\n" for key, value in config.items()]
    draft.write_text("".join(lines), encoding="utf-8")
    with settings(device=config["device"], seed=config["seed"]):
        runs[0](out=folder, toml=draft)


def call_again(function: Callable[..., Any], config: dict[str, Any]) -> Any:
    """Call a public function with the arguments of a receipt; a dataclass is written as fields."""
    hints = hints_of(inspect.unwrap(function))
    named = {
        name: hints[name].__origin__(**value) if isinstance(value, dict) else value
        for name, value in config.items()
    }
    return function(**named)
