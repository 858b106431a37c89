"""What `regard.translate` returns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.result import Grid, Result, Row, shown

UNSURE = 0.5  # probability of a word below which a reader should look twice


@dataclass(frozen=True)
class Alternative(Row):
    """One of several translations; probabilities are shares of their list."""

    text: str
    logprob: float
    probability: float


@dataclass(frozen=True)
class OtherWord(Row):
    """Another word for a place, and the translation that goes on from it."""

    text: str
    probability: float
    translation: str


@dataclass(frozen=True)
class WordChoice(Row):
    """A word of a translation, how likely it was, and what else could stand there."""

    text: str
    probability: float
    alternatives: list[OtherWord]


@dataclass(frozen=True)
class SourceWord(Row):
    """A word of the source."""

    text: str
    pieces: list[str]
    seen: int | None
    """How often in training; None where the folder does not say."""
    rare: bool

    def rarity(self) -> str:
        """How often it was seen, in words."""
        special = {0: "never seen", 1: "seen once", 2: "seen twice"}
        if self.seen is None:
            return ""
        return f"{special.get(self.seen, f'seen {self.seen:,} times')} in training"


@dataclass(frozen=True)
class TargetWord(Row):
    """A word of the translation."""

    text: str
    probability: float
    """Product of the probabilities of its tokens, given the words before it."""


@dataclass(frozen=True)
class Example(Row):
    """A pair of sentences that shows what a word became."""

    word: str
    """As it stands there: the word that was looked up, or an inflection of it."""
    phrase: str
    """What it became; "" where that is not clear."""
    source: str
    target: str
    origin: str
    """Corpus or file, and line."""


@dataclass(frozen=True)
class Explanation(Row):
    """One sentence and the reasons for its translation."""

    source: str
    """As the model read it."""
    text: str
    source_words: list[SourceWord]
    words: list[TargetWord]
    links: list[tuple[int, int]]
    """(source word, target word)."""
    weights: list[list[float]]
    """Of each target word (row) on each source word; a row sums to 1."""
    alternatives: list[Alternative] = shown(json=False, default_factory=list)
    """The best, then the others that were asked for."""
    copied: bool = shown(json=False, default=False)
    """Nothing was translated: no letters, an address, code, a script the model does not know."""
    remembered: str = ""
    """Where the whole sentence stands in the user's memory, if it does."""
    examples: list[Example] = field(default_factory=list)
    """What rare words became in pairs of training and of the user's memory."""

    @property
    def notes(self) -> list[str]:
        """What a reader should know, a sentence each."""
        if self.remembered:
            return [f"This translation stands in {self.remembered}."]
        if self.copied:
            return ["Copied as it is: nothing here that this model translates."]
        return [self.note(n) for n, word in enumerate(self.source_words) if word.rare]

    def note(self, number: int) -> str:
        """What the translation of a rare word comes from: an example, or a guess."""
        word = self.source_words[number]
        became = [self.words[t] for s, t in self.links if s == number]
        rarity = f" ({word.rarity()})" if word.rarity() else ""
        cut = f"“{word.text}”{rarity} is read as {' · '.join(word.pieces)}."
        if not became:
            return f"{cut} No word of the translation comes from it."
        texts, least = " ".join(w.text for w in became), min(w.probability for w in became)
        alike = [e.origin for e in self.examples if e.phrase and e.phrase in texts]
        reason = f"as in {alike[0]}" if alike else "a guess"
        return f"{cut} “{texts}” ({least:.0%}) is {reason}."

    def to_dict(self) -> dict[str, Any]:
        """The fields, weights rounded, and the notes."""
        weights = [[round(weight, 4) for weight in row] for row in self.weights]
        return super().to_dict() | {"weights": weights, "notes": self.notes}

    def parts(self) -> Iterator[str | Grid]:
        """The sentence, its translations, and a table of the words of either side."""
        yield self.source
        several = len(self.alternatives) > 1
        for other in self.alternatives:
            yield f"→ {other.text}" + (f"  ({other.probability:.0%})" if several else "")
        if not self.copied:
            read = [
                (
                    word.text,
                    " · ".join(word.pieces) if len(word.pieces) > 1 else "",
                    " ".join(self.words[t].text for s, t in self.links if s == n),
                    "" if word.seen is None else f"{word.seen:,}" + (" rare" if word.rare else ""),
                )
                for n, word in enumerate(self.source_words)
            ]
            yield Grid("", ("read", "pieces", "became", "seen"), read, left=3)
            written = [
                (
                    word.text,
                    " ".join(self.source_words[s].text for s, t in self.links if t == n),
                    f"{word.probability:.0%}",
                )
                for n, word in enumerate(self.words)
            ]
            yield Grid("", ("written", "from", "sure"), written, left=2)
        yield from self.notes
        for example in self.examples:
            became = f" became “{example.phrase}”" if example.phrase else ""
            yield f"“{example.word}”{became} in {example.origin}:"
            yield f"  {example.source}\n  → {example.target}"


@dataclass(frozen=True)
class Translation(Result):
    """A text and its translation."""

    source: str
    text: str
    logprob: float
    alternatives: list[Alternative] = field(default_factory=list)
    """The best and the others, where several were asked for."""
    words: list[WordChoice] = field(default_factory=list)
    """Of the best translation, where several were asked for."""
    explain: list[Explanation] | None = None
    """The reasons for each sentence, where they were asked for."""
    streamed: bool = shown(json=False, default=False)
    """Whether it is one of many lines, for programs rather than for people."""

    def to_dict(self) -> dict[str, Any]:
        """Source, text and log-probability, and what else was asked for."""
        fields = super().to_dict()
        unasked = {"alternatives": not self.alternatives, "words": not self.words}
        unasked["explain"] = self.explain is None
        return {name: value for name, value in fields.items() if not unasked.get(name)}

    def parts(self) -> Iterator[str | Grid]:
        """The translation; several of a line with TABs, for people with their shares."""
        if self.explain is not None:
            for sentence in self.explain:
                yield from sentence.parts()
        elif self.alternatives and not self.streamed:
            yield "\n".join(f"{a.probability:4.0%}  {a.text}" for a in self.alternatives)
        else:
            yield "\t".join(a.text for a in self.alternatives) or self.text

    def plot(self) -> Any:
        """The alignment of each sentence as a matplotlib figure."""
        from regard.look.picture import draw_alignments

        if self.explain is None:
            return super().plot()
        return draw_alignments(
            [
                (
                    [w.text for w in one.source_words],
                    [w.text for w in one.words],
                    one.weights,
                    one.links,
                )
                for one in self.explain
            ]
        )


def share_out(logprobs: Sequence[float]) -> list[float]:
    """The probability of each among these."""
    best = max(logprobs)
    weights = [math.exp(logprob - best) for logprob in logprobs]
    return [weight / sum(weights) for weight in weights]
