"""Probing: what labels of words can be read off frozen vectors, linearly or by a small MLP.

Accuracy stands beside that of a control task (Hewitt and Liang 2019), which gives each word type a
label drawn at random: a probe that solves it remembers words, and what it finds of real labels may
be no more than that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.ambient import current, note, track
from regard.data.statistics import share_interval
from regard.data.treebank import ConllSentence
from regard.errors import DataError, UsageError
from regard.look.activations import Take, WordTokens, find_word_tokens, word_vectors
from regard.look.results import LabelProbe, LabelProbes, ProbedTap, ProbeKind
from regard.look.text_limits import max_tokens_of

if TYPE_CHECKING:
    from regard.kit import Kit

STRENGTHS = (100.0, 10.0, 1.0, 0.1)  # of L2, tried from the strongest on
STEPS = 200  # of L-BFGS at most
HIDDEN, RATE, ROWS, EPOCHS, PATIENCE = 128, 1e-3, 128, 60, 4  # of the MLP
MIN_WORDS = 2  # of each label in the training part
HELD_OUT = 10  # one sentence in so many is for choosing, one for testing
NO_LABEL = "_"
HELD_BYTES = 1 << 29  # of vectors that are held at a time; more taps take another run


# Tasks ------------------------------------------------------------------------------------------


class SentenceSplit(NamedTuple):
    """Places of words: to train on, to choose by, to test on. No sentence is in two of them."""

    train: Tensor
    dev: Tensor
    test: Tensor


@dataclass(frozen=True)
class ProbingTask:
    """Labels of N words."""

    kept: Tensor
    """(N,): which of the words that were given; the others have no label, or a rare one."""
    labels: Tensor
    """(N,): number of the label."""
    names: list[str]
    """The labels."""
    types: Tensor
    """(N,): number of the word type; equal words have equal numbers."""
    parts: SentenceSplit

    def control(self, seed: int = 0) -> ProbingTask:
        """The control task: each type has one label, drawn as labels are spread in training."""
        generator = torch.Generator().manual_seed(seed)
        seen, count = self.labels[self.parts.train], int(self.types.max()) + 1
        drawn = seen[torch.randint(len(seen), (count,), generator=generator)]
        return replace(self, labels=drawn[self.types])

    def report(self, label: str, kind: ProbeKind, taps: list[ProbedTap]) -> LabelProbe:
        """What was probed, beside the share of test words with training's most frequent label."""
        counts = self.labels[self.parts.train].bincount(minlength=len(self.names))
        majority = (self.labels[self.parts.test] == counts.argmax()).double().mean()
        words = {name: len(part) for name, part in self.parts._asdict().items()}
        return LabelProbe(label, kind, self.names, words, {"majority": float(majority)}, taps)


def make_task(
    labels: Sequence[str], words: Sequence[str], sentences: Sequence[int], seed: int = 0
) -> ProbingTask:
    """Words with their labels and numbers of sentences → a task; `_` is no label.

    Labels with fewer than two words to train on are left out.
    """
    kept = torch.tensor([n for n, label in enumerate(labels) if label != NO_LABEL])
    if not len(kept):
        raise DataError("probing", "no labelled words", "words with labels")
    parts = split_sentences(torch.tensor(sentences)[kept], seed)
    there = [labels[n] for n in kept.tolist()]
    known = Counter(there[n] for n in parts.train.tolist())
    places = {label: n for n, label in enumerate(sorted(k for k in known if known[k] >= MIN_WORDS))}
    if rare := sorted(set(there) - set(places)):
        some = ", ".join(f"{label} {known[label]}" for label in rare[:5])
        note(f"left out: {len(rare)} labels with fewer than {MIN_WORDS} words to train on: {some}")
    common = torch.tensor([label in places for label in there])
    parts = SentenceSplit(*((common.cumsum(0) - 1)[part[common[part]]] for part in parts))
    if len(places) < 2 or not all(map(len, parts)):
        problem = f"{len(places)} labels, words to train on and to test on: "
        problem += f"{len(parts.train)} and {min(len(parts.dev), len(parts.test))}"
        expected = f"two or more labels, {MIN_WORDS} words of each to train on"
        raise DataError("probing", problem, expected, "more sentences (--count)")
    kept, types = kept[common], dict[str, int]()
    return ProbingTask(
        kept,
        torch.tensor([places[labels[n]] for n in kept.tolist()], dtype=torch.long),
        list(places),
        torch.tensor([types.setdefault(words[n], len(types)) for n in kept.tolist()]),
        parts,
    )


def split_sentences(sentences: Tensor, seed: int = 0) -> SentenceSplit:
    """Eight tenths, a tenth and a tenth of the sentences, in an order drawn from the seed."""
    each, place = sentences.unique(return_inverse=True)
    if len(each) < 3:
        problem = f"{len(each)} sentences with labels"
        raise DataError("splitting by sentence", problem, "at least 3, one of them for each part")
    order = torch.randperm(len(each), generator=torch.Generator().manual_seed(seed))
    rank = order.argsort()[place]  # (N,): of each word's sentence
    held = max(1, len(each) // HELD_OUT)
    words = rank.argsort(stable=True)  # whole sentences in the drawn order
    ends = [int((rank < len(each) - k * held).sum()) for k in (2, 1)]
    return SentenceSplit(*words.tensor_split(ends))


# Fitting ----------------------------------------------------------------------------------------


class Labelled(NamedTuple):
    """Vectors (N, D) and numbers of their labels (N,)."""

    x: Tensor
    y: Tensor


Layers = Sequence[tuple[Tensor, Tensor]]
"""Weight (out, in) and bias (out,) of linear layers, with ReLU between them."""


def forward(x: Tensor, layers: Layers) -> Tensor:
    """Vectors (N, D) → scores of labels (N, C)."""
    for n, (weight, bias) in enumerate(layers):
        x = F.linear(x.relu() if n else x, weight, bias)
    return x


def count_right(kind: ProbeKind, parts: Sequence[Labelled], classes: int, seed: int = 0) -> int:
    """How many test labels a probe has right; `parts` are to train on, to choose by, to test on.

    The dev part says how strong L2 is, or when to stop.
    """
    train, dev, test = parts
    if kind == "linear":
        layers: Layers = [fit_regularised(train, dev, classes)]
    else:
        layers = fit_mlp(train, dev, classes, seed)
    return int((forward(test.x, layers).argmax(-1) == test.y).sum())


def mean_and_spread(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of each dimension of (N, D); one that does not vary has spread 1."""
    spread = x.std(0, correction=0)
    return x.mean(0), torch.where(spread > 0, spread, torch.ones_like(spread))


def fit_regularised(train: Labelled, dev: Labelled, classes: int) -> tuple[Tensor, Tensor]:
    """Weaker and weaker L2, each from the last one's weights, until `dev` gets worse."""
    best, layer = math.inf, None
    for strength in STRENGTHS:
        weaker = fit_linear(train.x, train.y, classes, strength, layer)
        loss = float(F.cross_entropy(F.linear(dev.x, *weaker), dev.y))
        if layer is not None and not loss < best:
            break
        best, layer = loss, weaker
    assert layer is not None
    return layer


def fit_linear(
    x: Tensor, y: Tensor, classes: int, l2: float = 1.0, start: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression: weight (C, D) and bias (C,) with the least

        Σ_n −log p(y_n | x_n) + l2/2 |weight|²

    by L-BFGS over all examples at once: nothing is drawn. In double precision where x is.
    """
    zeros = x.new_zeros(classes, x.shape[1]), x.new_zeros(classes)
    weight, bias = (t.clone().requires_grad_() for t in (start or zeros))
    double = x.dtype == torch.float64
    search = torch.optim.LBFGS(
        [weight, bias],
        max_iter=STEPS,
        max_eval=2 * STEPS,
        tolerance_grad=1e-9 if double else 1e-5,
        tolerance_change=1e-15 if double else 1e-8,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        search.zero_grad()
        value = F.cross_entropy(F.linear(x, weight, bias), y)
        value = value + l2 / (2 * len(x)) * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        search.step(closure)
    return weight.detach(), bias.detach()


def fit_mlp(train: Labelled, dev: Labelled, classes: int, seed: int) -> Layers:
    """One hidden layer, by Adam on small batches; the weights that were best on `dev`."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for rows, width in ((HIDDEN, train.x.shape[1]), (classes, HIDDEN)):
        weight = torch.randn(rows, width, generator=generator) * math.sqrt(2 / width)  # He 2015
        layers.append((weight.to(train.x), train.x.new_zeros(rows)))

    def loss(part: Labelled, some: Tensor) -> Tensor:
        return F.cross_entropy(forward(part.x[some], layers), part.y[some])

    weights = [tensor.requires_grad_() for layer in layers for tensor in layer]
    losses = [(partial(loss, part), len(part.y)) for part in (train, dev)]
    kept = descend(weights, losses, ROWS, RATE, generator, PATIENCE)
    return [(kept[0], kept[1]), (kept[2], kept[3])]


def descend(
    weights: list[Tensor],
    losses: Sequence[tuple[Callable[[Tensor], Tensor], int]],
    rows: int,
    rate: float,
    generator: torch.Generator,
    patience: int | None = None,
) -> list[Tensor]:
    """Adam on small batches of training examples; the weights that were best on the dev ones.

    `losses` are those of some of either, by their places, and how many there are. It ends after as
    many passes without a gain as it has patience for; without patience its rate falls to nothing.
    """
    (train_loss, count), (dev_loss, held) = losses
    device = weights[0].device
    adam = torch.optim.Adam(weights, rate)
    best, kept, since = math.inf, [t.detach().clone() for t in weights], 0
    for epoch in range(EPOCHS):
        for some in torch.randperm(count, generator=generator).to(device).split(rows):
            with torch.enable_grad():
                value = train_loss(some)
                adam.zero_grad()
                value.backward()
            adam.step()
        if patience is None:
            adam.param_groups[0]["lr"] = rate * (1 - (epoch + 1) / EPOCHS)
        with torch.no_grad():
            now = float(dev_loss(torch.arange(held, device=device)))
        since = 0 if now < best else since + 1
        if now < best:
            best, kept = now, [t.detach().clone() for t in weights]
        if since == patience:
            break
    return kept


# Measuring --------------------------------------------------------------------------------------


def probe_vectors(
    tap: str,
    x: Tensor,
    task: ProbingTask,
    kind: ProbeKind = "linear",
    seed: int = 0,
    control: ProbingTask | None = None,
) -> ProbedTap:
    """Fit on the training part, count on the test part; x (M, D) are all words that were given."""
    x = x[task.kept.to(x.device)]
    mean, spread = mean_and_spread(x[task.parts.train.to(x.device)])
    x = (x - mean) / spread
    right = []
    for labels in [one.labels.to(x.device) for one in (task, control) if one is not None]:
        parts = [Labelled(x[part], labels[part]) for part in (p.to(x.device) for p in task.parts)]
        right.append(count_right(kind, parts, len(task.names), seed))
    asked = len(task.parts.test)
    interval = share_interval(right[0], asked)
    remembered = (right[1] / asked, (right[0] - right[1]) / asked) if control else (None, None)
    return ProbedTap(tap, right[0] / asked, *interval, *remembered)


# Treebanks --------------------------------------------------------------------------------------


TaggedCorpus = list[tuple[ConllSentence, WordTokens]]
"""Sentences of a treebank, each with its ids and where its words stand."""


def read_corpus(kit: Kit, sentences: list[ConllSentence]) -> TaggedCorpus:
    """The sentences that a model has room for."""
    most = max_tokens_of(kit, "probing")
    take: Take = "last" if kit.model.encoder is None else "first"
    corpus = [(one, find_word_tokens(kit.text_tokenizer, *one.text(), take)) for one in sentences]
    filled = [pair for pair in corpus if pair[1].words]
    kept = [pair for pair in filled if len(pair[1].ids) <= most]
    if len(kept) < len(filled):
        long = f"{len(filled) - len(kept):,} sentences have more than {most:,} tokens, what fits"
        note(f"{long}: left out")
    if not kept:
        raise DataError("probing", "no sentence that the model has room for", "shorter sentences")
    return kept


def choose_taps(kit: Kit, layer: str | int = "all") -> list[str]:
    """The stream after one block, or the embeddings and the stream after all of them.

    In a recurrent model the states of each layer stand for blocks. An encoder-decoder reads by its
    encoder.
    """
    pair = kit.model.encoder is not None and kit.model.decoder is not None
    places = ("embed", "resid_post", "state")
    usual = [n for n in kit.hooked.taps if n.rpartition(".")[2] in places and ".back." not in n]
    taps = [name for name in usual if name.startswith("encoder.") or not pair]
    if layer == "all":
        return taps
    streams = [name for name in taps if not name.endswith("embed")]
    number = str(len(streams) - 1 if layer == "last" else layer)
    if not number.isdecimal() or int(number) >= len(streams):
        expected = f"0 to {len(streams) - 1}, last or all"
        raise UsageError("choosing a layer", f"layer {layer}", expected)
    return [streams[int(number)]]


def tap_vectors(
    kit: Kit, sentences: Sequence[WordTokens], taps: Sequence[str]
) -> Iterator[tuple[str, Tensor]]:
    """Each tap's vectors of all words, on the model's device; some taps for each run of it."""
    words = sum(len(sentence.columns) for sentence in sentences)
    widest = max(x.shape[1] for x in word_vectors(kit.hooked, sentences[:1], taps).values())
    together = max(1, HELD_BYTES // (4 * words * widest))  # taps for each run
    for start in range(0, len(taps), together):
        some = taps[start : start + together]
        vectors = word_vectors(kit.hooked, sentences, some)
        for tap in track(some, "probing, by tap"):
            yield tap, vectors.pop(tap).to(kit.device)


def probe_labels(
    kit: Kit,
    corpus: TaggedCorpus,
    labels: Sequence[str],
    taps: Sequence[str],
    kind: ProbeKind = "linear",
    *,
    control: bool = False,
) -> LabelProbe | LabelProbes:
    """How well labels of words, columns of a treebank, can be read off the vectors of each tap."""
    seed = current().seed
    columns: dict[str, list[str]] = {label: [] for label in labels}
    forms, numbers = list[str](), list[int]()
    for n, (sentence, row) in enumerate(corpus):
        for label, column in columns.items():
            column += [sentence.columns[label][word] for word in row.words]
        forms += [sentence.forms[word] for word in row.words]
        numbers += [n] * len(row.words)
    tasks = {label: make_task(column, forms, numbers, seed) for label, column in columns.items()}
    controls = {name: task.control(seed) for name, task in tasks.items() if control}
    probed: dict[str, list[ProbedTap]] = {label: [] for label in labels}
    for tap, x in tap_vectors(kit, [row for _, row in corpus], taps):
        for label, task in tasks.items():
            probed[label].append(probe_vectors(tap, x, task, kind, seed, controls.get(label)))
    probes = [task.report(label, kind, probed[label]) for label, task in tasks.items()]
    return probes[0] if len(probes) == 1 else LabelProbes(probes)
