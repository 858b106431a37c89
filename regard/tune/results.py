"""What adapting returns. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from regard.result import Result


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
