"""word2vec: vectors of words from the words around them (Mikolov 2013).

Skip-gram predicts each word around from a word, CBOW a word from the mean of those around it, both
by negative sampling. Examples are drawn and learnt from in C (`word2vec.c`).

**The same bits at any number of workers.** Random numbers are functions of seed, epoch and place.
One worker makes all steps in the order of the text; the others draw examples ahead of it. To have
each worker learn by itself is what makes other tools' results change from run to run.
"""

from __future__ import annotations

import ctypes
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.ambient import track
from regard.data.order import mix
from regard.data.text_files import Paths, find_files, naming, read_lines
from regard.data.word_frequencies import words
from regard.errors import DataError, RegardError, ResourceError
from regard.history.config import DOING, Word2VecConfig
from regard.native.build import NativeLibrary, build_library

Floats = NDArray[np.float32]
Short = NDArray[np.int32]
Ids = NDArray[np.int64]
Bits = NDArray[np.uint64]

LONGEST = 10_000  # words of a sentence; a longer line is cut
BLOCK = 4096  # words whose examples are drawn at once, at one learning rate
POWER = 0.75  # of counts, for noise
LANES, STEPS, REACH = 16, 1024, 8  # as word2vec.c has them
GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1


class WordCorpus(NamedTuple):
    """Sentences of frequent words as ids; frequent words have low ids."""

    words: list[str]
    counts: Ids  # (V,)
    ids: Short  # (N,)
    bounds: Ids  # sentence n is ids[bounds[n]:bounds[n + 1]]


def read_corpus(sentences: Iterable[Sequence[str]], min_count: int = 1) -> WordCorpus:
    """Count and number the words; what is rarer than `min_count` is left out before any window."""
    numbers, ids, bounds = defaultdict[str, int](), array("i"), array("q", [0])
    numbers.default_factory = numbers.__len__  # in the order in which words come
    for sentence in sentences:
        for start in range(0, len(sentence), LONGEST):
            ids.extend(map(numbers.__getitem__, sentence[start : start + LONGEST]))
            bounds.append(len(ids))
    if not ids:
        raise DataError("reading a corpus", "no words", "sentences of words")
    raw, names = np.frombuffer(ids, np.int32), list(numbers)
    counts = np.bincount(raw, minlength=len(names))
    order = sorted(np.flatnonzero(counts >= min_count), key=lambda n: (-counts[n], names[n]))
    if len(order) < 2:
        problem = f"{len(order)} of {len(names):,} words occur {min_count:,} times or more"
        raise DataError("reading a corpus", problem, "2 words", "more text, or a lower --min-count")
    rank = np.full(len(names), -1, np.int32)
    rank[order] = np.arange(len(order))
    ranked = rank[raw]
    before = np.concatenate(([0], np.cumsum(ranked >= 0)))
    kept = np.unique(before[np.frombuffer(bounds, np.int64)])  # sentences that have words left
    return WordCorpus([names[n] for n in order], counts[order], ranked[ranked >= 0], kept)


def read_texts(
    files: Paths, tokens: str = "words", lower: bool = False, least: int = 5
) -> WordCorpus:
    """The sentences of texts, one on each line; tokens are words, or what stands between blanks."""

    def sentences() -> Iterator[list[str]]:
        for line in read_lines(files):
            text = line.lower() if lower else line
            yield words(text) if tokens == "words" else text.split()

    with naming(find_files(files), "reading a corpus"):
        return read_corpus(sentences(), least)


class Matrices(NamedTuple):
    """Vectors of words as inputs, and as what is predicted."""

    inputs: Floats  # (V, D)
    outputs: Floats  # (V, D)


def train_word2vec(
    corpus: WordCorpus, config: Word2VecConfig, seed: int = 0, workers: int = 1
) -> Matrices:
    """Learn from all sentences, epoch after epoch."""
    vocab, width = len(corpus.words), -(-config.dim // LANES) * LANES
    inputs, outputs = aligned(vocab, width), aligned(vocab, width)
    dice = np.random.default_rng(seed & WORD)
    inputs[:, : config.dim] = (2 * dice.random((vocab, config.dim), np.float32) - 1) / config.dim
    steps = Steps(corpus, config, inputs, outputs)
    blocks = drawn(steps, jobs(corpus, config, seed), workers)
    total = config.times(len(corpus.ids)) * -(-len(corpus.ids) // BLOCK)
    for examples, job in track(blocks, "learning vectors: block", total):
        steps.learn(examples, job.lr)
    if not np.isfinite(inputs).all():
        problem = "vectors that are no numbers any more: the learning rate is too high"
        raise RegardError(DOING, problem, "finite ones", "a lower --lr")
    return Matrices(inputs[:, : config.dim].copy(), outputs[:, : config.dim].copy())


def aligned(rows: int, width: int) -> Floats:
    """Zeros whose rows begin where cache lines do."""
    raw = np.zeros(rows * width + LANES, np.float32)
    skip = -raw.ctypes.data // raw.itemsize % LANES
    return raw[skip : skip + rows * width].reshape(rows, width)


class ExampleBlock(NamedTuple):
    """Sentences whose examples are drawn together."""

    bounds: Ids
    key: int
    lr: float


def jobs(corpus: WordCorpus, config: Word2VecConfig, seed: int = 0) -> Iterator[ExampleBlock]:
    """The work in its order, which the number of workers does not change."""
    count, epochs = len(corpus.ids), config.times(len(corpus.ids))
    first = config.lr if config.lr is not None else (0.025 if config.mode == "skipgram" else 0.05)
    cuts = np.searchsorted(corpus.bounds, np.arange(0, count, BLOCK))
    cuts = np.unique([*cuts, len(corpus.bounds) - 1])
    for epoch in range(epochs):
        key = int(mix(np.array((seed * GOLDEN + epoch + 1) & WORD, np.uint64).reshape(1))[0])
        for begin, end in zip(cuts[:-1], cuts[1:], strict=True):
            bounds = corpus.bounds[begin : end + 1]
            read = epoch * count + int(bounds[0])
            yield ExampleBlock(bounds, key, first * max(1e-4, 1 - read / (epochs * count)))


def drawn(
    steps: Steps, work: Iterator[ExampleBlock], workers: int
) -> Iterator[tuple[Short, ExampleBlock]]:
    """Jobs with their examples, in order; other workers are a few jobs ahead."""
    if workers == 1:
        yield from ((steps.draw(job.bounds, job.key), job) for job in work)
        return
    with ThreadPoolExecutor(workers - 1) as pool:
        ahead = deque[tuple[ExampleBlock, Future[Short]]]()
        for job in work:
            ahead.append((job, pool.submit(steps.draw, job.bounds, job.key)))
            if len(ahead) > 2 * workers:
                first, future = ahead.popleft()
                yield future.result(), first
        for first, future in ahead:
            yield future.result(), first


# What is drawn ------------------------------------------------------------------------------------


def chances(counts: Ids, subsample: float) -> Bits:
    """Of 2³² (V,), for a word to stay: √(t / f) + t / f, as in the authors' code, f its share."""
    share = counts / counts.sum()
    stay = np.sqrt(subsample / share) + subsample / share if subsample else np.ones(len(share))
    return (np.minimum(stay, 1) * 2.0**32).astype(np.uint64)


def alias_table(weights: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Walker's tables (V, 2) of the noise (1977; Vose 1991).

    Entry n is drawn as itself below a threshold of 2³², else as another word.
    """
    scaled = (weights * len(weights) / weights.sum()).tolist()
    small = [n for n, x in enumerate(scaled) if x < 1]
    large = [n for n, x in enumerate(scaled) if x >= 1]
    table = np.empty((len(scaled), 2), np.uint32)
    table[:, 0], table[:, 1] = WORD >> 32, np.arange(len(scaled))
    while small and large:
        less, more = small.pop(), large[-1]
        table[less] = int(scaled[less] * 2**32), more
        scaled[more] -= 1 - scaled[less]
        if scaled[more] < 1:
            small.append(large.pop())
    return table


# In C ---------------------------------------------------------------------------------------------


class DrawStruct(ctypes.Structure):
    """`Draw` of word2vec.c."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ids", "keep", "alias")]
    _fields_ += [(name, ctypes.c_int64) for name in ("vocab", "window", "negative", "cbow")]


@cache
def find_library() -> NativeLibrary:
    """word2vec.c, compiled with the vectors of this machine, or why not."""
    native = build_library("word2vec.c")
    if native.library is not None:
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        draw, learn = native.library.draw, native.library.learn
        draw.argtypes = [pointer, pointer, whole, ctypes.c_uint64, pointer, pointer, pointer]
        draw.restype = whole
        learn.argtypes = [pointer, whole, pointer, pointer, whole, ctypes.c_float, pointer, pointer]
        learn.restype = None
    return native


class Steps:
    """Draws examples and learns from them in C, during which Python's other threads run on.

    The matrices (rows, width) change in place.
    """

    def __init__(
        self, corpus: WordCorpus, config: Word2VecConfig, inputs: Floats, outputs: Floats
    ) -> None:
        native = find_library()
        if native.library is None:
            raise ResourceError(DOING, native.why, "a C compiler", "install gcc or clang")
        self.library, self.inputs, self.outputs = native.library, inputs, outputs
        keep = chances(corpus.counts, config.subsample)
        alias = alias_table(corpus.counts.astype(np.float64) ** POWER)
        self.arrays = corpus.ids, keep, alias  # as long as C has their addresses
        around, targets, cbow = 2 * config.window, 1 + config.negative, config.mode == "cbow"
        self.room = 2 + around + targets if cbow else around * (3 + targets)  # numbers of a word
        self.struct = DrawStruct(
            *(array.ctypes.data for array in self.arrays),
            *(len(keep), config.window, config.negative, cbow),
        )
        self.width = inputs.shape[1]
        x = np.arange(STEPS + 2) * (2 * REACH / STEPS) - REACH
        self.sigmoid = (1 / (1 + np.exp(-x))).astype(np.float32)
        self.work = np.zeros((2, self.width), np.float32)

    def draw(self, bounds: Ids, key: int) -> Short:
        """The examples of the sentences between `bounds`, one after the other (word2vec.c)."""
        count, longest = int(bounds[-1] - bounds[0]), int(np.diff(bounds).max(initial=0))
        out = np.empty(count * self.room, np.int32)
        words, places = np.empty(longest, np.int32), np.empty(longest, np.uint64)
        size = self.library.draw(
            *(ctypes.byref(self.struct), bounds.ctypes.data, len(bounds) - 1, key),
            *(words.ctypes.data, places.ctypes.data, out.ctypes.data),
        )
        return out[:size]

    def learn(self, examples: Short, lr: float) -> None:
        """A step of gradient descent for each example, in order."""
        self.library.learn(
            *(examples.ctypes.data, len(examples), self.inputs.ctypes.data),
            *(self.outputs.ctypes.data, self.width, lr, self.sigmoid.ctypes.data),
            self.work.ctypes.data,
        )
