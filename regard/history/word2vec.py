"""word2vec: vectors of words from the words around them (Mikolov 2013).

Skip-gram predicts each word around from a word, CBOW a word from the mean of those around it; by
negative sampling, or by hierarchical softmax over Huffman's tree.

**The same bits at any number of workers.** Random numbers are functions of seed, epoch and place.
One worker makes all steps in the order of the text; the others draw examples ahead of it. To have
each worker learn by itself is what makes other tools' results change from run to run.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, RegardError, UsageError
from regard.history.word2vec_steps import (
    GOLDEN,
    LANES,
    MOST,
    WORD,
    Bits,
    Floats,
    Ids,
    Plan,
    Short,
    Steps,
    make_steps,
    mix,
)

DOING = "training word vectors"
LONGEST = 10_000  # words of a sentence; a longer line is cut
BLOCK = 4096  # words whose examples are drawn at once, at one learning rate
POWER = 0.75  # of counts, for noise
ENOUGH, EPOCHS, MANY = 5_000_000, 5, 100  # words to be read, and between which epochs
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Word2VecConfig:
    """How vectors are learnt."""

    mode: Literal["cbow", "skipgram"] = "skipgram"
    """A word from those around it, or those around it from a word."""
    dim: int = 100
    """Numbers of a vector."""
    window: int = 5
    """Words on each side at most; each place draws 1 to this many."""
    negative: int = 5
    """Words of noise for each word that is predicted."""
    hierarchical: bool = False
    """Hierarchical softmax instead of noise."""
    subsample: float = 1e-3
    """Words more frequent than this share are thinned out; 0 keeps all."""
    min_count: int = 5
    """Rarer words are left out."""
    epochs: int | None = None
    """Times the text is read (5; small texts more often: 5 million words, at most 100 times)."""
    lr: float | None = None
    """Learning rate at first (skipgram 0.025, cbow 0.05); it falls to nearly 0."""
    seed: int = 0
    """Of all that is drawn."""

    def check(self) -> None:
        """Refuse what cannot be trained."""
        for name, least, most in (
            ("dim", 1, 1 << 16),
            ("window", 1, 1000),
            ("negative", 0 if self.hierarchical else 1, MOST - 1),
            ("subsample", 0, 1),
            ("min_count", 1, np.inf),
            ("epochs", 1, np.inf),
            ("seed", 0, np.inf),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                limit = f"{least} or more" if most == np.inf else f"{least} to {most:,}"
                raise UsageError(DOING, f"{name} = {value}", limit)
        if self.lr is not None and not 0 < self.lr < np.inf:
            raise UsageError(DOING, f"lr = {self.lr}", "a number above 0")
        if self.mode not in ("cbow", "skipgram"):
            raise UsageError(DOING, f"mode = {self.mode!r}", "cbow or skipgram")

    def times(self, words: int) -> int:
        """Epochs over so many words."""
        return self.epochs or min(MANY, max(EPOCHS, -(-ENOUGH // max(words, 1))))


class Corpus(NamedTuple):
    """Sentences of frequent words as ids; frequent words have low ids."""

    words: list[str]
    counts: Ids  # (V,)
    ids: Short  # (N,)
    bounds: Ids  # sentence n is ids[bounds[n]:bounds[n + 1]]


class Numbers(dict[str, int]):
    """A number for each word, in the order in which they come."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


def read_corpus(sentences: Iterable[Sequence[str]], min_count: int = 1) -> Corpus:
    """Count and number the words; what is rarer than `min_count` is left out before any window."""
    numbers, ids, bounds = Numbers(), array("i"), array("q", [0])
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
        found = f"{len(order)} of {len(names):,} words occur {min_count:,} times or more"
        raise DataError("reading a corpus", found, "2 words", "more text, or a lower --min-count")
    rank = np.full(len(names), -1, np.int32)
    rank[order] = np.arange(len(order))
    ranked = rank[raw]
    before = np.concatenate(([0], np.cumsum(ranked >= 0)))
    kept = np.unique(before[np.frombuffer(bounds, np.int64)])  # sentences that have words left
    return Corpus([names[n] for n in order], counts[order], ranked[ranked >= 0], kept)


class Trained(NamedTuple):
    """Vectors of words as inputs, and of what is predicted: words, or nodes of the tree."""

    inputs: Floats  # (V, D)
    outputs: Floats  # (V, D), of a tree (V − 1, D)


def train_word2vec(
    corpus: Corpus, config: Word2VecConfig, workers: int = 1, progress: Progress | None = None
) -> Trained:
    """Learn from all sentences, epoch after epoch; tells the words read so far and in all."""
    config.check()
    if workers < 1:
        raise UsageError(DOING, f"workers = {workers}", "1 or more")
    vocab, width = len(corpus.words), -(-config.dim // LANES) * LANES
    inputs, outputs = aligned(vocab, width), aligned(vocab - config.hierarchical, width)
    dice = np.random.default_rng(config.seed)
    inputs[:, : config.dim] = (2 * dice.random((vocab, config.dim), np.float32) - 1) / config.dim
    steps = make_steps(make_plan(corpus, config), inputs, outputs)
    total = config.times(len(corpus.ids)) * len(corpus.ids)
    for examples, job in drawn(steps, jobs(corpus, config), workers):
        steps.learn(examples, job.lr)
        if progress is not None:
            progress(job.read, total)
    if not np.isfinite(inputs).all():
        found = "vectors that are no numbers any more: the learning rate is too high"
        raise RegardError(DOING, found, "finite ones", "a lower --lr")
    return Trained(inputs[:, : config.dim].copy(), outputs[:, : config.dim].copy())


def aligned(rows: int, width: int) -> Floats:
    """Zeros whose rows begin where cache lines do."""
    raw = np.zeros(rows * width + LANES, np.float32)
    skip = -raw.ctypes.data // raw.itemsize % LANES
    return raw[skip : skip + rows * width].reshape(rows, width)


class Job(NamedTuple):
    """Sentences whose examples are drawn together."""

    bounds: Ids
    key: int
    lr: float
    read: int


def jobs(corpus: Corpus, config: Word2VecConfig) -> Iterator[Job]:
    """The work in its order, which the number of workers does not change."""
    count, epochs = len(corpus.ids), config.times(len(corpus.ids))
    first = config.lr if config.lr is not None else (0.025 if config.mode == "skipgram" else 0.05)
    cuts = np.searchsorted(corpus.bounds, np.arange(0, count, BLOCK))
    cuts = np.unique([*cuts, len(corpus.bounds) - 1])
    for epoch in range(epochs):
        key = mix((config.seed * GOLDEN + epoch + 1) & WORD)
        for begin, end in zip(cuts[:-1], cuts[1:], strict=True):
            bounds = corpus.bounds[begin : end + 1]
            read = epoch * count + int(bounds[0])
            yield Job(bounds, key, first * max(1e-4, 1 - read / (epochs * count)), read)


def drawn(steps: Steps, work: Iterator[Job], workers: int) -> Iterator[tuple[Short, Job]]:
    """Jobs with their examples, in order; other workers are a few jobs ahead."""
    if workers == 1:
        yield from ((steps.draw(job.bounds, job.key), job) for job in work)
        return
    with ThreadPoolExecutor(workers - 1) as pool:
        ahead = deque[tuple[Job, Future[Short]]]()
        for job in work:
            ahead.append((job, pool.submit(steps.draw, job.bounds, job.key)))
            if len(ahead) > 2 * workers:
                first, future = ahead.popleft()
                yield future.result(), first
        for first, future in ahead:
            yield future.result(), first


# What is drawn ------------------------------------------------------------------------------------


def make_plan(corpus: Corpus, config: Word2VecConfig) -> Plan:
    """Chances of words to stay, noise, and ways down the tree."""
    vocab = len(corpus.words)
    paths, nodes = None, np.empty(0, np.int32)
    if config.hierarchical:
        paths, nodes = huffman(corpus.counts)
    return Plan(
        corpus.ids,
        chances(corpus.counts, config.subsample),
        alias_table(corpus.counts.astype(np.float64) ** POWER)
        if paths is None
        else np.empty((vocab, 2), np.uint32),
        paths,
        nodes,
        config.window,
        0 if config.hierarchical else config.negative,
        config.mode == "cbow",
    )


def chances(counts: Ids, subsample: float) -> Bits:
    """Of 2³², for a word to stay: √(t / f) + t / f, as in the authors' code, f its share."""
    share = counts / counts.sum()
    stay = np.sqrt(subsample / share) + subsample / share if subsample else np.ones(len(share))
    return (np.minimum(stay, 1) * 2.0**32).astype(np.uint64)


def alias_table(weights: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Walker's tables (1977; Vose 1991): entry n is drawn as itself below a threshold of 2³²."""
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


def huffman(counts: Ids) -> tuple[Ids, Short]:
    """The way from the root to each word: 2 · inner node + 1 where it goes left (Huffman 1952).

    Counts fall, so leaves from the end and inner nodes from the first are two sorted queues.
    """
    vocab = len(counts)
    weights = [*counts.tolist(), *[0] * (vocab - 1)]
    parent, left = [0] * (2 * vocab - 1), [0] * (2 * vocab - 1)
    leaf, inner = vocab - 1, vocab
    for node in range(vocab, 2 * vocab - 1):
        for side in (1, 0):
            if leaf >= 0 and (inner == node or weights[leaf] < weights[inner]):
                child, leaf = leaf, leaf - 1
            else:
                child, inner = inner, inner + 1
            weights[node] += weights[child]
            parent[child], left[child] = node, side
    nodes, bounds = array("i"), array("q", [0])
    for word in range(vocab):
        way, node = [], word
        while node != 2 * vocab - 2:
            way.append(2 * (parent[node] - vocab) + left[node])
            node = parent[node]
        if len(way) > MOST:
            raise DataError(DOING, f"a tree {len(way)} deep", f"at most {MOST}")
        nodes.extend(reversed(way))
        bounds.append(len(nodes))
    return np.frombuffer(bounds, np.int64), np.frombuffer(nodes, np.int32)
