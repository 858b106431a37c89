"""Teach a small encoder-decoder to copy, reverse or sort strings, and count its mistakes.

    python examples/toy_tasks.py copy|reverse|sort

You will see the loss fall over freshly drawn strings of 1 to 10 digits, then the share of 1,000
other strings that are right to the last digit, some of them, and the seconds that training and
evaluation took. Below 99 % the exit code is 1. Under half a minute each on one core.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import regard
from regard.data.windows import Examples
from regard.decode.loop import run_search
from regard.decode.sampling import Ends
from regard.decode.step import without_end
from regard.model.batch import Batch, pad_rows
from regard.model.model import Model
from regard.model.presets import transformer
from regard.train.config import TrainConfig
from regard.train.trainer import Trainer, TrainJob

LONGEST, START, END = 10, 10, 11  # symbols are the digits 0 to 9
GOAL = 0.99

Word = list[int]
TASKS: dict[str, Callable[[Word], Word]] = {
    "copy": lambda word: word,
    "reverse": lambda word: word[::-1],
    "sort": sorted,
}


def draw(count: int, seed: int) -> list[Word]:
    """Strings of 1 to 10 digits, every length as often as the others."""
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (count,), generator=dice).tolist()
    return [torch.randint(0, 10, (n,), generator=dice).tolist() for n in lengths]


class Strings:
    """Batches without end, none like another: a source for the training loop."""

    def __init__(self, task: str, rows: int, seed: int) -> None:
        self.answer, self.rows, self.seed = TASKS[task], rows, seed

    def count(self, epoch: int) -> int:
        """Batches of an epoch: as many as anyone asks for."""
        return sys.maxsize

    def batch(self, epoch: int, index: int) -> Examples:
        """Strings + end; start + answers, which the decoder reads; answers + end, its labels."""
        words = draw(self.rows, seed=self.seed * 1_000_000 + index)
        answers = [self.answer(word) for word in words]
        inputs, real = pad_rows([[*word, END] for word in words])
        target, mask = pad_rows([[START, *answer] for answer in answers])
        labels, _ = pad_rows([[*answer, END] for answer in answers], pad=-100)
        return Examples(inputs, labels, int((labels >= 0).sum()), target, mask, source_mask=real)


def train(task: str, steps: int, seed: int) -> Model:
    """A model that has seen `steps` batches, by the training loop of the package."""
    model = Model.fresh(transformer(dim=64, depth=2, heads=4, vocab=12, pre=True), seed)
    config = TrainConfig(
        steps=steps, lr=3e-3, beta2=0.98, save_every=steps, log_every=max(1, steps // 5)
    )
    with tempfile.TemporaryDirectory() as folder:
        job = TrainJob(
            config,
            model,
            Strings(task, rows=64, seed=seed),
            Path(folder),
            save=lambda path, trained: regard.Kit(trained).save(path),
            seed=seed,
            report=lambda line: print(f"  step {line['step']:5d}  loss {line['loss']:.4f}"),
        )
        Trainer(job).run()
    return model.eval()


def solve(model: Model, words: list[Word]) -> list[Word]:
    """What the model writes for each string, greedily."""
    inputs, real = pad_rows([[*word, END] for word in words])
    start = torch.full((len(words), 1), START)
    found = run_search(model, Batch(inputs, start, source_mask=real), LONGEST + 1, ends=Ends({END}))
    return [without_end(row[0].tokens, {END}) for row in found]


def text(word: Word) -> str:
    """Symbols as they are typed."""
    return "".join(map(str, word))


def main(task: str, steps: int, seed: int = 0) -> float:
    """Train, evaluate, show; returns the share of strings that are wholly right."""
    begin = time.perf_counter()
    print(f"learning to {task}: {steps} batches")
    model = train(task, steps, seed)
    trained = time.perf_counter()
    words = draw(1000, seed=-1 - seed)
    found = solve(model, words)
    wanted = [TASKS[task](word) for word in words]
    right = sum(f == w for f, w in zip(found, wanted, strict=True)) / len(words)
    done = time.perf_counter()
    for word, answer in list(zip(words, found, strict=True))[:4]:
        print(f"  {text(word)} → {text(answer)}")
    print(f"{right:.1%} of {len(words):,} fresh strings exact")
    print(f"trained in {trained - begin:.1f} s, evaluated in {done - trained:.1f} s")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Copy, reverse or sort strings.")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)  # products this small are no faster on two
    sys.exit(main(given.task, given.steps, given.seed) < GOAL)
