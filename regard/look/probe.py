"""Probes: what labels of words can be read off frozen vectors, linearly or by a small MLP.

Accuracy stands beside that of a control task (Hewitt and Liang 2019) and the bits of an online code
(Voita and Titov 2020), which count what a probe has to learn too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.statistics import share_interval
from regard.errors import UsageError
from regard.look.task import Task

Kind = Literal["linear", "mlp"]
STRENGTHS = (100.0, 10.0, 1.0, 0.1)  # of L2, tried from the strongest on
STEPS = 200  # of L-BFGS at most
HIDDEN, RATE, ROWS, EPOCHS, PATIENCE = 128, 1e-3, 128, 60, 4  # of the MLP
CODE = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5)  # shares of the words


class Labelled(NamedTuple):
    """Vectors (N, D) and numbers of their labels (N,)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Probe:
    """Layers on standardised vectors, with ReLU between them."""

    mean: Tensor
    spread: Tensor
    layers: Sequence[tuple[Tensor, Tensor]]
    """Weight (out, in) and bias (out,) of each layer."""

    def __call__(self, x: Tensor) -> Tensor:
        """Vectors (N, D) → scores of labels (N, C)."""
        return forward((x - self.mean) / self.spread, self.layers)

    def right(self, part: Labelled) -> int:
        """How many labels are the likeliest of their words."""
        return int((self(part.x).argmax(-1) == part.y).sum())

    def loss(self, part: Labelled) -> float:
        """Mean negative log-likelihood in nats."""
        return float(F.cross_entropy(self(part.x), part.y))


def forward(x: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Linear layers, ReLU between them."""
    for n, (weight, bias) in enumerate(layers):
        x = F.linear(x.relu() if n else x, weight, bias)
    return x


# Fitting ------------------------------------------------------------------------------------------


def fit(kind: Kind, train: Labelled, dev: Labelled, classes: int, seed: int = 0) -> Probe:
    """A probe of standardised vectors; `dev` says how strong L2 is, or when to stop."""
    mean, spread = standards(train.x)
    near = Labelled((train.x - mean) / spread, train.y)
    held = Labelled((dev.x - mean) / spread, dev.y)
    if kind == "linear":
        return Probe(mean, spread, [fit_path(near, held, classes)])
    if kind == "mlp":
        return Probe(mean, spread, fit_mlp(near, held, classes, seed))
    raise UsageError("fitting a probe", f"kind {kind!r}", "linear or mlp")


def standards(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of each dimension of (N, D); one that does not vary has spread 1."""
    spread = x.std(0, correction=0)
    return x.mean(0), torch.where(spread > 0, spread, torch.ones_like(spread))


def fit_path(train: Labelled, dev: Labelled, classes: int) -> tuple[Tensor, Tensor]:
    """Weaker and weaker L2, each from the last one's weights, until `dev` gets worse."""
    best, found = math.inf, None
    for strength in STRENGTHS:
        made = fit_linear(train.x, train.y, classes, strength, found)
        loss = float(F.cross_entropy(F.linear(dev.x, *made), dev.y))
        if not loss < best and found is not None:
            break
        best, found = loss, made
    assert found is not None
    return found


def fit_linear(
    x: Tensor,
    y: Tensor,
    classes: int,
    l2: float = 1.0,
    start: tuple[Tensor, Tensor] | None = None,
    steps: int = STEPS,
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
        max_iter=steps,
        max_eval=2 * steps,
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


def fit_mlp(
    train: Labelled, dev: Labelled, classes: int, seed: int
) -> Sequence[tuple[Tensor, Tensor]]:
    """One hidden layer, by Adam on small batches; the weights that were best on `dev`."""
    generator = torch.Generator().manual_seed(seed)
    layers = [
        (drawn(rows, width, generator).to(train.x), train.x.new_zeros(rows))
        for rows, width in ((HIDDEN, train.x.shape[1]), (classes, HIDDEN))
    ]
    weights = [tensor.requires_grad_() for layer in layers for tensor in layer]
    adam = torch.optim.Adam(weights, RATE)
    best, kept, since = math.inf, [t.detach().clone() for t in weights], 0
    for _ in range(EPOCHS):
        order = torch.randperm(len(train.x), generator=generator).to(train.x.device)
        for some in order.split(ROWS):
            with torch.enable_grad():
                loss = F.cross_entropy(forward(train.x[some], layers), train.y[some])
                adam.zero_grad()
                loss.backward()
            adam.step()
        with torch.no_grad():
            now = float(F.cross_entropy(forward(dev.x, layers), dev.y))
        since = 0 if now < best else since + 1
        if now < best:
            best, kept = now, [t.detach().clone() for t in weights]
        if since == PATIENCE:
            break
    return [(kept[0], kept[1]), (kept[2], kept[3])]


def drawn(rows: int, width: int, generator: torch.Generator) -> Tensor:
    """Weights of a layer before ReLU (He 2015)."""
    return torch.randn(rows, width, generator=generator) * math.sqrt(2 / width)


# Measuring ----------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """What a probe reads off the vectors of one place."""

    right: int
    asked: int
    """Words of the test part."""
    control: int | None
    """Right in the control task, of as many words."""
    bits: float | None
    """Length of the online code of the training labels."""
    coded: int
    """Words of the training part."""

    @property
    def accuracy(self) -> float:
        """Share of right labels."""
        return self.right / self.asked

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy."""
        return share_interval(self.right, self.asked)

    @property
    def selectivity(self) -> float | None:
        """Accuracy less that of the control task."""
        return None if self.control is None else (self.right - self.control) / self.asked


def measure(
    x: Tensor,
    task: Task,
    kind: Kind = "linear",
    seed: int = 0,
    control: Task | None = None,
    code: bool = True,
) -> Measured:
    """Fit on the training part, count on the test part; x (M, D) are all words that were given."""
    x = x[task.kept.to(x.device)]
    train, dev, test = parts_of(x, task)
    right = fit(kind, train, dev, len(task.names), seed).right(test)
    chance = None
    if control is not None:
        near, held, asked = parts_of(x, control)
        chance = fit(kind, near, held, len(task.names), seed).right(asked)
    bits = online_bits(kind, train, dev, len(task.names), seed) if code else None
    return Measured(right, len(test.y), chance, bits, len(train.y))


def by_layer(
    vectors: Iterable[tuple[str, Tensor]],
    tasks: Mapping[str, Task],
    kind: Kind = "linear",
    seed: int = 0,
    controls: Mapping[str, Task] | None = None,
    code: bool = True,
) -> dict[str, dict[str, Measured]]:
    """Which layer knows what: for each feature, a task by name, what each place's vectors tell.

    Vectors (M, D) are of words, or of patches of pictures: whatever the tasks label.
    """
    found: dict[str, dict[str, Measured]] = {name: {} for name in tasks}
    for place, x in vectors:
        for name, task in tasks.items():
            found[name][place] = measure(x, task, kind, seed, (controls or {}).get(name), code)
    return found


def parts_of(x: Tensor, task: Task) -> list[Labelled]:
    """Vectors and labels of each part."""
    y = task.labels.to(x.device)
    return [Labelled(x[part.to(x.device)], y[part.to(x.device)]) for part in task.parts]


def online_bits(
    kind: Kind,
    train: Labelled,
    dev: Labelled,
    classes: int,
    seed: int = 0,
    tell: Callable[[int], None] = lambda coded: None,
) -> float:
    """Bits that tell the labels to someone who has the vectors (Voita and Titov 2020).

    The first block costs log2 C a word; each later block is coded by a probe fitted on all before
    it. So that a label not met yet has a code too, the probe of n words is mixed with the uniform
    distribution, which weighs C / (n + C).
    """
    count = len(train.y)
    ends = sorted({max(1, round(share * count)) for share in CODE} | {count})
    bits = ends[0] * math.log2(classes)
    for start, end in zip(ends, ends[1:], strict=False):
        probe = fit(kind, Labelled(train.x[:start], train.y[:start]), dev, classes, seed)
        shares = probe(train.x[start:end]).softmax(-1)
        own = shares.gather(1, train.y[start:end, None])[:, 0].double()
        mixed = (start * own + 1) / (start + classes)  # C / (n + C) · 1 / C, and the rest
        bits -= float(mixed.log2().sum())
        tell(end)
    return bits
