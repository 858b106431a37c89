"""A small Transformer that says yes or no to sequences, trained on labelled ones.

Two blocks of two heads, width 32, sinusoidal positions; a class token in front, whose vector is
read. A few dozen lines it knows by heart at once, so what it is worth is measured on lines that it
was not trained on.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from torch import Tensor

from regard.core.config import BlockConfig, StackConfig
from regard.data.windows import IGNORED, Examples
from regard.errors import DataError
from regard.lang.kinds import Word
from regard.model.batch import Batch, pad_rows
from regard.model.config import HeadConfig, ModelConfig, TextConfig
from regard.model.model import Model
from regard.train.config import TrainConfig
from regard.train.loop import Job, Trainer

Watch = Callable[[float], None]
"""Called with the share that is done."""

CLASS, UNKNOWN = 0, 1  # ids; symbols follow
SMALL = {True: 0.01, False: 0.001}  # loss at which all is learnt: of all words, of a part of them
ROWS = 128  # sequences of a training step; a run takes eight times as many


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes and steps."""

    dim: int = 32
    """Width of the residual stream."""
    depth: int = 2
    """Blocks."""
    heads: int = 2
    """Attention heads of a block."""
    steps: int = 200
    """Optimizer steps at most; it ends sooner when all is learnt."""
    lr: float = 3e-3
    """Peak learning rate."""
    seed: int = 0
    """Of weights and of the order of lines."""


DEFAULT = NetworkConfig()


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
        made = torch.zeros(len(words))
        for at in range(0, len(order), 8 * ROWS):
            part = order[at : at + 8 * ROWS]
            logits = self.model(self.batch([words[n] for n in part]).to(self.model.device))
            made[part] = (logits[:, 0, 1] - logits[:, 0, 0]).cpu()
        return made

    def decide(self, words: Sequence[Word]) -> list[bool]:
        """Yes or no to each."""
        return [bool(said) for said in self.margins(words) > 0]

    def accuracy(self, words: Sequence[Word], labels: Sequence[bool]) -> float:
        """Share of words with the right answer."""
        said = self.decide(words)
        return sum(a == b for a, b in zip(said, labels, strict=True)) / max(1, len(words))


def shape(config: NetworkConfig, symbols: int) -> ModelConfig:
    """An encoder with two scores at each position; those of the class token count."""
    block = BlockConfig(config.dim, config.heads, 4 * config.dim)
    front = TextConfig(config.dim, symbols + UNKNOWN + 1, position="sinusoidal")
    return ModelConfig(front, HeadConfig(2, bias=True), StackConfig(block, config.depth))


def train_network(
    words: Sequence[Word],
    labels: Sequence[bool],
    config: NetworkConfig = DEFAULT,
    alphabet: Sequence[str] | None = None,
    device: str = "cpu",
    watch: Watch | None = None,
) -> Network:
    """Train until every word has its label and the loss is small, or the steps are over."""
    if not words:
        raise DataError("training a network", "no sequences", "at least one")
    symbols = alphabet or sorted({symbol for word in words for symbol in word})
    model = Model.fresh(shape(config, len(symbols)), config.seed).to(device).train()
    network, dice = Network(tuple(symbols), model), Random(config.seed)
    options = TrainConfig(
        steps=config.steps, lr=config.lr, warm_up=min(20, config.steps), weight_decay=0.01
    )
    trainer = Trainer(Job(options, model))
    small, rows, all_at_once = 0, range(len(words)), len(words) <= ROWS
    for step in range(config.steps):
        chosen = rows if all_at_once else dice.sample(rows, ROWS)
        batch = network.batch([words[n] for n in chosen])
        answers = torch.full_like(batch.inputs, IGNORED)
        answers[:, 0] = torch.tensor([int(labels[n]) for n in chosen])
        made = trainer.step([Examples(batch.inputs, answers, len(answers), mask=batch.mask)])
        small = small + 1 if made["nll"] < SMALL[all_at_once] else 0
        if watch is not None:
            watch((step + 1) / config.steps)
        if small >= 30:
            break
    model.eval()
    return network


@dataclass(frozen=True)
class Validation:
    """How many lines were right while they were left out of training."""

    right: int
    """Lines with the right answer, over all seeds."""
    total: int
    folds: int
    seeds: tuple[float, ...]
    """Accuracy with each seed."""
    majority: float
    """Accuracy of always saying the more frequent label."""

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.right / max(1, self.total)


def cross_validate(
    words: Sequence[Word],
    labels: Sequence[bool],
    config: NetworkConfig = DEFAULT,
    folds: int = 10,
    seeds: int = 3,
    device: str = "cpu",
    watch: Watch | None = None,
    seconds: float = math.inf,
) -> Validation:
    """Train on all but one fold and test on it, for each fold; equal lines share a fold.

    No other seed is begun once the seconds are up.
    """
    end = time.monotonic() + seconds
    alphabet = sorted({symbol for word in words for symbol in word})
    shares, right, runs = [], 0, 0
    for seed in range(seeds):
        if seed and time.monotonic() > end:
            break
        homes = deal(words, labels, folds, Random(seed))
        found = 0
        for fold in range(max(homes, default=-1) + 1):
            inside = [n for n, home in enumerate(homes) if home != fold]
            outside = [n for n, home in enumerate(homes) if home == fold]
            made = train_network(
                [words[n] for n in inside],
                [labels[n] for n in inside],
                replace(config, seed=config.seed + seed),
                alphabet,
                device,
            )
            tested = [words[n] for n in outside], [labels[n] for n in outside]
            found += round(made.accuracy(*tested) * len(outside))
            runs += 1
            if watch is not None:
                watch(runs / (seeds * folds))
        right += found
        shares.append(found / len(words))
    common = max(Counter(labels).values()) / len(labels)
    return Validation(right, len(shares) * len(words), max(homes) + 1, tuple(shares), common)


def deal(words: Sequence[Word], labels: Sequence[bool], folds: int, dice: Random) -> list[int]:
    """A fold for each word: as many of each label in each, equal words in the same one."""
    kinds: dict[Word, list[int]] = {}
    for n, word in enumerate(words):
        kinds.setdefault(tuple(word), []).append(n)
    groups = list(kinds.values())
    dice.shuffle(groups)
    groups.sort(key=lambda group: labels[group[0]])
    if len(groups) < 2:
        raise DataError(
            "validating a network",
            f"{len(groups)} different lines",
            "two or more, to train on some and test on others",
        )
    folds = min(folds, len(groups))
    homes = [0] * len(words)
    for place, group in enumerate(groups):
        for n in group:
            homes[n] = place % folds
    return homes
