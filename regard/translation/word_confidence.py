"""Confidence of words: how likely each word of a translation is right (Blatz 2004).

The probability of a word alone says too little: a model is sure of the words that make up for one
it does not know. A logistic regression sees what else its search noted; `bench/doubt.py` fits it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import expecting

FEATURES = ("bias", "surprise", "probability", "sentence", "fertility", "focus", "foremost")


@dataclass(frozen=True)
class DoubtConfig:
    """The regression; config.json may hold it as `doubt`."""

    weights: tuple[float, ...]
    """Of each feature."""
    threshold: float
    """Words that are less sure are shown as doubtful."""


def doubt_config(config: Mapping[str, Any]) -> DoubtConfig | None:
    """What config.json says, if anything."""
    fields = config.get("doubt")
    if fields is None:
        return None
    wanted, fix = f"weights of {', '.join(FEATURES)}", "`python bench/doubt.py FOLDER` writes it"
    with expecting("reading `doubt` in config.json", wanted, fix):
        weights = tuple(float(fields["weights"][name]) for name in FEATURES)
        return DoubtConfig(weights, float(fields["threshold"]))


def doubt_features(
    logprobs: Sequence[float],
    sentence: float,
    weights: Sequence[Sequence[float]],
    links: Sequence[tuple[int, int]],
) -> list[list[float]]:
    """The features of each word.

    logprobs: of the words. sentence: the mean surprise of its tokens. weights (target words, source
    words): what each word saw. links: (source word, target word).
    surprise: the logarithm of the negative log-probability. fertility: into how many words its
    source word was made. focus: the weight on the words it is linked to. foremost: whether no other
    word sees one of these as much.
    """
    fertility = Counter(source for source, _ in links)
    most = [max(column) for column in zip(*weights, strict=True)]
    rows = []
    for n, logprob in enumerate(logprobs):
        own = [source for source, target in links if target == n]
        rows.append(
            [
                1.0,
                math.log(1e-3 - min(logprob, 0.0)),
                math.exp(logprob),
                sentence,
                float(max((fertility[source] for source in own), default=0)),
                sum(weights[n][source] for source in own),
                float(any(weights[n][source] >= most[source] for source in own)),
            ]
        )
    return rows


def word_confidence(features: Sequence[Sequence[float]], doubt: DoubtConfig) -> list[float]:
    """The probability that each word is right."""
    sums = [sum(w * x for w, x in zip(doubt.weights, row, strict=True)) for row in features]
    return [1 / (1 + math.exp(-value)) for value in sums]
