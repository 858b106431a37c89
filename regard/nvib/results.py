"""What the verbs of `regard.nvib` return. No torch here."""

from __future__ import annotations

from regard.result import Result, Row, shown


class Skipped(Row):
    """An attention that was left as it is."""

    attention: str
    why: str


class Attached(Result):
    """Bottlenecks of a model."""

    attentions: list[str]
    """Those that have one now, by name."""
    skipped: list[Skipped]


class Said(Row):
    """A text, and what an autoencoder made of it."""

    text: str
    said: str
    kept: int
    """Vectors that the text was said from."""
    of: int
    """Vectors that there were."""


class Reconstructions(Result):
    """Texts said again by {model}."""

    texts: list[Said]


class Drawn(Row):
    """A text that was said from latents which belong to no text."""

    text: str
    vectors: int


class LatentSamples(Result):
    """Texts of {model}, from latents of its prior."""

    texts: list[Drawn]


class Step(Row):
    """A text between two others."""

    share: float = shown("{:.2f}")
    """Of the second one."""
    text: str


class Interpolation(Result):
    """From one text to another, through the latents of {model}."""

    steps: list[Step]
