"""Rungs of `regard ladder`, trained and measured by the verbs that do so alone."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from regard import evaluate, train
from regard.ambient import choose_device, settings
from regard.cli.ladder_split import Split
from regard.cli.ladder_vectors import measure_vectors, token_ids, train_vectors
from regard.cli.opening import open_kit
from regard.cli.show import Show
from regard.decode.scoring import score_rows
from regard.energy import Meter
from regard.errors import DataError
from regard.evaluate.perplexity import window_length
from regard.history.ladder import Question, Rung, answer_curve
from regard.history.ngram_model import NgramModel
from regard.model_kinds import is_ngrams
from regard.tokens import load as load_tokenizer
from regard.train.config import DataConfig, ShapeConfig, TrainConfig
from regard.train.results import Run

TRIAL = 12  # steps that the pace of a rung is taken from, at least
LONG = 0.04  # of a rung's time; where they take less, as many steps as take twice that are tried
TRAINING = 0.8  # share of a rung's time that is for training, not for its trial and its test
VALIDATIONS = 3  # of a rung
CLASSES, BROWN, MERGE = 100, 0.05, 1e-6  # at most; share of the budget; seconds of word × k²
LBFGS = 3  # steps of logistic regression for each minute of the budget, at most 60

SAME = {"schedule": "cosine", "floor": 0.05, "keep": 1, "log_every": 10}
MUON = {"depth": 2, "optimizer": "muon"}  # Adam learns more slowly
RATE = 8e-3
FEW = {"fixed": 2000, "additive": 2000, "transformer": 600}  # steps beyond which less is better
PAIR_SAME = {"batch_tokens": 1024, "length": 96, "smoothing": 0.0}
PAIR_SETTINGS: dict[str, dict[str, Any]] = {
    "fixed": {"attention": "none"},
    "additive": {"attention": "additive"},
    "transformer": {"pre_norm": True, **MUON},
}
SHORT = {"batch_tokens": 1024, "length": 32, "depth": 1}
TEXT_SETTINGS: dict[str, dict[str, Any]] = {
    "mlp": {**SHORT, "lr": 2e-3},
    "rnn": {**SHORT, "lr": 2e-3},
    "lstm": {**SHORT, "lr": 5e-3},
    "gru": {**SHORT, "lr": 5e-3},
    "transformer": {"batch_tokens": 1024, "length": 128, **MUON},
}


class Clock:
    """What is left of a budget in minutes."""

    def __init__(self, minutes: float) -> None:
        self.began = time.monotonic()
        self.end = self.began + 60 * minutes

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return max(0.0, self.end - time.monotonic())

    @property
    def taken(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began


class Climb:
    """Trains and measures rung after rung on one split."""

    def __init__(self, args: argparse.Namespace, show: Show, split: Split, folder: Path) -> None:
        self.args, self.show, self.split, self.folder = args, show, split, folder
        self.meter = Meter(choose_device(args.device) == "cuda", args.watts)

    # Translation --------------------------------------------------------------------------------

    def translator(self, rung: Rung, seconds: float) -> dict[str, Any]:
        """Train a rung of translation and score it."""
        out = self.folder / rung.name
        if rung.counts:
            more = {"steps": self.fitting_lbfgs()} if rung.name == "logreg" else {}
            self.meter.start()
            made = getattr(train, rung.name)(self.split.train, out=out, **more).to_dict()
            made["joules"] = self.meter.joules()
            words = sum(len(row.split()) for row in read_text(self.split.train))
            found = counted(made["weights"], made, words) | {"bits": None}
        else:
            found = self.steps("seq2seq", PAIR_SETTINGS[rung.name] | PAIR_SAME, out, seconds)
            out = out / "final"
        with settings(device=self.args.device):
            scores = evaluate.translate(out, self.split.test, by_length=True, workers=1).to_dict()
        return {"bleu": scores["bleu"], **found, "by_length": scores["by_length"]}

    def fitting_lbfgs(self) -> int:
        """Steps of logistic regression, which is slow: as the budget allows."""
        return self.args.steps or max(1, min(60, int(LBFGS * self.args.minutes)))

    # Language modelling -------------------------------------------------------------------------

    def text_model(
        self, rung: Rung, seconds: float, asked: dict[int, Question] | None
    ) -> dict[str, Any]:
        """Train a rung of language modelling and measure it."""
        out = self.folder / rung.name
        if rung.name == "word2vec":
            return self.vectors(out, seconds, asked)
        if rung.counts:
            found = self.ngrams(rung, out)
        else:
            kind = "lm" if rung.name == "transformer" else rung.name
            found = self.steps(kind, TEXT_SETTINGS[rung.name], out, seconds)
            out = out / "final"
        with settings(device=self.args.device):
            score = evaluate.lm(out, self.split.test).to_dict()
        quality = {"perplexity": score["perplexity"], "bits": score["bits_per_token"]}
        curve = None if asked is None else self.french(out, asked)
        return quality | {name: found[name] for name in COSTS} | {"french": curve}

    def ngrams(self, rung: Rung, out: Path) -> dict[str, Any]:
        """Count n-grams of words or of classes."""
        place: dict[str, Any] = {"out": out, "tokens": str(self.split.tokenizer), "lines": False}
        self.meter.start()
        if rung.name == "classes":
            made = train.classes(
                self.split.train, **place, classes=self.fitting_classes()
            ).to_dict()
        else:
            made = train.ngram(self.split.train, **place, order=int(rung.name[0])).to_dict()
        made["joules"] = self.meter.joules()
        own = made["vocabulary"] if rung.name == "classes" else 0  # each word's share of its class
        return counted(sum(made["ngrams"]) + own, made, made["tokens"])

    def fitting_classes(self) -> int:
        """Classes of words, whose search takes words × classes²: as the budget allows."""
        tokenizer = load_tokenizer(str(self.split.tokenizer))
        words = len(np.unique(token_ids(tokenizer, self.split.train)))
        if self.args.steps:
            return min(CLASSES, words)
        most = math.isqrt(int(60 * self.args.minutes * BROWN / (words * MERGE)))
        return max(1, min(CLASSES, words, most))

    def vectors(
        self, out: Path, seconds: float, asked: dict[int, Question] | None
    ) -> dict[str, Any]:
        """Vectors of word2vec, and a softmax over their mean."""
        self.meter.start()
        model, found = train_vectors(self.args, self.split, out, TRAINING * seconds, self.show)
        found["joules"] = self.meter.joules()
        curve = None if asked is None else answer_curve(asked, model.logprobs)
        return measure_vectors(model, self.split) | found | {"french": curve}

    def french(self, folder: Path, asked: dict[int, Question]) -> list[float | None]:
        """p(French) by distance."""
        if is_ngrams(str(folder)):
            return answer_curve(asked, NgramModel.open(folder).tables.logprobs)
        kit = open_kit(str(folder), self.args.device, "auto")
        room = window_length(kit, None)

        def by_model(whole: list[int]) -> list[float] | None:
            return score_rows(kit.model, [whole])[0] if len(whole) <= room + 1 else None

        return answer_curve(asked, by_model)

    # Step by step -------------------------------------------------------------------------------

    def steps(self, kind: str, asked: dict[str, Any], out: Path, seconds: float) -> dict[str, Any]:
        """Train step by step, for so many seconds or as many steps as asked for."""
        args = self.args
        heads = next(count for count in (4, 2, 1) if args.dim % count == 0)
        asked = SAME | asked | {"dim": args.dim}
        asked |= {"heads": heads} if out.name == "transformer" else {}
        count = args.steps or self.fitting(kind, asked, seconds)
        if "lr" not in asked:
            asked["lr"] = RATE * min(1.0, (FEW[out.name] / count) ** 0.5)
        asked |= {"steps": count, "warm_up": max(1, min(400, count // 10)), "save_every": count}
        asked["eval_every"] = -(-count // VALIDATIONS)
        began = time.perf_counter()
        self.meter.start()
        run = self.train(kind, asked, out)
        taken, joules = time.perf_counter() - began, self.meter.joules()
        if run.best_valid is None:
            raise DataError(f"training {out.name}", "nothing to validate on", "longer lines")
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        shutil.rmtree(out / "data", ignore_errors=True)
        return {
            "bits": run.best_valid / math.log(2),
            "parameters": sum(p.numel() for p in run.kit.model.parameters()),
            "seconds": taken,
            "tokens_per_s": pace(out)[0],
            "joules": joules,
            "steps": run.steps,
        }

    def train(self, kind: str, asked: dict[str, Any], out: Path) -> Run:
        """Train a network on the split."""
        split = self.split
        data = {"valid": (str(split.valid),), "tokens": str(split.tokenizer)}
        configs = {
            name: kind_of(
                **{n: v for n, v in (asked | data).items() if n in kind_of.__dataclass_fields__}
            )
            for name, kind_of in CONFIGS.items()
        }
        function = getattr(train, kind)
        with settings(seed=self.args.seed, device=self.args.device, quiet=True):
            run: Run = function(str(split.train), out=out, **configs)
        return run

    def fitting(self, kind: str, asked: dict[str, Any], seconds: float) -> int:
        """How many steps fit into a rung's time, by a trial of a few."""
        began, trial = time.perf_counter(), self.folder / ".trial"
        steps = TRIAL
        for _ in range(2):
            often = {"steps": steps, "log_every": steps // 3, "eval_every": 0, "save_every": steps}
            self.train(kind, asked | often, trial)
            speed, tokens = pace(trial)
            shutil.rmtree(trial)
            taken = steps * tokens / speed
            if taken > LONG * seconds:
                break
            steps = int(2 * LONG * seconds * steps / taken)
        left = TRAINING * seconds - (time.perf_counter() - began)
        return max(TRIAL, int(left * speed / tokens))


CONFIGS: dict[str, Any] = {"config": TrainConfig, "shape": ShapeConfig, "data": DataConfig}
COSTS = ("parameters", "seconds", "tokens_per_s", "joules")


def counted(parameters: int, made: dict[str, Any], tokens: int) -> dict[str, Any]:
    """What a rung that counts took."""
    speed = tokens / max(made["seconds"], 0.01)
    costs = {name: made[name] for name in ("seconds", "joules")}
    return {"parameters": parameters, **costs, "tokens_per_s": speed}


def read_text(path: Path) -> list[str]:
    """The lines of a file of the split."""
    return path.read_text(encoding="utf-8").splitlines()


def pace(run: Path) -> tuple[float, float]:
    """(tokens per second, tokens of a step) of a run, its slow first lines left out."""
    lines = [json.loads(line) for line in read_text(run / "metrics.jsonl")]
    steps = [line for line in lines if "tokens_per_s" in line]
    kept = steps[1:] or steps
    seconds = sum(1 / max(line["tokens_per_s"], 1e-9) for line in kept)
    return len(kept) / seconds, sum(line["count"] for line in steps) / len(steps)
