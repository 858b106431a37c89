"""What is tuned and how. No torch here: help is quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from regard.errors import UsageError
from regard.train.config import Config
from regard.verbs import Amount, Bound, Count, FromZero, Natural, Share


@dataclass(frozen=True)
class HeadTuning(Config):
    """A new output head on a model: what it learns from, and how much of the model with it."""

    text: str | None = None
    """Column of the texts (text, sentence)."""
    label: str | None = None
    """Column of the labels (label, labels); of tags (upos, or the last one; JSONL: tags)."""
    several: bool = False
    """classify: a text has any number of labels, a list in JSONL, else with commas between."""
    weights: tuple[str, ...] = ()
    """classify: weights of classes in the loss, CLASS=NUMBER; or balanced, so that all are even."""
    take: Literal["auto", "first", "last", "mean"] = "auto"
    """What the head reads: as the family's classifiers do, else a decoder's last vector, a mean."""
    mlp: bool = False
    """Put a layer of its own, as wide as the model, before the scores."""
    body: Literal["all", "none"] = "all"
    """none: the model is frozen and read once; the head is a logistic regression (or an MLP)."""
    freeze: tuple[str, ...] = ()
    """Parameters that do not learn, by pattern, such as front or *.blocks.[0-3].*"""
    replace: Natural = 0
    """Last blocks that begin with new weights."""
    l2: FromZero = 0.0
    """classify, regress: weight of ½ ‖W‖² of the scores in the loss; sklearn's 1 / (C · texts)."""
    layer_rate: Annotated[float, Bound(0, 1, "above 0, at most 1", above=True)] = 1.0
    """Learning rate of a block as a share of that of the block above it."""
    rows: Count = 32
    """Texts of a batch."""
    epochs: Amount | None = None
    """Times that the data is read, unless --steps says so (3, or what makes 200 steps)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.body == "none" and (self.freeze or self.replace or self.layer_rate != 1):
            problem = "body = none with freeze, replace or layer_rate"
            raise UsageError("configuring a run", problem, "one way to freeze the model")


# Answers, preferences, rewards -------------------------------------------------------------------


@dataclass(frozen=True)
class PreferenceConfig(Config):
    """Learning from pairs of a better and a worse answer."""

    beta: Amount = 0.1
    """How strongly the model is held to what it was; less lets it go further."""
    loss: Literal["dpo", "ipo"] = "dpo"
    """DPO's log-sigmoid of the margin, or IPO's square, which no pair can satisfy too well."""
    flipped: Annotated[float, Bound(0, 0.499999, "a number from 0 to below 0.5")] = 0.0
    """dpo: the share of pairs whose answers are thought to be swapped (cDPO)."""
    per_token: bool = False
    """Divide the log-probability of an answer by its length."""


@dataclass(frozen=True)
class PolicyConfig(Config):
    """Learning from rewards of answers that the model draws itself."""

    reward: str = ""
    """The folder of a reward model, or module:function: (answers, prompts) → numbers."""
    beta: FromZero = 0.05
    """Price of a nat of divergence from the model as it was, in rewards."""
    target_kl: Amount | None = None
    """Nats an answer may diverge; beta is moved until it does."""
    answers: Count = 64
    """Answers of a rollout."""
    group: Count = 1
    """Answers to each prompt (grpo: 8)."""
    max_new: Count = 48
    """Tokens of an answer at most."""
    passes: Count = 4
    """How often a rollout is gone through (grpo: 1)."""
    minibatches: Count = 4
    """Steps of each pass."""
    clip_range: Amount = 0.2
    """How far probabilities may move on one rollout, as a share."""
    gamma: Share = 1.0
    """ppo: discount of later rewards."""
    decay: Share = 0.95
    """ppo: λ of the generalized advantages."""
    value_weight: FromZero = 0.1
    """ppo: weight of the value head's loss."""
    scale: bool = True
    """grpo: divide advantages by the deviation of their group; without, beta counts in rewards."""
    best_of: Count = 16
    """Answers that best-of-n chooses from, the baseline that is measured at the end."""

    def __post_init__(self) -> None:
        reward: Any = self.reward
        if callable(reward):  # by its name, which config.toml can hold
            object.__setattr__(self, "reward", f"{reward.__module__}:{reward.__qualname__}")
        super().__post_init__()
