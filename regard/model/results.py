"""What `regard.info`, `regard.models` and `regard.plan` return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regard.result import Grid, Result, Row, human, human_bytes, human_count, human_time, shown

LETTERS = """B batch, T positions, S positions looked at (the source's in an encoder-decoder)
D dim, H heads, G key-value heads, K head_dim, M hidden, V scores"""


def lines(title: str, values: Mapping[str, str]) -> Grid:
    """Names and values, one a line."""
    return Grid(title, ("", ""), list(values.items()), left=2)


# info ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputInfo(Row):
    """What a model reads."""

    kind: str
    """text, image or audio."""
    vocab: int | None
    context_length: int | None
    positions: str
    """How positions are added to the embeddings."""

    def __str__(self) -> str:
        text = self.kind + (f", vocabulary {self.vocab:,}" if self.vocab else "")
        text += f", length {self.context_length:,}" if self.context_length else ""
        return text if self.positions == "none" else f"{text}, positions {self.positions}"


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class TokenizerSummary(Row):
    """A tokenizer's kind, size and control tokens."""

    kind: str
    size: int
    specials: dict[str, int]

    def __str__(self) -> str:
        specials = ", ".join(f"{role} {id}" for role, id in self.specials.items()) or "none"
        return f"{self.kind}, {self.size:,} tokens; specials: {specials}"


@dataclass(frozen=True)
class ModelInfo(Result):
    """{path}."""

    architecture: str
    family: str
    parameters: int
    bytes_on_disk: int | None
    bytes_float32: int
    input: InputInfo
    target: InputInfo | None
    """What a decoder reads beside an encoder."""
    encoder: StackInfo | None
    decoder: StackInfo | None
    recurrent: dict[str, Any] | None
    """Cells of a recurrent network: cell, hidden, depth and, of a pair, attention."""
    scores: int | None
    """How many the output head gives; None leaves vectors."""
    tokenizer: TokenizerSummary | str | None
    """None where there is none; a sentence where it cannot be opened."""
    parity: dict[str, Any] | None
    """What `regard check` measured; None where it has not."""
    taps: dict[str, list[str]] | None
    """Each tap with the letters of its shape; None where they were not asked for."""
    path: str = shown(json=False)

    def to_dict(self) -> dict[str, Any]:
        """Without the parts that this model does not have."""
        parts = ("encoder", "decoder", "recurrent", "taps")
        values = super().to_dict()
        return {k: v for k, v in values.items() if k not in parts or v is not None}

    def parts(self) -> Iterator[str | Grid]:
        """The model, its stacks and its taps."""
        disk = "" if self.bytes_on_disk is None else f"{human_bytes(self.bytes_on_disk)} on disk, "
        model = {
            "architecture": self.architecture,
            "family": self.family,
            "parameters": f"{self.parameters:,}",
            "size": f"{disk}{human_bytes(self.bytes_float32)} in float32",
            "input": str(self.input),
        }
        if self.target is not None:
            model["target"] = str(self.target)
        model["scores"] = f"{self.scores:,}" if self.scores else "none, vectors"
        model["tokenizer"] = str(self.tokenizer or "none")
        model["parity"] = "not measured"
        if self.parity is not None:
            passed = "pass" if self.parity.get("passed") else "FAIL"
            largest, relative = self.parity.get("max_difference", 0), self.parity.get("relative", 0)
            model["parity"] = f"{passed}: largest logit difference {largest:.1e}"
            model["parity"] += f", relative {relative:.1e}"
        yield lines(self.path, model)
        for name in ("encoder", "decoder", "recurrent"):
            part = getattr(self, name)
            if part is not None:
                values = part if isinstance(part, dict) else part.to_dict()
                known = {k: v for k, v in values.items() if v not in (None, "none")}
                yield lines(name, {k.replace("_", " "): human(v) for k, v in known.items()})
        if self.taps is not None:
            rows = [(name, f"({', '.join(shape)})") for name, shape in self.taps.items()]
            yield Grid("taps", ("name", "shape"), rows, left=2)
            yield LETTERS


@dataclass(frozen=True)
class CountedInfo(Result):
    """{path}: {kind}."""

    path: str
    kind: str
    figures: dict[str, Any]
    """Sizes and settings of n-grams, vectors of words or a translator that counts."""

    def to_dict(self) -> dict[str, Any]:
        """The figures."""
        return dict(self.figures)

    def parts(self) -> Iterator[str | Grid]:
        """One figure a line."""
        yield lines(self.title(), {n.replace("_", " "): human(v) for n, v in self.figures.items()})


# models -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShippedModel(Row):
    """A model of the project."""

    name: str
    does: str = shown(title="what it does")
    folder: str | None = shown()
    """None where this installation lacks it."""


@dataclass(frozen=True)
class PresetInfo(Row):
    """A named shape."""

    name: str
    kind: str
    architecture: str | None = shown(title="saved as")
    """None is a folder of regard's own."""
    parameters: int = shown("{:,}")


@dataclass(frozen=True)
class Catalogue(Result):
    """What can be opened or built by name."""

    models: list[ShippedModel] = shown(title="models in the box")
    presets: list[PresetInfo] = shown()
    architectures: dict[str, list[str]] = shown(
        title="architectures that can be opened (folders; Llama and Qwen as .gguf too)"
    )


# plan ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedRun(Row):
    """What is planned."""

    batch: int
    tokens: dict[str, int]
    """Of each stack, in one sequence."""
    dtype: str
    train: bool


@dataclass(frozen=True)
class PartCost(Row):
    """What one part of the model costs."""

    flops: int | None
    bytes: int | None
    """Alive at its widest moment; in training, kept for the backward pass."""
    seconds: float


@dataclass(frozen=True)
class TotalCost(Row):
    """One step or one forward pass."""

    flops: int
    weight_bytes: int
    gradient_bytes: int
    optimiser_bytes: int
    peak_bytes: int
    seconds: float


@dataclass(frozen=True)
class WholeRun(Row):
    """All steps together."""

    steps: int
    seconds: float
    checkpoint_bytes: int
    disk_bytes: int
    disk_free: int
    watts: float | None
    joules: float | None


@dataclass(frozen=True)
class Plan(Result):
    """FLOPs, memory, time, disk and energy of a run of {model}."""

    model: str
    run: PlannedRun
    parameters: int
    costs: dict[str, PartCost]
    """By part of the model; `to_dict` calls them parts."""
    total: TotalCost
    device: str
    memory_limit: int | None
    fits: bool
    suggestion: str | None
    """What would fit where this does not."""
    whole: WholeRun

    def to_dict(self) -> dict[str, Any]:
        """The fields, the costs as parts."""
        values = super().to_dict()
        return {"parts" if name == "costs" else name: value for name, value in values.items()}

    def parts(self) -> Iterator[str | Grid]:
        """The table of parts, one step, and the whole run."""
        run, total = self.run, self.total
        rows = [
            (
                part,
                "" if cost.flops is None else human_count(cost.flops),
                "" if cost.bytes is None else human_bytes(cost.bytes),
                human_time(cost.seconds),
            )
            for part, cost in self.costs.items()
        ]
        rows.append(("total", human_count(total.flops), "", human_time(total.seconds)))
        tokens = ", ".join(f"{count:,} tokens in the {name}" for name, count in run.tokens.items())
        what = "one training step" if run.train else "one forward pass"
        title = f"{what} of {self.model}: batch {run.batch}, {tokens}, {run.dtype}"
        kept = "kept" if run.train else "alive"
        yield Grid(title, ("part", "FLOPs", f"memory {kept}", "time"), rows)
        yield lines("in all", self.one_step())
        yield lines(f"{self.whole.steps:,} of them", self.all_steps())

    def one_step(self) -> dict[str, str]:
        """Memory and speed for people."""
        total = self.total
        values = {
            "parameters": f"{self.parameters:,}",
            "weights": human_bytes(total.weight_bytes),
        }
        if self.run.train:
            values["gradients"] = human_bytes(total.gradient_bytes)
            values["AdamW"] = human_bytes(total.optimiser_bytes)
        values["peak memory"] = human_bytes(total.peak_bytes)
        if self.memory_limit is not None:
            room = human_bytes(self.memory_limit)
            values["fits"] = f"yes, into {room}"
            if not self.fits:
                values["fits"] = f"NO: there are {room}; {self.suggestion}"
        speed = human_count(total.flops / max(total.seconds, 1e-9))
        values["speed"] = f"{speed}FLOP/s on {self.device}, by timing one block here"
        return values

    def all_steps(self) -> dict[str, str]:
        """Time, disk and energy for people."""
        whole = self.whole
        each = f" ({human_bytes(whole.checkpoint_bytes)} a checkpoint)" if self.run.train else ""
        short = "; NOT ENOUGH" if whole.disk_bytes > whole.disk_free else ""
        disk = f"{human_bytes(whole.disk_bytes)}{each}, {human_bytes(whole.disk_free)} are free"
        energy = "not known: give --watts"
        if whole.joules is not None:
            energy = f"at most {whole.joules / 3.6e6:,.3g} kWh, at {whole.watts:,.0f} W"
        return {
            "time": human_time(whole.seconds),
            "disk": f"{disk} here{short}",
            "energy": energy,
        }
