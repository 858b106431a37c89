"""Sampling: draw the next token, by temperature and cuts, with numbers that belong to the row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.decode import warp
from regard.decode.generate import greedy
from regard.decode.random import draw, uniform
from regard.decode.step import Process
from regard.errors import UsageError, check_names


@dataclass(frozen=True)
class SampleConfig:
    """How to draw."""

    temperature: float = 1.0
    """Below 1 sharper, above 1 flatter; 0 is greedy, inf uniform over what is left."""
    top_k: int | None = None
    """Draw from this many likeliest tokens."""
    top_p: float | None = None
    """Draw from the smallest set of likeliest tokens that reaches this probability."""
    min_p: float | None = None
    """Draw from tokens at least this share as likely as the best."""
    typical: float | None = None
    """Draw from tokens of typical surprise that reach this probability."""
    repetition: float = 1.0
    """Divide the score of tokens that occurred already by this."""
    frequency: float = 0.0
    """Subtract this from a token's score for each time it occurred."""
    presence: float = 0.0
    """Subtract this from a token's score if it occurred."""
    seed: int = 0
    """The same seed draws the same tokens, whatever else is in the batch."""
    first: int = 0
    """Number of the batch's first row; a row's draws belong to its number."""

    def __post_init__(self) -> None:
        if not -(2**63) <= self.seed < 2**63:
            raise UsageError("sampling", f"seed = {self.seed}", "a whole number of 64 bits")
        Sampler(self).warp(torch.zeros(1, 1))  # which complains of values out of range
        warp.repetition(torch.zeros(1, 1), torch.zeros(1, 0, dtype=torch.long), self.repetition)


def sample_config(values: dict[str, Any]) -> SampleConfig:
    """A SampleConfig from its fields by name; an unknown one fails with the nearest."""
    known = SampleConfig.__dataclass_fields__
    check_names(values, known, "sampling", "a field of SampleConfig")
    return SampleConfig(**values)


class Sampler:
    """Chooses tokens as a SampleConfig says; `rows` numbers make each row's draw its own."""

    def __init__(self, config: SampleConfig) -> None:
        self.config = config

    def __call__(self, logits: Tensor, rows: Tensor, step: int | Tensor) -> Tensor:
        """(N, V), (N,) → (N,)."""
        c, logits = self.config, logits.float()
        if c.temperature == 0:
            return greedy(logits, rows, step)
        return draw(self.warp(logits), uniform(c.seed, rows + c.first, step))

    def warp(self, logits: Tensor) -> Tensor:
        """Temperature first, then the cuts; the renormalised probabilities are its softmax."""
        c = self.config
        logits = warp.temperature(logits, c.temperature)
        if c.top_k is not None:
            logits = warp.top_k(logits, c.top_k)
        if c.top_p is not None:
            logits = warp.top_p(logits, c.top_p)
        if c.min_p is not None:
            logits = warp.min_p(logits, c.min_p)
        if c.typical is not None:
            logits = warp.typical(logits, c.typical)
        return logits


def penalties(config: SampleConfig) -> list[Process]:
    """Penalties on what occurred already, as processes."""
    made: list[Process] = []
    if config.repetition != 1:
        made.append(lambda logits, seen: warp.repetition(logits, seen, config.repetition))
    if config.frequency or config.presence:
        made.append(
            lambda logits, seen: warp.frequency(logits, seen, config.frequency, config.presence)
        )
    return made
