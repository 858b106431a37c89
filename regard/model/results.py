"""What `regard.info`, `regard.models` and `regard.plan` return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard.result import Grid, Result, Row, human_bytes, human_count, human_time, shown

LETTERS = """B batch, T positions, S positions looked at (the source's in an encoder-decoder)
D dim, H heads, G key-value heads, K head_dim, M hidden, V scores"""


# info ---------------------------------------------------------------------------------------------


class InputInfo(Row):
    """What a model reads."""

    kind: str
    """text, image or audio."""
    vocab: int | None
    context_length: int | None
    positions: str
    """How positions are added to the embeddings."""


class StackInfo(Row):
    """Sizes of an encoder or a decoder."""

    dim: int
    depth: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    positions: str
    """How attention sees positions."""
    norm: str
    activation: str
    causal: bool
    window: int | None


class TokenizerSummary(Row):
    """A tokenizer's kind, size and control tokens."""

    kind: str
    size: int
    specials: dict[str, int]


class ModelInfo(Result):
    """{path}."""

    architecture: str
    family: str
    parameters: int
    bytes_on_disk: int | None = shown(human_bytes, title="on disk", optional=True)
    bytes_float32: int = shown(human_bytes, title="in float32")
    input: InputInfo = shown()
    target: InputInfo | None = shown(optional=True)
    """What a decoder reads beside an encoder."""
    encoder: StackInfo | None = shown(optional=True)
    decoder: StackInfo | None = shown(optional=True)
    recurrent: dict[str, Any] | None = shown(optional=True)
    """Cells of a recurrent network: cell, hidden, depth and, of a pair, attention."""
    scores: int | None = shown(empty="none, vectors")
    """How many the output head gives; None leaves vectors."""
    tokenizer: TokenizerSummary | str | None = shown(empty="none")
    """None where there is none; a sentence where it cannot be opened."""
    parity: dict[str, Any] | None = shown(title="parity with transformers", empty="not measured")
    """What `regard check` measured; None where it has not."""
    taps: dict[str, list[str]] | None = shown(optional=True)
    """Each tap with the letters of its shape; None where they were not asked for."""
    path: str = shown(json=False, table=False)

    def parts(self) -> Iterator[str | Grid]:
        """The fields; the letters of the taps are told."""
        yield from super().parts()
        if self.taps is not None:
            yield LETTERS


class CountedInfo(Result):
    """{path}: {kind}."""

    path: str = shown(table=False)
    kind: str = shown(table=False)
    figures: dict[str, Any] = shown()
    """Sizes and settings of n-grams, vectors of words or a translator that counts."""

    def to_dict(self) -> dict[str, Any]:
        """The figures."""
        return dict(self.figures)


# models -------------------------------------------------------------------------------------------


class ShippedModel(Row):
    """A model of the project."""

    name: str
    does: str = shown(title="what it does")
    folder: str = shown()


class PresetInfo(Row):
    """A named shape."""

    name: str
    module: str
    """Attention, positions, norm and MLP of its blocks."""
    architecture: str
    pretraining: str = shown(title="pre-training")
    application: str = shown()
    saved_as: str | None = shown()
    """None is a folder of regard's own."""
    parameters: int = shown("{:,}")


class Catalogue(Result):
    """What can be opened or built by name."""

    models: list[ShippedModel] = shown(title="models in the box")
    presets: list[PresetInfo] = shown(title="presets, by the four axes of Lin's survey (2022)")
    architectures: dict[str, list[str]] = shown(
        title="architectures that can be opened (folders; Llama and Qwen as .gguf too)"
    )


# plan ---------------------------------------------------------------------------------------------


class PlannedRun(Row):
    """What is planned."""

    batch: int
    tokens: dict[str, int]
    """Of each stack, in one sequence."""
    dtype: str
    train: bool


class PartCost(Row):
    """What one part of the model costs."""

    flops: int | None = shown(human_count, title="FLOPs")
    bytes: int | None = shown(human_bytes, title="memory")
    """Alive at its widest moment; in training, kept for the backward pass."""
    seconds: float = shown(human_time, title="time")


class TotalCost(Row):
    """One step or one forward pass."""

    flops: int = shown(human_count, title="FLOPs")
    weight_bytes: int = shown(human_bytes, title="weights")
    gradient_bytes: int = shown(human_bytes, title="gradients")
    optimiser_bytes: int = shown(human_bytes, title="AdamW")
    peak_bytes: int = shown(human_bytes, title="peak memory")
    seconds: float = shown(human_time, title="time")


class WholeRun(Row):
    """All steps together."""

    steps: int
    seconds: float = shown(human_time, title="time")
    checkpoint_bytes: int = shown(human_bytes, title="a checkpoint")
    disk_bytes: int = shown(human_bytes, title="disk")
    disk_free: int = shown(human_bytes, title="free here")
    watts: float | None = shown("{:,.0f}")
    joules: float | None = shown(lambda joules: f"{joules / 3.6e6:,.3g} kWh", title="energy")
    """At most, for the power is a limit; None where it is not known."""


class Plan(Result):
    """FLOPs, memory, time, disk and energy of a run of {model}."""

    model: str = shown(table=False)
    run: PlannedRun = shown()
    parameters: int = shown()
    costs: dict[str, PartCost] = shown(json="parts")
    """By part of the model; `to_dict` calls them parts."""
    total: TotalCost = shown()
    device: str = shown()
    memory_limit: int | None = shown(human_bytes)
    fits: bool = shown()
    suggestion: str | None = shown()
    """What would fit where this does not."""
    whole: WholeRun = shown(title="all steps")
