"""`regard demo`: things to see in a minute, on any machine and without data of one's own."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Literal, cast

from regard.ambient import current, note, track
from regard.files import check_new
from regard.result import Grid, Result, Row, shown
from regard.verbs import verb

Start = Literal["Xavier", "small"]
Norm = Literal["post", "pre"]
STEPS, KNOWN, ASKED = 600, 6000, 200  # of training; pairs that are read, and others to be answered
COPIED, LETTERS = 12, 32  # the task of the warm-up: so many letters out of so many, once more


@dataclass(frozen=True)
class DateAnswer(Row):
    """One date that was not in the data."""

    date: str
    answer: str
    right: bool


@dataclass(frozen=True)
class DateDemo(Result):
    """A Transformer of {parameters:,} weights learnt to write dates in {seconds:.0f} s."""

    pairs: int = shown(title="pairs it read")
    parameters: int = shown(table=False)
    steps: int = shown()
    seconds: float = shown(table=False)
    right: int = shown(title="unseen dates right")
    asked: int = shown(title="of")
    answers: list[DateAnswer] = shown()
    folder: str = shown()
    next: list[str] = shown(table=False)
    """Commands to go on with."""

    def parts(self) -> Iterator[str | Grid]:
        """The fields, and what to try next."""
        yield from super().parts()
        yield "\n".join(["try next:", *(f"  {line}" for line in self.next)])


@dataclass(frozen=True)
class ScaleRow(Row):
    """Scores of random queries and keys of one width, as they are and divided by √D."""

    dim: int
    variance: float = shown("{:,.2f}", title="variance of q·k")
    scaled_variance: float = shown("{:,.2f}", title="of q·k / √D")
    gradient: float = shown("{:.3f}", title="slope of the softmax")
    scaled_gradient: float = shown("{:.3f}", title="divided by √D")


@dataclass(frozen=True)
class ScaleDemo(Result):
    """Why scores are divided by √D: the variance of q·k is D, and a sure softmax has no slope."""

    rows: list[ScaleRow] = shown(title="32 keys, numbers of variance 1")


@dataclass(frozen=True)
class WarmUpRow(Row):
    """One model of six blocks, trained from its start."""

    start: Start
    norm: Norm
    warm_up: int = shown(title="steps of warm-up")
    loss: float = shown("{:.2f}")


@dataclass(frozen=True)
class WarmUpDemo(Result):
    """Copying {letters} letters after {steps} steps; who guesses has a loss of {chance:.2f}."""

    steps: int = shown(table=False)
    letters: int = shown(table=False)
    chance: float = shown(table=False)
    runs: list[WarmUpRow] = shown()
    verdict: str = shown()


@verb
def demo(
    name: Literal["dates", "scale", "warm-up"] = "dates", *, out: str | Path = "regard-demo"
) -> DateDemo | ScaleDemo | WarmUpDemo:
    """Train something to be seen in a minute, or put a claim to the test.

    Args:
        name: dates trains a Transformer; scale shows why scores are divided by √D; warm-up, where
            post-norm needs one.
        out: the folder that dates writes, new or empty.

    Example:
        >>> regard.demo("scale").rows[-1].scaled_variance
        $ regard demo
        $ regard demo scale
        $ regard demo warm-up
    """
    if name == "scale":
        return show_scale()
    return train_on_dates(Path(out)) if name == "dates" else compare_warm_ups()


def make_dates(count: int, seed: int) -> list[tuple[str, str]]:
    """Pairs such as ("Sunday 3 May 1998", "1998-05-03"), no day twice."""
    dice, first = random.Random(seed), date(1900, 1, 1).toordinal()
    pairs = []
    for number in dice.sample(range(first, date(2050, 1, 1).toordinal()), count):
        day = date.fromordinal(number)
        form = dice.choice(
            ("{0:%A} {0.day} {0:%B %Y}", "{0.day} {0:%B %Y}", "{0:%B} {0.day}, {0:%Y}")
        )
        pairs.append((form.format(day), day.isoformat()))
    return pairs


def train_on_dates(out: Path, steps: int = STEPS) -> DateDemo:
    """Train a small encoder-decoder on pairs of characters, and ask it for other days."""
    from regard.train import seq2seq
    from regard.train.config import DataConfig, ShapeConfig, TrainConfig
    from regard.train.results import Run

    check_new(out, "running the demonstration")
    pairs = make_dates(KNOWN + ASKED, current().seed)
    known, asked = pairs[:KNOWN], pairs[KNOWN:]
    out.mkdir(parents=True, exist_ok=True)
    file = out / "dates.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in known))
    note(f"training a Transformer on {KNOWN:,} dates such as {known[0][0]!r}: half a minute")
    began = time.perf_counter()
    config = TrainConfig(
        steps=steps,
        batch_tokens=1024,
        optimizer="muon",
        lr=0.01,
        warm_up=30,
        smoothing=0.1,
        eval_every=0,
        save_every=steps,
        log_every=max(steps // 5, 1),
    )
    shape = ShapeConfig(dim=64, depth=1, heads=4, pre_norm=True)
    data = DataConfig(tokens="chars", holdout=0.0)
    run = cast(Run, seq2seq(file, out=out / "run", config=config, shape=shape, data=data))
    seconds, kit = time.perf_counter() - began, run.kit
    rows = kit.search(kit.batch([source for source, _ in asked]), 16)
    answers = [
        DateAnswer(source, text := kit.text(row[0].tokens), text == target)
        for (source, target), row in zip(asked, rows, strict=True)
    ]
    model, example = out / "run" / "final", asked[0][0]
    return DateDemo(
        pairs=KNOWN,
        parameters=sum(parameter.numel() for parameter in kit.model.parameters()),
        steps=steps,
        seconds=seconds,
        right=sum(answer.right for answer in answers),
        asked=ASKED,
        answers=answers[:8],
        folder=str(out),
        next=[
            f'regard translate "{example}" --model {model} --alternatives 3',
            f'regard look attention {model} "{example}" --save attention.html',
            'regard translate "Il m\'a entarté" --alternatives 4',
            "regard demo scale",
        ],
    )


def show_scale() -> ScaleDemo:
    """Measure variance and slope on random queries and keys."""
    import torch

    draw = torch.Generator().manual_seed(current().seed)
    rows = []
    for dim in (4, 16, 64, 256, 1024):
        q, k = torch.randn(2, 500, 32, dim, generator=draw)
        scores = (q[:, :1] * k).sum(-1)  # (500, 32): one query, 32 keys
        measured = []
        for scaled in (scores, scores / dim**0.5):
            a = scaled.softmax(-1)
            slope = a.diag_embed() - a[:, :, None] * a[:, None]  # the softmax's Jacobian
            measured.append((float(scaled.var()), float(slope.flatten(1).norm(dim=1).mean())))
        (variance, gradient), (less, more) = measured
        rows.append(ScaleRow(dim, variance, less, gradient, more))
    return ScaleDemo(rows)


def compare_warm_ups(steps: int = 160) -> WarmUpDemo:
    """Train post-norm and pre-norm with and without a warm-up, from two kinds of weights.

    Xavier is how the Transformer of 2017 began; small is what `Model.fresh` draws.
    """
    cases: list[tuple[Start, Norm]] = [("Xavier", "post"), ("Xavier", "pre"), ("small", "post")]
    plans = [(start, norm, warm) for start, norm in cases for warm in (0, steps // 2)]
    runs = [
        WarmUpRow(start, norm, warm, train_to_copy(start, norm, warm, steps))
        for start, norm, warm in track(plans, "training six models")
    ]
    half = math.log(LETTERS) / 2
    failed = [
        f"{run.norm}-norm from {run.start}" for run in runs if run.loss > half and not run.warm_up
    ]
    saved = all(run.loss < half for run in runs if run.warm_up)
    verdict = "none of them needs a warm-up here"
    if failed:
        verdict = f"without warm-up {', '.join(failed)} does not learn it"
        verdict += "; with it all do" if saved else "; with it, not all do"
    return WarmUpDemo(steps, COPIED, math.log(LETTERS), runs, verdict)


def train_to_copy(start: Start, norm: Norm, warm_up: int, steps: int, lr: float = 4e-3) -> float:
    """The loss, mean of the last steps, of a decoder that is to say letters once more."""
    import torch
    from torch import nn

    from regard.model.batch import Batch
    from regard.model.model import Model
    from regard.model.presets import gpt2

    config = gpt2(64, 6, 4, LETTERS, 2 * COPIED)
    block = replace(config.last.block, norm_at=norm)
    stack = replace(config.last, block=block, final_norm=norm == "pre")
    model = Model.fresh(replace(config, decoder=stack), current().seed).train()
    draw = torch.Generator().manual_seed(current().seed)
    if start == "Xavier":
        for weight in model.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight, generator=draw)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98))
    losses = []
    for step in range(steps):
        ids = torch.randint(LETTERS, (32, COPIED), generator=draw).repeat(1, 2)
        optimizer.param_groups[0]["lr"] = lr * min(1.0, (step + 1) / max(warm_up, 1))
        scores = model(Batch(ids[:, :-1]))[:, COPIED - 1 :]
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, COPIED:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return sum(losses[-20:]) / len(losses[-20:])
