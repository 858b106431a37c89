"""What the verbs of `regard.evaluate` return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.errors import UsageError
from regard.result import Grid, Result, Row, human, shown

BAR_WIDTH = 40  # characters of the longest bar


@dataclass(frozen=True)
class Band(Row):
    """What was measured where a number lies between two others."""

    low: int
    high: int

    def to_dict(self) -> dict[str, Any]:
        """The fields; the two ends are called from and to."""
        data = super().to_dict()
        return {"from": data.pop("low"), "to": data.pop("high"), **data}


@dataclass(frozen=True)
class PositionBand(Band):
    """Perplexity of tokens that have so many before them."""

    tokens: int
    perplexity: float


@dataclass(frozen=True)
class Perplexity(Result):
    """{model} on {test}."""

    perplexity: float
    loss: float
    """Mean negative log-likelihood of a token, in nats."""
    bits_per_token: float
    bits_per_byte: float
    """With unknown words spelt out, 8 bits a byte: comparable between all models."""
    tokens: int
    bytes: int
    vocabulary: str
    """Tokens and a mark of their spelling: perplexities with another are not comparable."""
    unknown: int | None = None
    """Tokens that stand for words the model does not know, of models that have such a token."""
    perplexity_known: float | None = None
    """Without those; `perplexity` has them as one word of the vocabulary."""
    impossible: int | None = None
    """Tokens of probability 0, of n-grams without smoothing."""
    by_position: list[PositionBand] | None = None
    windows: str | None = None
    """How the text was cut for a model that reads so many tokens at most."""
    overlap: str | None = None
    """What is known of test lines in the training data."""
    model: str = shown(json=False, default="")
    test: str = shown(json=False, default="")

    def to_dict(self) -> dict[str, Any]:
        """The fields that have a value; an infinite perplexity is null."""
        values = super().to_dict()
        return {
            n: v for n, v in values.items() if v is not None or n == "perplexity" or n == "loss"
        }

    def parts(self) -> Iterator[str | Grid]:
        """The numbers, then a plot by position."""
        values = {n: getattr(self, n) for n in self.to_dict() if n != "by_position"}
        yield Grid(self.title(), ("", ""), [describe(n, v) for n, v in values.items()], left=2)
        if self.unknown:
            yield (
                f"{self.unknown:,} of {self.tokens:,} tokens are unknown words: compare the "
                "perplexity with that of models of this vocabulary only, bits per byte with all"
            )
        if self.by_position:
            most = max(band.perplexity for band in self.by_position)
            rows = [
                (
                    f"{band.low:,} to {band.high:,}",
                    "█" * max(1, round(BAR_WIDTH * band.perplexity / most)),
                    f"{band.perplexity:,.2f}",
                    f"{band.tokens:,}",
                )
                for band in self.by_position
            ]
            columns = "tokens before", "", "perplexity", "tokens"
            yield Grid("perplexity by position", columns, rows, left=2)


@dataclass(frozen=True)
class SpeechPerplexity(Result):
    """{model} on {test}."""

    spoken: Perplexity
    cleaned: Perplexity
    """Without fillers and restarts."""
    shuffled: Perplexity
    """The words of each line in random order."""
    windows: str | None = None
    overlap: str | None = None
    model: str = shown(json=False, default="")
    test: str = shown(json=False, default="")

    def to_dict(self) -> dict[str, Any]:
        """The fields that have a value."""
        return {name: value for name, value in super().to_dict().items() if value is not None}

    def parts(self) -> Iterator[str | Grid]:
        """How far speech is from the written language, and from words in random order."""
        known = [(n, v) for n, v in (("windows", self.windows), ("overlap", self.overlap)) if v]
        yield Grid(self.title(), ("", ""), known, left=2)
        names = "perplexity", "bits_per_token", "bits_per_byte"
        versions = {"spoken": self.spoken, "cleaned": self.cleaned, "shuffled": self.shuffled}
        rows = [
            (name, *(f"{getattr(text, one):,.3f}" for one in names), f"{text.tokens:,}")
            for name, text in versions.items()
        ]
        columns = "", "perplexity", "bits per token", "bits per byte", "tokens"
        yield Grid("a transcript without fillers and restarts, and shuffled", columns, rows)


@dataclass(frozen=True)
class LengthBand(Band):
    """BLEU of sentences whose sources have so many words."""

    mean: float
    lines: int
    bleu: float


@dataclass(frozen=True)
class TranslationScores(Result):
    """{model} on {test}."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    lines: int
    beams: int
    overlap: str
    by_length: list[LengthBand] | None = None
    model: str = shown(json=False, default="")
    test: str = shown(json=False, default="")

    def to_dict(self) -> dict[str, Any]:
        """The fields; lengths where they were asked for."""
        return {name: value for name, value in super().to_dict().items() if value is not None}

    def parts(self) -> Iterator[str | Grid]:
        """The scores, then BLEU by length."""
        values = {n: getattr(self, n) for n in self.to_dict() if n != "by_length"}
        yield Grid(self.title(), ("", ""), [describe(n, v) for n, v in values.items()], left=2)
        if self.by_length:
            rows = [
                (f"{band.low} to {band.high}", f"{band.lines:,}", f"{band.bleu:.2f}")
                for band in self.by_length
            ]
            yield Grid("BLEU by words of the source", ("words", "lines", "BLEU"), rows)


def describe(name: str, value: Any) -> tuple[str, str]:
    """A field as people read it."""
    return name.replace("_", " "), f"{value:,.4f}" if isinstance(value, float) else human(value)


# Winograd schemas -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy(Row):
    """A share of right answers with its 95 % interval (Wilson 1927)."""

    accuracy: float
    right: int
    asked: int
    low: float
    high: float


@dataclass(frozen=True)
class SchemaScores(Row):
    """Right choices, one by one and in pairs."""

    single: Accuracy
    pairs: Accuracy
    """Of pairs both members must be right."""
    alone: int
    """Schemas without their twin: not counted in pairs."""
    ties: int
    """Schemas whose candidates score alike, counted as wrong."""


@dataclass(frozen=True)
class JudgedSchema(Row):
    """A sentence with a gap, and how likely each candidate makes it."""

    place: str
    text: str
    candidates: tuple[str, str]
    answer: str
    scores: tuple[float, float]
    right: bool


@dataclass(frozen=True)
class WinogradScores(SchemaScores, Result):
    """{model} on {file}, {score} score."""

    score: str
    groups: dict[str, SchemaScores]
    schemas: list[JudgedSchema]
    pairs_at: list[tuple[int, int]]
    """Places of the two members of each pair among the schemas."""
    model: str = shown(json=False, default="")
    file: str = shown(json=False, default="")

    def parts(self) -> Iterator[str | Grid]:
        """Single and pair accuracy of each group and of all."""
        named = [*self.groups.items()] if len(self.groups) > 1 else []
        rows = [
            (
                name,
                kind,
                f"{share.accuracy:.1%}",
                f"{share.low:.1%} to {share.high:.1%}",
                f"{share.right:,}",
                f"{share.asked:,}",
            )
            for name, scores in [*named, ("all", self)]
            for kind, share in (("single", scores.single), ("pairs", scores.pairs))
        ]
        columns = "", "", "accuracy", "95 % interval", "right", "of"
        yield Grid(self.title(), columns, rows, left=2)
        ties = f"; {self.ties:,} ties, counted as wrong" if self.ties else ""
        chance = "chance is 50 % of single schemas and 25 % of pairs"
        yield f"{self.alone:,} schemas without their pair are not in the pairs{ties}; {chance}"


# Multiple choice --------------------------------------------------------------------------------


@dataclass(frozen=True)
class MinimalPairs(Accuracy, Result):
    """{model} on {test}: whether the acceptable sentence is likelier."""

    phenomena: dict[str, Accuracy]
    paradigms: dict[str, Accuracy]
    model: str = shown(json=False, table=False, default="")
    test: str = shown(json=False, table=False, default="")


@dataclass(frozen=True)
class FewShotScore(Row):
    """Accuracy with k examples in the prompt, over orders, with bootstrap intervals."""

    k: int
    accuracy: float = shown("{:.1%}")
    low: float = shown("{:.1%}")
    high: float = shown("{:.1%}")
    worst: float = shown("{:.1%}", title="worst order")
    best: float = shown("{:.1%}", title="best order")
    calibrated: float = shown("{:.1%}")
    """Divided by what the model says to prompts without content."""
    calibrated_low: float = shown("{:.1%}", title="low")
    calibrated_high: float = shown("{:.1%}", title="high")


@dataclass(frozen=True)
class FewShot(Result):
    """{model} on {test}."""

    questions: int
    orders: int
    score: str
    majority: float = shown("{:.1%}")
    """The share of the most frequent answer; of questions with choices of their own, its place."""
    by_k: list[FewShotScore] = shown(title="examples in the prompt")
    model: str = shown(json=False, table=False, default="")
    test: str = shown(json=False, table=False, default="")


# Vectors of words -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SectionScore(Row):
    """Analogies of one section that were solved."""

    accuracy: float
    right: int
    asked: int
    skipped: int
    """Questions with a word that has no vector."""
    low: float
    high: float


@dataclass(frozen=True)
class AnalogyScores(SectionScore, Result):
    """Analogies by {vectors}."""

    sections: dict[str, SectionScore]
    vectors: str = shown(json=False, default="")

    def parts(self) -> Iterator[str | Grid]:
        """A row for each section and one for all."""
        rows = [
            (name, f"{s.accuracy:.1%}", f"{s.right:,}", f"{s.asked:,}", f"{s.skipped:,}")
            for name, s in (self.sections | {"all": self}).items()
        ]
        yield Grid(self.title(), ("section", "right", "", "asked", "without vectors"), rows)
        interval = f"{self.low:.1%} to {self.high:.1%}"
        yield f"95 % interval of all: {interval}; the question's words are left out"


@dataclass(frozen=True)
class SimilarityScore(Result):
    """How far vectors of words agree with people."""

    spearman: float
    pairs: int
    skipped: int

    def parts(self) -> Iterator[str | Grid]:
        """One line."""
        without = f", {self.skipped:,} without vectors" if self.skipped else ""
        yield f"Spearman's ρ {self.spearman:.4f} over {self.pairs:,} pairs{without}"


# Classes, tags and numbers ------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassScore(Row):
    """How well one class is told."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int
    """Texts or words that have it."""


@dataclass(frozen=True)
class ClassScores(Result):
    """Classes of {test} by {model}."""

    accuracy: float
    """Of several labels a text: all of them right."""
    low: float
    high: float
    """95 % interval of the accuracy, over texts drawn again and again (bootstrap)."""
    macro_f1: float
    """Mean of the classes' F1, rare ones as much as frequent ones."""
    micro_f1: float
    ece: float
    """Expected calibration error: how far confidence is from accuracy, over 15 bins."""
    count: int
    """Texts, or words of a tagger."""
    classes: list[ClassScore]
    confusion: list[list[int]] | None = shown(table=False, default=None)
    """How often a class (row) was called each class (column); None of several labels."""
    model: str = shown(json=False, table=False, default="")
    test: str = shown(json=False, table=False, default="")

    def parts(self) -> Iterator[str | Grid]:
        """Figures, classes, and what was taken for what."""
        yield from super().parts()
        if self.confusion is not None:
            names = [row.name for row in self.classes]
            rows = [(name, *map(str, row)) for name, row in zip(names, self.confusion, strict=True)]
            yield Grid("confusion: rows are what it is, columns what was said", ("", *names), rows)

    def plot(self) -> Any:
        """The confusion table as a matplotlib figure, each row as shares."""
        from matplotlib.figure import Figure

        if self.confusion is None:
            raise UsageError("drawing a picture", "several labels a text", "one class a text")
        names, size = [row.name for row in self.classes], max(3.0, 0.4 * len(self.classes))
        figure = Figure(figsize=(size + 1.5, size))
        axes = figure.subplots()
        shares = [[cell / max(sum(row), 1) for cell in row] for row in self.confusion]
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for y, row in enumerate(self.confusion):
            for x, cell in enumerate(row):
                color = "white" if shares[y][x] > 0.5 else "black"
                axes.text(x, y, str(cell), ha="center", va="center", color=color, fontsize=8)
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="said", ylabel="is", title=f"{self.accuracy:.1%} right")
        return figure


@dataclass(frozen=True)
class NumberScores(Result):
    """Numbers of {test} by {model}."""

    pearson: float
    spearman: float
    rmse: float
    """Root of the mean squared error."""
    mae: float
    """Mean absolute error."""
    count: int
    model: str = shown(json=False, table=False, default="")
    test: str = shown(json=False, table=False, default="")
