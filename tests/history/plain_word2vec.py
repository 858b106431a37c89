"""word2vec's drawing and learning in numpy: what word2vec.c must agree with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.data.order import mix as mix_all
from regard.history.config import Word2VecConfig
from regard.history.word2vec import (
    GOLDEN,
    POWER,
    REACH,
    Bits,
    Floats,
    Ids,
    Short,
    WordCorpus,
    alias_table,
    chances,
)


def sigmoid(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """1 / (1 + exp(−x))."""
    made: NDArray[np.floating] = 1 / (1 + np.exp(-x))
    return made


def stream(state: int, first: int, count: int) -> Bits:
    """Random numbers `first`, `first` + 1, … of a place."""
    return mix_all(np.arange(first, first + count, dtype=np.uint64) * np.uint64(GOLDEN) + state)


class PlainSteps:
    """Draws and learns an example at a time."""

    def __init__(
        self, corpus: WordCorpus, config: Word2VecConfig, inputs: Floats, outputs: Floats
    ) -> None:
        self.ids, self.config, self.inputs, self.outputs = corpus.ids, config, inputs, outputs
        self.keep = chances(corpus.counts, config.subsample)
        self.alias = alias_table(corpus.counts.astype(np.float64) ** POWER)

    def draw(self, bounds: Ids, key: int) -> Short:
        """As `Steps` does."""
        made: list[int] = []
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
            at = np.arange(begin, end).astype(np.uint64)
            states = mix_all(at * np.uint64(GOLDEN) + np.uint64(key))
            words = self.ids[begin:end]
            chance = mix_all(states + np.uint64(GOLDEN)) >> np.uint64(32)
            kept = chance < self.keep[words]
            self.draw_sentence(words[kept].tolist(), states[kept].tolist(), made)
        return np.array(made, np.int32)

    def draw_sentence(self, words: list[int], states: list[int], made: list[int]) -> None:
        """The examples of the words that stayed."""
        plan, cbow = self.config, self.config.mode == "cbow"
        for at, (word, state) in enumerate(zip(words, states, strict=True)):
            reach = 1 + ((int(stream(state, 2, 1)[0]) >> 32) * plan.window >> 32)
            around = words[max(0, at - reach) : at] + words[at + 1 : at + 1 + reach]
            aims = [word] if cbow else around
            noise = self.noise(stream(state, 3, len(aims) * plan.negative))
            for n, aim in enumerate(aims if around else ()):
                inputs = around if cbow else [word]
                targets = self.targets(aim, noise[n * plan.negative : (n + 1) * plan.negative])
                made += [len(inputs), len(targets), *inputs, *targets]

    def noise(self, bits: Bits) -> list[int]:
        """Words drawn by Walker's tables."""
        first = (bits >> np.uint64(32)) * np.uint64(len(self.keep)) >> np.uint64(32)
        threshold, other = self.alias[first.astype(np.int64)].T
        low = bits & np.uint64(0xFFFFFFFF)
        drawn: list[int] = np.where(low >= threshold, other, first).tolist()
        return drawn

    def targets(self, word: int, noise: list[int]) -> list[int]:
        """The word and the noise that is not the word."""
        return [2 * word + 1, *(2 * other for other in noise if other != word)]

    def learn(self, examples: Short, lr: float) -> None:
        """As `Steps` does."""
        at = 0
        while at < len(examples):
            inputs, targets = examples[at : at + 2]
            middle = at + 2 + inputs
            rows, aims = examples[at + 2 : middle], examples[middle : middle + targets]
            h = self.inputs[rows].mean(0)  # (D,)
            out = self.outputs[aims >> 1]  # (targets, D)
            scores = np.clip(out @ h, -REACH, REACH)
            rates = (lr * ((aims & 1) - sigmoid(scores))).astype(np.float32)
            np.add.at(self.outputs, aims >> 1, rates[:, None] * h)
            np.add.at(self.inputs, rows, rates @ out)
            at = middle + targets
