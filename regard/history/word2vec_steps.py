"""Drawing word2vec's examples and learning from them: in C (`word2vec.c`) or, slower, in numpy.

Both draw the same examples, bit by bit; the sums of learning are added in another order.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.order import mix as mix_all
from regard.native.build import NativeLibrary, build_library, vector_flags

Floats = NDArray[np.float32]
Short = NDArray[np.int32]
Ids = NDArray[np.int64]
Bits = NDArray[np.uint64]

LANES, MOST, STEPS, REACH = 16, 64, 1024, 8  # as word2vec.c has them
GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=fast"]


@dataclass(frozen=True)
class Plan:
    """How examples are drawn from a text; without `paths` by negative sampling."""

    ids: Short  # (N,) the text
    keep: Bits  # (V,) a word stays where 32 random bits are below this
    alias: NDArray[np.uint32]  # (V, 2) Walker's tables of the noise: a threshold, another word
    paths: Ids | None  # (V + 1,) where a word's targets begin in `nodes`
    nodes: Short  # 2 · inner node + label on the way to each word
    window: int
    negative: int
    cbow: bool

    def room(self, words: int) -> int:
        """Numbers that the examples of so many words have at most."""
        targets = MOST if self.paths is not None else 1 + self.negative
        around = 2 * self.window
        return words * (2 + around + targets if self.cbow else around * (3 + targets))


class Steps(Protocol):
    """Who draws and learns."""

    def draw(self, bounds: Ids, key: int) -> Short:
        """The examples of the sentences between `bounds`, one after the other (word2vec.c)."""

    def learn(self, examples: Short, lr: float) -> None:
        """A step of gradient descent for each example, in order."""


def mix(x: int) -> int:
    """SplitMix64's finaliser (Steele 2014)."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def make_steps(plan: Plan, inputs: Floats, outputs: Floats) -> Steps:
    """In C where that can be; the matrices (rows, width) change in place."""
    library = find_library().library
    if library is None:
        return PlainSteps(plan, inputs, outputs)
    return NativeSteps(library, plan, inputs, outputs)


# In C ---------------------------------------------------------------------------------------------


class DrawStruct(ctypes.Structure):
    """`Draw` of word2vec.c."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ids", "keep", "alias", "paths", "nodes")]
    _fields_ += [(name, ctypes.c_int64) for name in ("vocab", "window", "negative", "cbow")]


@cache
def find_library() -> NativeLibrary:
    """word2vec.c with the vectors of this machine, or why not."""
    made = build_library("word2vec.c", [*FLAGS, *vector_flags()])
    if made.library is not None:
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        draw, learn = made.library.draw, made.library.learn
        draw.argtypes = [pointer, pointer, whole, ctypes.c_uint64, pointer, pointer, pointer]
        draw.restype = whole
        learn.argtypes = [pointer, whole, pointer, pointer, whole, ctypes.c_float, pointer, pointer]
        learn.restype = None
    return made


class NativeSteps:
    """Calls into C, during which Python's other threads run on."""

    def __init__(self, library: ctypes.CDLL, plan: Plan, inputs: Floats, outputs: Floats) -> None:
        self.library, self.plan, self.inputs, self.outputs = library, plan, inputs, outputs
        paths = None if plan.paths is None else plan.paths.ctypes.data
        self.struct = DrawStruct(
            *(plan.ids.ctypes.data, plan.keep.ctypes.data, plan.alias.ctypes.data),
            *(paths, plan.nodes.ctypes.data),
            *(len(plan.keep), plan.window, plan.negative, plan.cbow),
        )
        self.width = inputs.shape[1]
        self.table = sigmoid(np.arange(STEPS + 2) * (2 * REACH / STEPS) - REACH).astype(np.float32)
        self.work = np.zeros((2, self.width), np.float32)

    def draw(self, bounds: Ids, key: int) -> Short:
        """See `Steps`."""
        count, longest = int(bounds[-1] - bounds[0]), int(np.diff(bounds).max(initial=0))
        out = np.empty(self.plan.room(count), np.int32)
        words, places = np.empty(longest, np.int32), np.empty(longest, np.uint64)
        size = self.library.draw(
            *(ctypes.byref(self.struct), bounds.ctypes.data, len(bounds) - 1, key),
            *(words.ctypes.data, places.ctypes.data, out.ctypes.data),
        )
        return out[:size]

    def learn(self, examples: Short, lr: float) -> None:
        """See `Steps`."""
        self.library.learn(
            *(examples.ctypes.data, len(examples), self.inputs.ctypes.data),
            *(self.outputs.ctypes.data, self.width, lr, self.table.ctypes.data),
            self.work.ctypes.data,
        )


# In numpy -----------------------------------------------------------------------------------------


def sigmoid(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """1 / (1 + exp(−x))."""
    made: NDArray[np.floating] = 1 / (1 + np.exp(-x))
    return made


def stream(state: int, first: int, count: int) -> Bits:
    """Random numbers `first`, `first` + 1, … of a place."""
    return mix_all(np.arange(first, first + count, dtype=np.uint64) * np.uint64(GOLDEN) + state)


class PlainSteps:
    """The same for machines without a compiler: an example at a time."""

    def __init__(self, plan: Plan, inputs: Floats, outputs: Floats) -> None:
        self.plan, self.inputs, self.outputs = plan, inputs, outputs

    def draw(self, bounds: Ids, key: int) -> Short:
        """See `Steps`."""
        made: list[int] = []
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
            at = np.arange(begin, end).astype(np.uint64)
            states = mix_all(at * np.uint64(GOLDEN) + np.uint64(key))
            words = self.plan.ids[begin:end]
            chance = mix_all(states + np.uint64(GOLDEN)) >> np.uint64(32)
            kept = chance < self.plan.keep[words]
            self.draw_sentence(words[kept].tolist(), states[kept].tolist(), made)
        return np.array(made, np.int32)

    def draw_sentence(self, words: list[int], states: list[int], made: list[int]) -> None:
        """The examples of the words that stayed."""
        plan = self.plan
        for at, (word, state) in enumerate(zip(words, states, strict=True)):
            reach = 1 + ((int(stream(state, 2, 1)[0]) >> 32) * plan.window >> 32)
            around = words[max(0, at - reach) : at] + words[at + 1 : at + 1 + reach]
            aims = [word] if plan.cbow else around
            noise = self.noise(stream(state, 3, len(aims) * plan.negative))
            for n, aim in enumerate(aims if around else ()):
                inputs = around if plan.cbow else [word]
                targets = self.targets(aim, noise[n * plan.negative : (n + 1) * plan.negative])
                made += [len(inputs), len(targets), *inputs, *targets]

    def noise(self, bits: Bits) -> list[int]:
        """Words drawn by Walker's tables."""
        first = (bits >> np.uint64(32)) * np.uint64(len(self.plan.keep)) >> np.uint64(32)
        threshold, other = self.plan.alias[first.astype(np.int64)].T
        low = bits & np.uint64(0xFFFFFFFF)
        drawn: list[int] = np.where(low >= threshold, other, first).tolist()
        return drawn

    def targets(self, word: int, noise: list[int]) -> list[int]:
        """The way to a word, or the word and the noise that is not the word."""
        paths = self.plan.paths
        if paths is not None:
            way: list[int] = self.plan.nodes[paths[word] : paths[word + 1]].tolist()
            return way
        return [2 * word + 1, *(2 * other for other in noise if other != word)]

    def learn(self, examples: Short, lr: float) -> None:
        """See `Steps`."""
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
