"""A tiny Transformer that says yes or no to sequences, trained on labelled ones.

Two blocks of two heads, width 32, sinusoidal positions; a class token in front, whose vector is
read. A few dozen lines it knows by heart at once, so what it is worth is measured on lines that it
was not trained on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from regard.ambient import choose_device, track
from regard.core.config import BlockConfig, StackConfig
from regard.data.windows import IGNORED, Examples
from regard.errors import DataError
from regard.formal.dfa import Word
from regard.model.batch import Batch, pad_rows
from regard.model.config import HeadConfig, ModelConfig, TextConfig
from regard.model.model import Model
from regard.train.config import TrainConfig
from regard.train.trainer import Trainer, TrainJob

CLASS, UNKNOWN = 0, 1  # ids; symbols follow
SMALL = {True: 0.01, False: 0.001}  # loss at which all is learnt: of all words, of a part of them
ROWS = 128  # sequences of a training step; a run takes eight times as many
DIM, DEPTH, HEADS, LR = 32, 2, 2, 3e-3


@dataclass(frozen=True)
class Network:
    """A trained model and the symbols that it knows."""

    alphabet: tuple[str, ...]
    model: Model

    def batch(self, words: Sequence[Word]) -> Batch:
        """A class token and the symbols of each word."""
        number = {symbol: n for n, symbol in enumerate(self.alphabet, UNKNOWN + 1)}
        rows = [[CLASS, *(number.get(symbol, UNKNOWN) for symbol in word)] for word in words]
        ids, mask = pad_rows(rows)
        return Batch(ids, mask=mask)

    @torch.no_grad()
    def margins(self, words: Sequence[Word]) -> Tensor:
        """(N,): how much more yes than no, as a difference of logits."""
        order = sorted(range(len(words)), key=lambda n: len(words[n]))
        margins = torch.zeros(len(words))
        for at in range(0, len(order), 8 * ROWS):
            part = order[at : at + 8 * ROWS]
            logits = self.model(self.batch([words[n] for n in part]).to(self.model.device))
            margins[part] = (logits[:, 0, 1] - logits[:, 0, 0]).cpu()
        return margins

    def decide(self, words: Sequence[Word]) -> list[bool]:
        """Yes or no to each."""
        return [bool(said) for said in self.margins(words) > 0]

    def accuracy(self, words: Sequence[Word], labels: Sequence[bool]) -> float:
        """Share of words with the right answer."""
        said = self.decide(words)
        return sum(a == b for a, b in zip(said, labels, strict=True)) / max(1, len(words))


def train_network(
    words: Sequence[Word],
    labels: Sequence[bool],
    steps: int = 200,
    seed: int = 0,
    alphabet: Sequence[str] | None = None,
) -> Network:
    """Train until every word has its label and the loss is small, or the steps are over."""
    symbols = alphabet or sorted({symbol for word in words for symbol in word})
    front = TextConfig(DIM, len(symbols) + UNKNOWN + 1, position="sinusoidal")
    stack = StackConfig(BlockConfig(DIM, HEADS, 4 * DIM), DEPTH)
    shape = ModelConfig(front, HeadConfig(2, bias=True), stack)
    model = Model.fresh(shape, seed).to(choose_device()).train()
    network, rng = Network(tuple(symbols), model), Random(seed)
    options = TrainConfig(steps=steps, lr=LR, warm_up=min(20, steps), weight_decay=0.01)
    trainer = Trainer(TrainJob(options, model))
    small, rows, all_at_once = 0, range(len(words)), len(words) <= ROWS
    for _ in track(range(steps), "training a network, step"):
        chosen = rows if all_at_once else rng.sample(rows, ROWS)
        batch = network.batch([words[n] for n in chosen])
        answers = torch.full_like(batch.inputs, IGNORED)
        answers[:, 0] = torch.tensor([int(labels[n]) for n in chosen])
        metrics = trainer.step([Examples(batch.inputs, answers, len(answers), mask=batch.mask)])
        small = small + 1 if metrics["nll"] < SMALL[all_at_once] else 0
        if small >= 30:
            break
    model.eval()
    return network


def cross_validate(
    words: Sequence[Word],
    labels: Sequence[bool],
    steps: int = 200,
    seed: int = 0,
    folds: int = 10,
    seeds: int = 3,
    seconds: float = math.inf,
) -> list[float]:
    """Accuracy on lines while they were left out of training, fold by fold, with each seed.

    Equal lines share a fold. No other seed is begun once the seconds are up.
    """
    end = time.monotonic() + seconds
    alphabet = sorted({symbol for word in words for symbol in word})
    by_seed: list[float] = []
    for more in range(seeds):
        if more and time.monotonic() > end:
            break
        homes = deal(words, labels, folds, Random(more))
        right = 0
        for fold in track(range(max(homes) + 1), f"validating with seed {more}, fold"):
            inside = [n for n, home in enumerate(homes) if home != fold]
            lesson = [words[n] for n in inside], [labels[n] for n in inside]
            network = train_network(*lesson, steps, seed + more, alphabet)
            outside = [n for n, home in enumerate(homes) if home == fold]
            said = network.decide([words[n] for n in outside])
            right += sum(labels[n] == yes for n, yes in zip(outside, said, strict=True))
        by_seed.append(right / len(words))
    return by_seed


def deal(words: Sequence[Word], labels: Sequence[bool], folds: int, rng: Random) -> list[int]:
    """A fold for each word: as many of each label in each, equal words in the same one."""
    kinds: dict[Word, list[int]] = {}
    for n, word in enumerate(words):
        kinds.setdefault(tuple(word), []).append(n)
    groups = list(kinds.values())
    rng.shuffle(groups)
    groups.sort(key=lambda group: labels[group[0]])
    if len(groups) < 2:
        expected = "two or more, to train on some and test on others"
        raise DataError("validating a network", f"{len(groups)} different lines", expected)
    folds = min(folds, len(groups))
    home = {n: place % folds for place, group in enumerate(groups) for n in group}
    return [home[n] for n in range(len(words))]
