"""What tuned models say. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regard.result import Grid, Result, human, shown


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
