"""Neural discovery: what a small Transformer makes of the lines, and how it does it.

What it is worth is said by lines that it did not see. Few lines teach it nothing that could be
opened; then a second network is taught the best rule that was found, from thousands of strings made
for it, and is opened instead: it shows how a Transformer keeps that rule, and whether the lines
follow it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.rules.atoms import Word
from regard.rules.rule import Accepts
from regard.rules.rule_extraction import (
    Counterfactuals,
    Distilled,
    HeadUse,
    counterfactuals,
    distil,
    head_uses,
)
from regard.rules.strings import Strings
from regard.rules.tiny_transformer import (
    DEFAULT,
    Network,
    NetworkConfig,
    Validation,
    cross_validate,
    train_network,
)

ENOUGH = 400  # lines from which a network is opened that knows nothing but them
ALONE = 4000  # the same where a rule is known that most of them keep: fewer leave it in error
KNOWN = 0.9  # of the lines, which such a rule has right
TAUGHT = 10_000  # strings that a rule is taught with
STEPS = 3000
MANY = 2000  # lines that are trained on at most while validating

Watch = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""


@dataclass(frozen=True)
class Study:
    """What was found."""

    validation: Validation
    taught: bool
    """The network that was opened was taught the rule; else it learnt from the lines alone."""
    accuracy: float
    """Share of the lines that it has right; if taught, without having seen one."""
    agreement: float | None
    """Share of fresh strings on which it says what the rule says; None without a rule."""
    automaton: Distilled
    edits: Counterfactuals
    heads: list[HeadUse]


def study(
    words: Sequence[Word],
    labels: Sequence[bool],
    accepts: Accepts | None = None,
    config: NetworkConfig = DEFAULT,
    device: str = "cpu",
    seconds: float = 60.0,
    watch: Watch | None = None,
) -> Study:
    """Validate on the lines, train the network that is opened, and open it.

    `accepts` is the best rule that is known. No seed is validated after half of the `seconds`;
    the questions of the automaton may take all of them.
    """
    told = watch or (lambda doing, share: None)
    some = Strings(words, config.seed).dice.sample(range(len(words)), min(MANY, len(words)))
    validation = cross_validate(
        [words[n] for n in some],
        [labels[n] for n in some],
        replace(config, steps=config.steps if len(some) <= 128 else 3 * config.steps),
        folds=10 if len(some) <= 128 else 5 if len(some) < ENOUGH else 3,
        seeds=3 if len(some) < ENOUGH else 1,
        device=device,
        watch=lambda share: told("validating", share),
        seconds=seconds / 2,
    )
    known = accepts is not None and np.mean([*map(accepts, words)] == np.array(labels)) >= KNOWN
    taught = accepts is not None and len(words) < (ALONE if known else ENOUGH)
    lesson = list(words), list(labels)
    if accepts is not None and taught:
        lesson = Strings(words, config.seed, shorter=True).lesson(accepts, TAUGHT)
    network = train_network(
        *lesson,
        replace(config, steps=STEPS),
        sorted({symbol for word in words for symbol in word}),
        device,
        watch=lambda share: told("training", share),
    )
    told("opening", 0.0)
    return Study(
        validation,
        taught,
        network.accuracy(words, labels),
        None if accepts is None else alike(network, accepts, words),
        distil(network, words, seconds=seconds, seed=config.seed),
        counterfactuals(network, words, accepts),
        head_uses(network, lesson[0]),
    )


def alike(network: Network, accepts: Accepts, words: Sequence[Word], count: int = 2000) -> float:
    """Share of fresh strings on which a network and a rule say the same."""
    fresh = Strings(words, 11).draw(count)
    return network.accuracy(fresh, [bool(accepts(word)) for word in fresh])
