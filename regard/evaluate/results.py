"""What the verbs of `regard.evaluate` return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.errors import UsageError
from regard.result import Grid, Result, Row, shown

BAR_WIDTH = 40  # characters of the longest bar


@dataclass(frozen=True)
class Band(Row):
    """What was measured where a number lies between two others."""

    low: int = shown(json="from", title="from")
    high: int = shown(json="to", title="to")


@dataclass(frozen=True)
class PositionBand(Band):
    """Perplexity of tokens that have so many before them."""

    tokens: int = shown()
    perplexity: float = shown("{:,.2f}")


@dataclass(frozen=True)
class Perplexity(Result):
    """{model} on {test}."""

    perplexity: float = shown("{:,.4f}")
    loss: float = shown("{:,.4f}")
    """Mean negative log-likelihood of a token, in nats."""
    bits_per_token: float = shown("{:,.4f}")
    bits_per_byte: float = shown("{:,.4f}")
    """With unknown words spelt out, 8 bits a byte: comparable between all models."""
    tokens: int = shown()
    bytes: int = shown()
    vocabulary: str = shown()
    """Tokens and a mark of their spelling: perplexities with another are not comparable."""
    unknown: int | None = shown(optional=True, default=None)
    """Tokens that stand for words the model does not know, of models that have such a token."""
    perplexity_known: float | None = shown("{:,.4f}", optional=True, default=None)
    """Without those; `perplexity` has them as one word of the vocabulary."""
    impossible: int | None = shown(optional=True, default=None)
    """Tokens of probability 0, of n-grams without smoothing."""
    by_position: list[PositionBand] | None = shown(table=False, optional=True, default=None)
    windows: str | None = shown(optional=True, default=None)
    """How the text was cut for a model that reads so many tokens at most."""
    overlap: str | None = shown(optional=True, default=None)
    """What is known of test lines in the training data."""
    model: str = shown(json=False, table=False, default="")
    test: str = shown(json=False, table=False, default="")

    def parts(self) -> Iterator[str | Grid]:
        """The numbers, then a plot by position."""
        yield from super().parts()
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
    windows: str | None = shown(optional=True, default=None)
    overlap: str | None = shown(optional=True, default=None)
    model: str = shown(json=False, default="")
    test: str = shown(json=False, default="")

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

    lines: int = shown()
    bleu: float = shown("{:.2f}", title="BLEU")


@dataclass(frozen=True)
class TranslationScores(Result):
    """{model} on {test}."""

    bleu: float = shown("{:.4f}")
    bleu_signature: str = shown()
    chrf: float = shown("{:.4f}")
    chrf_signature: str = shown()
    lines: int = shown()
    beams: int = shown()
    overlap: str = shown()
    by_length: list[LengthBand] | None = shown(
        title="BLEU by words of the source", optional=True, default=None
    )
    model: str = shown(json=False, table=False, default="")
    test: str = shown(json=False, table=False, default="")


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
    """{model} on {file}."""

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

    accuracy: float = shown("{:.1%}")
    right: int = shown()
    asked: int = shown()
    skipped: int = shown()
    """Questions with a word that has no vector."""
    low: float = shown("{:.1%}")
    high: float = shown("{:.1%}")
    """95 % interval (Wilson 1927)."""


@dataclass(frozen=True)
class AnalogyScores(SectionScore, Result):
    """Analogies by {vectors}, the question's words left out of the answers."""

    sections: dict[str, SectionScore] = shown()
    vectors: str = shown(json=False, table=False, default="")


@dataclass(frozen=True)
class SimilarityScore(Result):
    """How far vectors of words agree with people."""

    spearman: float
    pairs: int
    skipped: int
    """Pairs with a word that has no vector."""


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


@dataclass(frozen=True)
class TranscriptScores(Result):
    """Transcripts of {test} by {model}."""

    letter_error_rate: float
    """Letters to change, put in or take out, by letters said; of digits the digit error rate."""
    word_error_rate: float
    accuracy: float
    """Clips without an error."""
    count: int
    model: str = shown(json=False, table=False, default="")
    test: str = shown(json=False, table=False, default="")
