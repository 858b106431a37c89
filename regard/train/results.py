"""What training returns. No torch here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.result import Grid, Result, Row, new_figure, shown

if TYPE_CHECKING:
    from regard.kit import Kit

METRICS = "metrics.jsonl"
"""What a run measured, one line of JSON each time."""


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl that were written to their end."""
    path = folder / METRICS
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


class Run(Result):
    """A trained model in {out}."""

    steps: int
    tokens: int
    """Labelled tokens that it has seen."""
    loss: float | None
    """Of the last step that was logged, in nats a token, label smoothing included."""
    best_valid: float | None
    """The lowest mean negative log-likelihood on validation data in nats a token; or best BLEU."""
    best_step: int | None
    final: str
    """Which weights `kit` has: the best step's, the last one's, or an average."""
    out: str
    """The run's folder."""
    weights: str = shown("{:.12}")
    """SHA-256 of those weights."""
    last_weights: str = shown("{:.12}")
    """SHA-256 of the weights after the last step."""
    path: Path = shown(json=False, table=False)
    """The folder of the weights, which `regard.load` opens."""

    @property
    def folder(self) -> Path:
        """The run's folder: config.toml, metrics.jsonl, log.txt, checkpoints, samples, final."""
        return Path(self.out)

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 where a run diverged: it ended with a higher loss than it began with."""
        losses = [line["loss"] for line in self.metrics if "loss" in line]
        return int(bool(losses) and losses[-1] > losses[0] + 1)

    @property
    def kit(self) -> Kit:
        """The trained model with its tokenizer."""
        from regard.loading import load_kit

        return load_kit(self.path)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What was measured, in order: step, loss, lr, … and at validations valid_nll."""
        return read_metrics(self.folder)

    def plot(self) -> Any:
        """Loss in training and on validation data over the steps, as a matplotlib figure."""
        figure = new_figure(6, 4)
        axes = figure.subplots()
        for name, label in (("nll", "training"), ("valid_nll", "validation")):
            points = [(line["step"], line[name]) for line in self.metrics if name in line]
            if points:
                axes.plot(*zip(*points, strict=True), label=label)
        axes.set(xlabel="step", ylabel="nats per token", title=self.out)
        axes.legend()
        return figure


class RunSettings(Result):
    """The settings of a run."""

    values: dict[str, Any]
    origins: dict[str, str]
    """Where each value came from: default, a preset, a file, or flag where it was given."""

    def parts(self) -> Iterator[str | Grid]:
        """As TOML that `--config` reads back."""
        from regard.train.settings import write_toml

        yield write_toml(self).rstrip()


class DryRun(Result):
    """What would run; nothing was written."""

    data: dict[str, Any]
    model: dict[str, Any]
    run: dict[str, Any]
    memory_bytes: int | None
    """Of a step on one process, in float32; None for recurrent models, which are not counted."""
    memory_free: int | None
    disk_bytes: int
    """Of checkpoints and `final`."""
    disk_free: int
    config: dict[str, Any] = shown(table=False)
    settings: RunSettings = shown(json=False)


Trained = Run | DryRun | RunSettings
"""A run; with `dry_run` what it would take, with `print_config` its settings."""


class Kill(Row):
    """How one process was ended."""

    number: int
    moment: str
    """What was aimed at."""
    step: int
    """The last step in metrics.jsonl."""
    writing: bool
    """Whether a checkpoint was half written."""
    workers: int


class ResumeCheck(Result):
    """Kills of `train {kind}`, and the weights of both runs."""

    kind: str
    same: bool
    """Whether weights and losses are the same bits."""
    kills: list[Kill]
    whole: dict[str, Any]
    """Results of the run that nobody stopped."""
    killed: dict[str, Any]
    """Results of the one that was killed and resumed."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 where they differ."""
        return 0 if self.same else 1


class Replay(Result):
    """A run again, compared with its receipt."""

    match: bool
    compared: str
    """What was compared, or the first difference."""
    results: dict[str, Any]
    """Of the new run."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """1 where they differ."""
        return 0 if self.match else 1


class LearntShortlist(Result):
    """A shortlist of words for translations, and what it is worth."""

    file: str
    bytes: int
    words: int
    """Words of the model in all."""
    always: int
    """Words that every source has."""
    length: float = shown("{:,.0f}", title="words of a source, on average")
    """Words that a source has, on average."""
    share: float = shown("{:.2%}", title="target tokens that stand in the list")
    """Target tokens that stand in the list of their source."""
    pairs: int = shown(title="pairs learnt from")
    held_out: int = shown(title="pairs held out")
    """Pairs that were not learnt from, on which length and share were measured."""


class LearntMemory(Result):
    """Sentence pairs that show what rare words become."""

    file: str
    bytes: int
    pairs: int
    words: int = shown(title="rare words in them")
    """Rare words that they show the translation of."""
