"""What `regard.nvib` returns. No torch here."""

from __future__ import annotations

from regard.result import Result, Row, shown


class Attached(Result):
    """Bottlenecks of a model."""

    attentions: list[str]
    """Those that have one now, by name."""
    skipped: dict[str, str]
    """Those that were left as they are, and why."""


class Reconstruction(Result):
    """{text}."""

    text: str = shown(table=False)
    said: str = shown()
    """What the autoencoder makes of its latents."""
    kept: int = shown()
    """Vectors that it is said from."""
    of: int = shown()
    """Vectors that there were, one for each token."""


class SampledText(Row):
    """A text of latents that were drawn."""

    text: str
    vectors: int


class SampledTexts(Result):
    """{count} texts from the prior of {model}."""

    texts: list[SampledText]


class Step(Row):
    """A text between two others."""

    share: float = shown("{:.2f}")
    """Of the second one."""
    text: str = shown()


class Interpolation(Result):
    """From {first!r} to {second!r}."""

    steps: list[Step]
