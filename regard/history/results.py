"""What the verbs of what came before attention return: word vectors, clusters, entropy, n-grams."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from regard.result import Grid, Result, Row, grid_of, grid_of_values, human_time, shown

# Word vectors -------------------------------------------------------------------------------------


class NearWord(Row):
    """A word and how near it is."""

    word: str
    score: float = shown("{:.4f}")


class Neighbours(Result):
    """Nearest to {word}, by cosine."""

    word: str = shown(table=False)
    neighbours: list[NearWord] = shown()


class Analogy(Result):
    """{question[0]} is to {question[1]} as {question[2]} is to."""

    question: list[str] = shown(table=False)
    excluded: list[str] = shown(title="left out, as always")
    answers: list[NearWord] = shown()


class Cluster(Row):
    """Words of one class, the frequent ones first."""

    label: str
    """The way from the root of the tree to the class, in bits."""
    words: list[str]


class Clusters(Result):
    """{vocabulary:,} words of {text}."""

    k: int
    vocabulary: int
    classes: list[Cluster]
    top: int = shown(json=False, default=10)
    """Words of each that are shown."""

    def parts(self) -> Iterator[str | Grid]:
        """The first words of each class, and how many it has."""
        rows = [(c.label, " ".join(c.words[: self.top]), f"{len(c.words):,}") for c in self.classes]
        yield Grid(self.title(), ("label", "words", ""), rows, left=range(2))


class WeightedTitle(Row):
    """A title, how like the query it is, and its share of the attention."""

    title: str
    cosine: float = shown("{:.4f}")
    weight: float = shown("{:.4f}")


class Lookup(Result):
    """What {query} attends to among {all:,} titles."""

    query: str = shown(table=False)
    all: int = shown(table=False)
    titles: list[WeightedTitle] = shown()


# Entropy and guessing -----------------------------------------------------------------------------

SPELT = {
    "27": "a to z and the blank; all else became a blank",
    "26": "a to z; all else was left out",
    "as-is": "every character of the text",
}


class CodedText(Row):
    """What an arithmetic coder makes of a text with one predictor."""

    by: str = shown(title="predicted by")
    tokens: int = shown(table=False)
    unknown: int = shown(table=False)
    """Tokens that stand for words the model does not know."""
    bits_per_letter: float = shown("{:.3f}")
    bytes: int = shown()
    coded_bits_per_letter: float = shown("{:.3f}", title="coded")
    excess: float | None = shown("{:.2%}", title="over")
    """By what share the coded bits are more than the model's; None where those are infinite."""
    impossible: int = shown(table=False, default=0)
    """Tokens of probability 0, for which the coder keeps a small share."""


class Entropy(Result):
    """Bits per letter of {file}."""

    file: str
    alphabet: str
    symbols: int
    letters: int
    F: list[float]
    """F_0 to F_N by counting (plug-in)."""
    held_out: list[float]
    """Cross entropy of the last tenth by n-grams of the rest (modified Kneser–Ney)."""
    shannon: tuple[float, ...] | None
    """F_0 to F_3 as he published them."""
    coded: list[CodedText]
    """By n-grams that learn as they read, and by the model that was asked for."""

    def parts(self) -> Iterator[str | Grid]:
        """The table of F_N, what the coder reached, and what is to be known of them."""
        kinds = f"{self.symbols} symbols ({SPELT[self.alphabet]})"
        yield f"{self.file}: {self.letters:,} letters, {kinds}"
        names, published = [f"F{n}" for n in range(len(self.F))], self.shannon or ()
        rows = zip_longest(names, self.F, self.held_out, published[: len(names)])
        columns = ("", "plug-in", "held-out", "Shannon 1951")
        yield grid_of_values("bits per letter", columns, rows, (None, "{:.3f}", "{:.3f}", "{:.2f}"))
        yield grid_of("predicted from what was read, and coded", self.coded)
        for row in self.coded:
            of = f"of {row.tokens:,} tokens"
            if row.impossible:
                why = "not seen in training, and nothing is smoothed"
                yield f"{row.by}: {row.impossible:,} {of} have probability 0: {why}"
            elif row.unknown:
                why = "whose letters cost nothing here: too low"
                yield f"{row.by}: {row.unknown:,} {of} are unknown words, {why}"


YOU = "you"
BLANK = "_"  # how the blank is shown, and may be typed
BARS = " ▁▂▃▄▅▆▇█"
GROUPS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))


class Player(Row):
    """How someone or some model guessed."""

    player: str
    lower: float | None
    upper: float | None
    """Bounds of the entropy in bits per letter, from the shares of ranks."""
    told: int
    """Letters that the player gave up."""
    q: list[float]
    """Share of letters that took i guesses."""
    ranks: list[int]
    """Guesses that each letter took."""


class Guesses(Result):
    """Per cent of letters by the guess that was right; bounds in bits per letter."""

    file: str
    alphabet: str
    symbols: int
    begin: int
    """Where in the file's letters the passage begins."""
    text: str
    players: list[Player]

    def parts(self) -> Iterator[str | Grid]:
        """A row for each player."""
        if not self.players or not self.text:
            yield "no letter was guessed"
            return
        person = self.players[0].player == YOU
        names = [f"{a}" if a == b else f"{a}–{b}" if b else f"{a}+" for a, b in GROUPS]
        rows = []
        for row in self.players:
            shares = [round(100 * sum(row.q[a - 1 : b])) for a, b in GROUPS]
            bars = "".join(BARS[-int(-8 * share // 1)] for share in row.q[:8])
            rows.append((Path(row.player).name, bars, *shares, row.lower, row.upper))
        columns = ("player", "1 … 8", *names, "lower", "upper")
        yield grid_of_values(self.title(), columns, rows, "{:.2f}")
        if person:
            yield "Shannon's reader, who knew 100 letters: 0.6 to 1.3 bits per letter."


# n-grams ------------------------------------------------------------------------------------------


class Sample(Row):
    """A text drawn by n-grams of one order."""

    order: int
    text: str = shown(table=False)
    marked: str = shown(title="text")
    """The text, with a dot before words that were not seen after all that was looked at."""
    tokens: list[int] = shown(table=False)
    backed_off: int = shown(table=False)


class Samples(Result):
    """Drawn by smoothed probabilities; · not seen after all the words before, so backed off."""

    samples: list[Sample]


class NgramRun(Result):
    """n-grams up to {order} {units}, in {out}."""

    out: str
    tokens: int
    """Of the text that was counted."""
    vocabulary: int
    classes: int | None = shown(optional=True)
    """Of words, where n-grams are of classes."""
    ngrams: list[int] = shown()
    """How many of each length."""
    smoothing: str = shown()
    seconds: float = shown()
    perplexity: float | None = shown(optional=True, default=None)
    """Of the validation text, with unknown words as one word of the vocabulary."""
    bits_per_token: float | None = shown(optional=True, default=None)
    bits_per_byte: float | None = shown(optional=True, default=None)
    """With unknown words spelt out, 8 bits a byte."""
    unknown: int | None = shown(optional=True, default=None)
    """Tokens of the validation text that stand for unknown words."""
    perplexity_known: float | None = shown(optional=True, default=None)
    """Without those; comparable, as with them, between models of one vocabulary."""

    @property
    def order(self) -> int:
        """Words that a probability looks at, the predicted one counted."""
        return len(self.ngrams)

    def title(self) -> str:
        """What was counted."""
        if self.order == 1:
            return f"a bag of words, in {self.out}"
        return f"n-grams up to {self.order} {'words' if self.classes is None else 'classes'}"


class VectorRun(Result):
    """Vectors of words, in {out}."""

    out: str
    words: int
    dim: int
    tokens: int
    epochs: int
    seconds: float
    tokens_per_second: float = shown("{:,.0f}")


class TranslatorRun(Result):
    """A translator that counts words, in {out}."""

    out: str
    pairs: int
    skipped: int
    """Pairs without words on a side."""
    source_words: int
    target_words: int
    classes: int | None = shown(optional=True)
    """Target words, counted again for each time that they stand in a sentence."""
    seen_once: int | None = shown(optional=True)
    weights: int = shown()
    seconds: float = shown()


# The ladder ---------------------------------------------------------------------------------------


class RungScore(Row):
    """One rung of the ladder, trained and measured."""

    name: str = shown(table=False)
    title: str = shown(title="rung")
    parameters: int = shown()
    seconds: float = shown("{:,.1f}")
    tokens_per_s: float = shown("{:,.0f}", title="tokens/s")
    joules: float = shown("{:,.3g}")
    bleu: float | None = shown("{:,.2f}", title="BLEU", optional=True, default=None)
    """Of translators."""
    perplexity: float | None = shown("{:,.1f}", optional=True, default=None)
    """Of language models."""
    bits: float | None = shown("{:.3f}", title="bits/token", default=None)
    """A token, of the test text, or of the validation pairs."""
    steps: int | None = shown(optional=True, default=None)
    """Of translators that are trained step by step."""
    by_length: list[dict[str, Any]] | None = shown(table=False, optional=True, default=None)
    """BLEU by words of the source."""
    french: list[float | None] | None = shown(table=False, optional=True, default=None)
    """p(French) by words between; None where a model has no room for so many."""
    beaten_by: list[str] = shown(table=False, default_factory=list)
    """Lower rungs that are as good or better."""


class Ladder(Result):
    """{file}: every rung from counting words to the Transformer."""

    file: str
    kind: str
    """translation or text."""
    lines: dict[str, int]
    taken_out: int
    """Lines of the training part that stood in the others too."""
    minutes: float | None
    steps: int | None
    seed: int
    seconds: float
    out: str | None
    rungs: list[RungScore]
    energy: dict[str, Any]
    """source: where the figures come from; measured: whether a counter was read."""
    french: dict[str, Any] | None = shown(optional=True)
    """distances of the curve, and words of it that are lacking in the vocabulary."""

    def title(self) -> str:
        """What was learnt from, and how long it took."""
        budget = f"{self.steps} steps each" if self.steps else f"{self.minutes:g} minutes for all"
        lines = ", ".join(f"{count:,} {name}" for name, count in self.lines.items())
        return f"{self.file}: {lines} lines; {budget}, took {human_time(self.seconds)}"

    def parts(self) -> Iterator[str | Grid]:
        """Quality and cost of each rung, then how it changes with length or distance."""
        yield grid_of(self.title(), self.rungs)
        titles = {row.name: row.title for row in self.rungs}
        for row in self.rungs:
            if row.beaten_by:
                lower = ", ".join(titles[name] for name in row.beaten_by)
                yield f"{row.title} is OUT OF ORDER: not better than {lower}"
        yield f"energy of training: {self.energy['source']}"
        titled = [row.title for row in self.rungs]
        if self.kind == "translation":
            yield "bits: of the validation pairs; rungs that count words know no other words"
            columns, title = ("words", "lines", *titled), "BLEU by words of the source"
            bands = zip(*(row.by_length or () for row in self.rungs), strict=True)
            rows = [
                (f"{b[0]['from']} to {b[0]['to']}", b[0]["lines"], *(each["bleu"] for each in b))
                for b in bands
            ]
        elif self.french and self.french["lacking"]:
            lacking = ", ".join(self.french["lacking"])
            yield f"no curve of p(French): not in the vocabulary: {lacking} (--tokens bpe has all)"
            return
        else:
            columns = ("words", *titled)
            title = "p(French) after “I grew up in France … I speak fluent”, by words between"
            distances = (self.french or {}).get("distances", ())
            rows = list(zip(distances, *(row.french or () for row in self.rungs), strict=True))
        form = "{:.1f}" if self.kind == "translation" else "{:.2g}"
        yield grid_of_values(title, columns, rows, form)
