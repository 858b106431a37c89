"""What tuned models say. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard.result import Grid, Result, Row, human, new_figure, shown
from regard.train.results import Run


class Prediction(Result):
    """What a tuned model says of a text."""

    text: str
    label: str | float | list[str]
    """The class; the number; or all labels of a text, or the tags of its words."""
    probability: float | list[float] | None = shown(optional=True, default=None)
    """Of the label, or of each of them."""
    words: list[str] | None = shown(optional=True, default=None)
    """Those that the tags are of."""

    def parts(self) -> Iterator[str | Grid]:
        """A line; of tags a word each."""
        if self.words is not None and isinstance(self.label, list):
            yield " ".join(f"{w}/{tag}" for w, tag in zip(self.words, self.label, strict=True))
            return
        sure = "" if self.probability is None else f"  {human(self.probability, '{:.1%}')}"
        yield f"{human(self.label)}{sure}  {self.text}"


class Merged(Result):
    """An adapter in the weights of its base, written to {out}."""

    drift: float
    """The largest difference between the scores of the merged model and of the model with the
    adapter beside it, on random inputs."""
    largest_score: float
    """The largest of those scores, by its absolute value."""
    parameters: int
    """Weights of the whole model."""
    adapter_parameters: int
    """Weights of the adapter."""
    base: str
    out: str


class FrontierPoint(Row):
    """How much reward for how much divergence."""

    answers: str
    reward: float
    kl: float = shown("{:.3f}")
    """Nats from the model as it was; of best-of-n ln n − (n − 1) / n."""


class PolicyRun(Run, kw_only=True):
    """A policy in {out}."""

    deviation: float
    """Of the rewards of the model as it was."""
    gain: float | None
    """What the policy's answers are rewarded above those, in deviations."""
    frontier: list[FrontierPoint]
    """Best-of-n and the policy, on held-out prompts."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """0: the loss of a policy says nothing of how good it is."""
        return 0

    def plot(self) -> Any:
        """Reward, divergence and length over the steps; reward against divergence."""
        figure = new_figure(12, 3)
        axes = figure.subplots(1, 4)
        for place, name in zip(axes, ("reward", "kl", "length"), strict=False):
            points = [(line["step"], line[name]) for line in self.metrics if name in line]
            place.plot(*zip(*points, strict=True))
            place.set(xlabel="step", title=name)
        *best, policy = self.frontier
        axes[3].plot([p.kl for p in best], [p.reward for p in best], "o-", label="best of n")
        axes[3].plot(policy.kl, policy.reward, "*", label="policy")
        axes[3].set(xlabel="nats from the model as it was", title="reward")
        axes[3].legend()
        return figure
