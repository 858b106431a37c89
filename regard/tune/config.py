"""What is tuned and how. No torch here: help is quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from regard.errors import UsageError
from regard.train.config import Config, FromZero
from regard.verbs import Amount, Bound, Count, Natural


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
    long: Literal["cut", "drop"] = "cut"
    """Texts of more than --length tokens: cut at their end, or left out; counted either way."""
    rows: Count = 32
    """Texts of a batch."""
    epochs: Amount | None = None
    """Times that the data is read, unless --steps says so (3, or what makes 200 steps)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.body == "none" and (self.freeze or self.replace or self.layer_rate != 1):
            problem = "body = none with freeze, replace or layer_rate"
            raise UsageError("configuring a run", problem, "one way to freeze the model")
