"""Does what was learnt on short sequences hold on long ones? (Delétang et al. 2023.)

A model reads the input, then as many empty tokens as there are answers, and answers there. It is
trained on lengths 1 to 40 and tested on longer ones; the score is the share of right symbols, its
mean over lengths. Chosen by nothing: the last step counts, for to stop by what long sequences say
would be to train on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch

from regard.ambient import choose_device, note, track
from regard.core.config import BlockConfig, StackConfig
from regard.data.windows import IGNORED, Examples, mask_of, tensor
from regard.formal.results import NEAR, LengthRun
from regard.formal.tasks import LengthTask
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ModelConfig, RecurrentConfig, TextConfig
from regard.model.model import Model
from regard.model.recurrent import Recurrent
from regard.train.config import TrainConfig
from regard.train.trainer import Trainer, TrainJob

ADDED = {"none": "none", "sinusoidal": "sinusoidal", "randomised": "sinusoidal"}
INSIDE = ("rotary", "relative", "alibi")
CELLS = ("rnn", "lstm", "gru")
"""Models by name: a Transformer's added or inner positions, or a recurrent network's cell."""

ROWS = 16  # long sequences that are tested together
SPREAD = 2048  # positions that randomised ones are drawn from (Ruoss et al. 2023)
EACH = 20  # of lengths above NEAR, every so many-th is tested


@dataclass(frozen=True)
class Lesson:
    """Examples of a task up to a length; a batch is a pure function of seed and number."""

    task: LengthTask
    longest: int = 40
    rows: int = 128
    seed: int = 0

    def batch(self, number: int) -> Examples:
        """Rows of any length, padded to one shape, so that a step can be compiled."""
        rng = Random(f"{self.seed} {number}")
        lengths = [rng.randint(self.task.least, self.longest) for _ in range(self.rows)]
        return lay_out(self.task, lengths, rng, self.longest)


def lay_out(task: LengthTask, lengths: Sequence[int], rng: Random, longest: int) -> Examples:
    """Questions with empty tokens behind them; labels there, where the answer counts."""
    shape = len(lengths), longest + len(task.sample(longest, Random(0))[1])
    ids = np.full(shape, task.inputs, np.int64)  # the empty token
    labels, real = np.full(shape, IGNORED, np.int64), np.zeros(shape, bool)
    for row, length in enumerate(lengths):
        question, answer = task.sample(length, rng)
        start, end = len(question), len(question) + len(answer)
        ids[row, :start] = question
        labels[row, start:end] = np.where(task.counts(answer), answer, IGNORED)
        real[row, :end] = True
    count = int((labels != IGNORED).sum())
    return Examples(tensor(ids), tensor(labels), count, mask=mask_of(real))


def build(name: str, task: LengthTask, seed: int = 0) -> Model:
    """The models of the study: five blocks of eight heads, width 64; a cell of 256."""
    vocabulary, head = task.inputs + 1, HeadConfig(task.outputs, bias=True)
    if name in CELLS:
        front = TextConfig(64, vocabulary)
        cell: Any = name
        return Recurrent.fresh(RecurrentConfig(front, head, cell=cell, hidden=256), seed)
    block = BlockConfig(64, 8, 256, dropout=0.1)
    added: Any = ADDED.get(name, "none")
    inside: Any = name if name in INSIDE else "none"
    spread = SPREAD if name == "randomised" else 0
    front = TextConfig(64, vocabulary, position=added, spread=spread)
    stack = StackConfig(block, 5, inside, distance=32)  # longer ones share a bucket that was seen
    return Model.fresh(ModelConfig(front, head, stack), seed)


def train_model(
    name: str, lesson: Lesson, steps: int, lr: float = 1e-3, device: str = "cpu"
) -> tuple[Model, float]:
    """A model trained on a lesson, and its last loss; on a GPU a Transformer's step is compiled."""
    model = build(name, lesson.task, lesson.seed).to(device).train()
    config = TrainConfig(
        steps=steps,
        lr=lr,
        warm_up=min(steps, 200),
        weight_decay=0.0,
        dropout=0.1,
        compile=device == "cuda" and name not in CELLS,
    )
    torch.manual_seed(lesson.seed)  # of dropout
    trainer, loss = Trainer(TrainJob(config, model)), math.nan
    for index in track(range(steps), f"training {lesson.task.name}, {name}, step"):
        loss = trainer.step([lesson.batch(index)])["nll"]
    return model.eval(), loss


@torch.no_grad()
def accuracy(model: Model, task: LengthTask, length: int, rows: int = 64, seed: int = 0) -> float:
    """The share of right symbols in fresh sequences of a length; a mean over rows of like size."""
    examples = lay_out(task, [length] * rows, Random(f"test {seed} {length}"), length)
    batch, right = Batch(**examples.parts()), 0
    for at in range(0, rows, ROWS):
        part = batch.each(lambda x, at=at: x[at : at + ROWS])  # type: ignore[misc]
        said = model(part.to(model.device)).argmax(-1).cpu()
        right += int((said == examples.labels[at : at + ROWS]).sum())
    return right / max(1, examples.tokens)


def run_task(
    task: LengthTask,
    name: str,
    seed: int,
    steps: int,
    lr: float,
    lengths: tuple[int, int],
    rows: int,
) -> LengthRun:
    """One training up to a length and its test up to another."""
    short, long = lengths
    lesson = Lesson(task, short, seed=seed)
    model, loss = train_model(name, lesson, steps, lr, choose_device())
    tested = track(test_lengths(short, long), f"testing {task.name}, {name}, length")
    scores = {length: accuracy(model, task, length, rows, seed) for length in tested}
    recurrent = name in CELLS
    run = LengthRun(
        task=task.name,
        model=name,
        seed=seed,
        steps=steps,
        lr=lr,
        loss=loss,
        short=scores[short],
        near=mean_accuracy(scores, short, NEAR),
        far=mean_accuracy(scores, short, long) or 0.0,
        chance=task.chance,
        published=getattr(task.published, name if recurrent else "transformer", None),
        lengths=scores,
    )
    note(f"{task.name}, {name}, seed {seed}: length {short} {run.short:.1%}, after {run.far:.1%}")
    return run


def test_lengths(short: int, long: int) -> list[int]:
    """The longest of training, then every fifth to 100, then every 20th."""
    near = range(short + 5, min(NEAR, long) + 1, 5)
    return [short, *(near or [long]), *range(max(NEAR, short) + EACH, long + 1, EACH)]


def mean_accuracy(scores: dict[int, float], above: int, up_to: int) -> float | None:
    """Mean accuracy over lengths in (above, up_to], each length in between counting alike.

    Lengths are not tested in equal steps, so each stands for those since the one before it.
    """
    total, count, before = 0.0, 0, above
    for length in sorted(length for length in scores if above < length <= up_to):
        total, count = total + scores[length] * (length - before), count + length - before
        before = length
    return total / count if count else None
