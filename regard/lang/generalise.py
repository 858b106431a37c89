"""Does what was learnt on short sequences hold on long ones? (Delétang et al. 2023.)

A model reads the input, then as many empty tokens as there are answers, and answers there. It is
trained on lengths 1 to 40 and tested on longer ones; the score is the share of right symbols, its
mean over lengths. Chosen by nothing: the last step counts, for to stop by what long sequences say
would be to train on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch

from regard.core.config import BlockConfig, StackConfig
from regard.data.windows import IGNORED, Examples, mask_of, tensor
from regard.lang.tasks import Task
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ModelConfig, RecurrentConfig, TextConfig
from regard.model.model import Model
from regard.model.recurrent import Recurrent
from regard.train.config import TrainConfig
from regard.train.loop import Job, Trainer

Watch = Callable[[int, float], None]
"""Called with the number of steps done and the loss."""

ADDED = {"none": "none", "sinusoidal": "sinusoidal", "randomised": "sinusoidal"}
INSIDE = ("rotary", "relative", "alibi")
CELLS = ("rnn", "lstm", "gru")
MODELS = (*ADDED, *INSIDE, *CELLS)
"""A Transformer by its positions, or a recurrent model by its cell."""

ROWS = 16  # long sequences that are tested together
SPREAD = 2048  # positions that randomised ones are drawn from (Ruoss et al. 2023)


@dataclass(frozen=True)
class Lesson:
    """Examples of a task up to a length; a batch is a pure function of seed and number."""

    task: Task
    longest: int = 40
    rows: int = 128
    seed: int = 0

    def batch(self, number: int) -> Examples:
        """Rows of any length, padded to one shape, so that a step can be compiled."""
        dice = Random(f"{self.seed} {number}")
        lengths = [dice.randint(self.task.least, self.longest) for _ in range(self.rows)]
        return lay_out(self.task, lengths, dice, self.longest)


def lay_out(task: Task, lengths: Sequence[int], dice: Random, longest: int) -> Examples:
    """Questions with empty tokens behind them; labels there, where the answer counts."""
    shape = len(lengths), longest + task.answer_length(longest)
    ids = np.full(shape, task.inputs, np.int64)  # the empty token
    labels, real = np.full(shape, IGNORED, np.int64), np.zeros(shape, bool)
    for row, length in enumerate(lengths):
        question, answer = task.sample(length, dice)
        start, end = len(question), len(question) + len(answer)
        ids[row, :start] = question
        labels[row, start:end] = np.where(task.counts(answer), answer, IGNORED)
        real[row, :end] = True
    count = int((labels != IGNORED).sum())
    return Examples(tensor(ids), tensor(labels), count, mask=mask_of(real))


def build(name: str, task: Task, seed: int = 0) -> Model:
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


def train(
    name: str, lesson: Lesson, steps: int, lr: float = 1e-3, device: str = "cpu",
    watch: Watch | None = None,
) -> Model:  # fmt: skip
    """A model trained on a lesson; on a GPU the step of a Transformer is compiled."""
    model = build(name, lesson.task, lesson.seed).to(device).train()
    config = TrainConfig(
        steps=steps,
        lr=lr,
        warm_up=min(steps, 200),
        weight_decay=0.0,
        dropout=0.1,
        compile=device == "cuda" and name not in CELLS,
    )
    trainer = Trainer(Job(config, model))
    for index in range(steps):
        made = trainer.step([lesson.batch(index)])
        if watch is not None:
            watch(index + 1, made["nll"])
    return model.eval()


@torch.no_grad()
def accuracy(model: Model, task: Task, length: int, rows: int = 64, seed: int = 0) -> float:
    """The share of right symbols in fresh sequences of a length; a mean over rows of like size."""
    examples = lay_out(task, [length] * rows, Random(f"test {seed} {length}"), length)
    batch, right = Batch(**examples.parts()), 0
    for at in range(0, rows, ROWS):
        part = batch.each(lambda x, at=at: x[at : at + ROWS])  # type: ignore[misc]
        said = model(part.to(model.device)).argmax(-1).cpu()
        right += int((said == examples.labels[at : at + ROWS]).sum())
    return right / max(1, examples.tokens)
