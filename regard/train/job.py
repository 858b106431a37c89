"""What a run is given, and where it is."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from regard.data.batch import Source
from regard.errors import UsageError
from regard.model.model import Model
from regard.train.config import TrainConfig
from regard.train.world import World


@dataclass(frozen=True)
class Job:
    """A run: what to train, on what, where to, and whom to tell.

    Only the first of several processes writes: `save`, `report`, `say` and `sample` are its own.
    """

    config: TrainConfig
    model: Model
    train: Source
    folder: Path
    """The run's folder; checkpoints go to `checkpoints/` in it."""
    save: Callable[[Path, Model], None]
    """Writes a model as a folder that `regard.load` opens."""
    valid: Source | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    """What a resumed run must share: shapes, data, tokenizer."""
    report: Callable[[dict[str, Any]], None] = lambda line: None
    """Called with each line of metrics."""
    say: Callable[[str], None] = lambda text: None
    """Called with messages a person should read."""
    sample: Callable[[int, Model], None] | None = None
    """Called at each validation, to write what the model says by now."""
    world: World = World()
    """The processes that train together."""

    @classmethod
    def of_steps(cls, config: TrainConfig, model: Model) -> Job:
        """For whoever calls `Trainer.step` alone: a step reads neither data nor folders."""
        unused: Any = None
        return cls(config, model, unused, Path(), unused)


@dataclass
class State:
    """Where a run is; with weights, optimizer and generators it is all of it."""

    step: int = 0
    epoch: int = 0
    index: int = 0
    """Next batch of the epoch."""
    tokens: int = 0
    best: float | None = None
    best_step: int | None = None
    waited: int = 0
    """Validations since the best one."""
    stopped: bool = False
    """Early stopping ended the run."""


class Interrupted(KeyboardInterrupt):
    """SIGTERM or Ctrl-C arrived; the checkpoint is written."""


def check_same(
    folder: Path, now: dict[str, Any], then: dict[str, Any], free: Collection[str]
) -> None:
    """A run goes on only as the run it was; how often it reports or saves may change."""
    differing = [key for key in now if key not in free and now[key] != then.get(key)]
    if differing:
        raise UsageError(
            f"resuming {folder}",
            ", ".join(f"{k} = {now[k]!r}, was {then.get(k)!r}" for k in differing),
            "the values the run began with",
            "give them again, or begin another run with another --out",
        )


def with_dropout(model: Model, share: float) -> Model:
    """Set the dropout of every part of a model."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
    return model
