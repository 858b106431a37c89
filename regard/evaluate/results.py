"""What the verbs of `regard.evaluate` return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard.errors import UsageError
from regard.result import Grid, Result, Row, shown


class Band(Row):
    """What was measured where a number lies between two others."""

    low: int = shown(json="from", title="from")
    high: int = shown(json="to", title="to")


class PositionBand(Band):
    """Perplexity of tokens that have so many before them."""

    tokens: int = shown()
    perplexity: float = shown("{:,.2f}")


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
    by_position: list[PositionBand] | None = shown(
        title="by tokens before", optional=True, default=None
    )
    windows: str | None = shown(optional=True, default=None)
    """How the text was cut for a model that reads so many tokens at most."""
    overlap: str | None = shown(optional=True, default=None)
    """What is known of test lines in the training data."""

    def parts(self) -> Iterator[str | Grid]:
        """The numbers, and what they compare with."""
        yield from super().parts()
        if self.unknown:
            yield (
                f"{self.unknown:,} of {self.tokens:,} tokens are unknown words: compare the "
                "perplexity with that of models of this vocabulary only, bits per byte with all"
            )

    def plot(self) -> Any:
        """Perplexity by how many tokens stand before, from band to band."""
        from regard.look.picture import draw_curves

        if self.by_position is None:
            raise UsageError("drawing a picture", "no bands of positions", fix="--by-position")
        curve = {"perplexity": [band.perplexity for band in self.by_position]}
        return draw_curves(curve, "band: twice as many tokens before as in the last", "perplexity")


class PixelScores(Result):
    """{model} on {test}."""

    nats_per_token: float = shown("{:,.4f}")
    """Mean negative log-likelihood of a token."""
    bits_per_dimension: float = shown("{:,.4f}")
    """Of a picture in its codes, over pixels and channels; a palette loses some of 8 bits, so it
    does not compare with models of whole bytes."""
    unigram: float = shown("{:,.4f}")
    """Nats of a token by counts of these pictures themselves."""
    bigram: float = shown("{:,.4f}")
    """Nats of a token after the one before it, by counts of these pictures themselves."""
    psnr: float = shown("{:.2f} dB", title="PSNR")
    """Of pictures in their codes, against those that were read."""
    used: int = shown(title="codes used")
    codes: int = shown()
    tokens: int = shown()
    pictures: int = shown()


class SpeechPerplexity(Result):
    """{model} on {test}."""

    texts: dict[str, Perplexity] = shown(title="a transcript, cleaned of fillers, and shuffled")
    """spoken; cleaned: without fillers and restarts; shuffled: words of a line in random order."""
    windows: str | None = shown(optional=True, default=None)
    overlap: str | None = shown(optional=True, default=None)


class LengthBand(Band):
    """BLEU of sentences whose sources have so many words."""

    lines: int = shown()
    bleu: float = shown("{:.2f}", title="BLEU")


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


# Winograd schemas -------------------------------------------------------------------------------


class Accuracy(Row):
    """A share of right answers with its 95 % interval (Wilson 1927)."""

    accuracy: float = shown("{:.1%}")
    right: int
    asked: int
    low: float = shown("{:.1%}")
    high: float = shown("{:.1%}")

    def __str__(self) -> str:
        return f"{self.accuracy:.1%} ({self.low:.1%} to {self.high:.1%}) of {self.asked:,}"


class JudgedSchema(Row):
    """A sentence with a gap, and how likely each candidate makes it."""

    place: str
    text: str
    candidates: tuple[str, str]
    answer: str
    scores: tuple[float, float]
    right: bool


class WinogradScores(Result):
    """{model} on {file}; chance is 50 % of single schemas and 25 % of pairs."""

    single: Accuracy
    pairs: Accuracy
    """Of pairs both members must be right."""
    alone: int = shown(title="not in pairs")
    """Schemas without their twin: not counted in pairs."""
    ties: int = shown(title="ties, counted as wrong")
    """Schemas whose candidates score alike, counted as wrong."""
    schemas: list[JudgedSchema] = shown(table=False)
    pairs_at: list[tuple[int, int]] = shown(table=False)
    """Places of the two members of each pair among the schemas."""
    file: str = shown(json=False, table=False, default="")


# Multiple choice --------------------------------------------------------------------------------


class MinimalPairs(Accuracy, Result):
    """{model} on {pairs}: whether the acceptable sentence is likelier."""

    phenomena: dict[str, Accuracy]
    paradigms: dict[str, Accuracy]
    __str__ = Result.__str__


class FewShotScore(Row):
    """Accuracy with k examples in the prompt, over orders, with bootstrap intervals."""

    k: int
    accuracy: float = shown("{:.1%}")
    low: float = shown("{:.1%}")
    high: float = shown("{:.1%}")
    gain: float = shown("{:+.1%}")
    """Over the fewest examples, of the same questions, with its own interval."""
    gain_low: float = shown("{:+.1%}", title="low")
    gain_high: float = shown("{:+.1%}", title="high")
    worst: float = shown("{:.1%}", title="worst order")
    best: float = shown("{:.1%}", title="best order")
    calibrated: float = shown("{:.1%}")
    """Divided by what the model says to prompts without content."""
    calibrated_low: float = shown("{:.1%}", title="low")
    calibrated_high: float = shown("{:.1%}", title="high")


class FewShot(Result):
    """{model} on {test}."""

    questions: int
    orders: int
    score: str
    majority: float = shown("{:.1%}")
    """The share of the most frequent answer; of questions with choices of their own, its place."""
    by_k: list[FewShotScore] = shown(title="examples in the prompt")


# Vectors of words -------------------------------------------------------------------------------


class SectionScore(Accuracy):
    """Analogies of one section that were solved."""

    skipped: int
    """Questions with a word that has no vector."""


class AnalogyScores(SectionScore, Result):
    """Analogies by {vectors}, the question's words left out of the answers."""

    sections: dict[str, SectionScore] = shown()
    __str__ = Result.__str__


class SimilarityScore(Result):
    """How far vectors of words agree with people."""

    spearman: float
    pairs: int
    skipped: int
    """Pairs with a word that has no vector."""


# Classes, tags and numbers ------------------------------------------------------------------------


class ClassScore(Row):
    """How well one class is told."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int
    """Texts or words that have it."""


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

    def parts(self) -> Iterator[str | Grid]:
        """Figures, classes, and what was taken for what."""
        yield from super().parts()
        if self.confusion is not None:
            names = [row.name for row in self.classes]
            rows = [(name, *map(str, row)) for name, row in zip(names, self.confusion, strict=True)]
            yield Grid("confusion: rows are what it is, columns what was said", ("", *names), rows)

    def plot(self) -> Any:
        """What is (down) taken for what (across), as shares of each row."""
        from regard.look.picture import draw_map

        if self.confusion is None:
            raise UsageError("drawing a picture", "several labels a text", "one class a text")
        names = [row.name for row in self.classes]
        shares = [[cell / max(sum(row), 1) for cell in row] for row in self.confusion]
        return draw_map(shares, names, names, ("said", "share of what it is"))


class NumberScores(Result):
    """Numbers of {test} by {model}."""

    pearson: float
    spearman: float
    rmse: float
    """Root of the mean squared error."""
    mae: float
    """Mean absolute error."""
    count: int


class TranscriptScores(Result):
    """Transcripts of {test} by {model}."""

    letter_error_rate: float
    """Letters to change, put in or take out, by letters said; of digits the digit error rate."""
    word_error_rate: float
    accuracy: float
    """Clips without an error."""
    count: int


class AutoencoderScores(Result):
    """Texts of {test} said again by {model}."""

    texts: int = shown()
    bleu: float = shown("{:.1f}")
    """Of texts said again."""
    exact: float = shown("{:.1%}")
    """Share of them that are said again without a mistake."""
    kept: float = shown("{:.2f}")
    """Vectors that a text keeps, on average."""
    kept_share: float = shown("{:.1%}")
    nats_per_token: float = shown()
    """Mean negative log-likelihood of a token, given the latents of its text."""
    told: float = shown()
    """How many more nats a token takes, given the latents of another text."""
    collapsed: bool = shown()
    """Whether that is less than a hundredth of them: the latents are not listened to."""
    kl_vectors: float = shown()
    """Divergence of the vectors of a text from the prior, in nats (a mean over their numbers)."""
    kl_weights: float = shown()
    """Divergence of their weights."""
    histogram: dict[int, int] = shown(title="texts by vectors kept")
    forward: float | None = shown("{:,.1f}", title="samples by texts", default=None)
    """Perplexity of samples of the prior, by n-grams of the training texts."""
    reverse: float | None = shown("{:,.1f}", title="texts by samples", default=None)
    """Perplexity of the test, by n-grams of the samples."""
    reverse_of_texts: float | None = shown("{:,.1f}", title="texts by as many texts", default=None)
    """The same by n-grams of as many training texts: what samples can hope for."""
