"""What `regard.translate` returns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from regard.result import Grid, Result, Row, shown


class Alternative(Row):
    """One of several translations."""

    text: str
    logprob: float

    def to_dict(self) -> dict[str, Any]:
        """The fields, and the probability of the whole text."""
        return super().to_dict() | {"probability": math.exp(self.logprob)}

    @property
    def percent(self) -> str:
        """Its probability for a reader, two digits of a small one."""
        probability = math.exp(self.logprob)
        return f"{probability:.0%}" if probability >= 0.1 else f"{100 * probability:.2g}%"


class OtherWord(Row):
    """Another word for a place, and the translation that goes on from it."""

    text: str
    probability: float
    translation: str


class TargetWord(Row):
    """A word of a translation."""

    text: str
    confidence: float
    """How likely it is right, by what `doubt` in the model's config.json learnt; without it, the
    product of the probabilities of its tokens, given the words before it."""
    aligned: list[str]
    """The source words it came from."""
    alternatives: list[OtherWord] | None = shown(optional=True, default=None)
    """What else could stand there, where several translations were asked for."""

    def to_dict(self) -> dict[str, Any]:
        """The fields, the confidence rounded."""
        return super().to_dict() | {"confidence": round(self.confidence, 4)}


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


class DictionaryEntry(Row):
    """What the dictionary of a model's folder says of a word or an idiom."""

    words: str
    """As they stand in the sentence."""
    headword: str
    translations: list[str]


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
    entries: list[DictionaryEntry] = field(default_factory=list)
    """What the dictionary says of rare words and idioms."""

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
        texts, least = " ".join(w.text for w in became), min(w.confidence for w in became)
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
            yield f"→ {other.text}" + (f"  ({other.percent})" if several else "")
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
            yield Grid("", ("read", "pieces", "became", "seen"), read, left=range(3))
            written = [(w.text, " ".join(w.aligned), f"{w.confidence:.0%}") for w in self.words]
            yield Grid("", ("written", "from", "sure"), written, left=range(2))
        yield from self.notes
        for entry in self.entries:
            listed = " | ".join(entry.translations)
            yield f"“{entry.words}” in the dictionary: {entry.headword}, {listed}"
        for example in self.examples:
            became = f" became “{example.phrase}”" if example.phrase else ""
            yield f"“{example.word}”{became} in {example.origin}:"
            yield f"  {example.source}\n  → {example.target}"


class Translation(Result):
    """A text and its translation."""

    source: str
    text: str
    logprob: float
    confidence: float | None = shown(optional=True, default=None)
    """The mean of the words': the share of them that is expected to be right. 1 where there are
    none, None where it was not asked for."""
    alternatives: list[Alternative] = field(default_factory=list)
    """The search's choice and others of other words, where several were asked for. The search ranks
    by probability and length; the others follow by probability, none likelier than its choice."""
    words: list[TargetWord] = field(default_factory=list)
    """Of the translation, marks too."""
    explain: list[Explanation] | None = shown(optional=True, default=None)
    """The reasons for each sentence, where they were asked for."""
    streamed: bool = shown(json=False, default=False)
    """Whether it is one of many lines, for programs rather than for people."""
    threshold: float = shown(json=False, default=0.5)
    """Words that are less sure than this are doubtful."""

    @property
    def doubtful(self) -> list[TargetWord]:
        """Words, not marks, that a reader should look at twice."""
        unsure = [word for word in self.words if word.confidence < self.threshold]
        return [word for word in unsure if any(map(str.isalnum, word.text))]

    def to_dict(self) -> dict[str, Any]:
        """Source, text, log-probability, confidence and words, and what else was asked for."""
        fields = super().to_dict()
        if self.confidence is None:
            del fields["words"]
        else:
            fields["confidence"] = round(self.confidence, 4)
        return {name: value for name, value in fields.items() if name != "alternatives" or value}

    def parts(self) -> Iterator[str | Grid]:
        """The translation; several of a line with TABs, for people with their probabilities."""
        if self.explain is not None:
            for sentence in self.explain:
                yield from sentence.parts()
        elif self.alternatives and not self.streamed:
            yield "\n".join(f"{a.percent:>8}  {a.text}" for a in self.alternatives)
        else:
            yield "\t".join(a.text for a in self.alternatives) or self.text

    def __rich__(self) -> Any:
        """For a terminal: doubtful words are dim, and listed below."""
        from rich.console import Group
        from rich.text import Text

        doubtful = self.doubtful
        if self.explain is not None or not doubtful:
            return super().__rich__()
        text = Text("".join(map(str, self.parts())))
        end = text.plain.index(self.text)
        for word in self.words:
            start = text.plain.find(word.text, end)
            end = max(end, start + len(word.text))
            if word in doubtful and start >= 0:
                text.stylize("dim", start, end)
        listed = ", ".join(f"{word.text} ({word.confidence:.0%})" for word in doubtful)
        return Group(text, Text(f"doubtful: {listed}", "dim"))

    def plot(self) -> Any:
        """The alignment of each sentence as a matplotlib figure."""
        from regard.look.picture import draw_alignments

        if self.explain is None:
            return super().plot()
        sides = [(one.source_words, one.words) for one in self.explain]
        texts = [([w.text for w in heard], [w.text for w in said]) for heard, said in sides]
        read = zip(texts, self.explain, strict=True)
        return draw_alignments([(*both, one.weights, one.links) for both, one in read])


class TranslatedDocument(Result):
    """{file}, translated."""

    file: str
    out: str | None
    """The file that was written; without one, `text` is what would stand there."""
    passages: int
    """Paragraphs, headings, cells, cues, attributes."""
    copied: int
    """Of these, how many stayed as they were."""
    text: str | None = shown(optional=True, default=None)

    def parts(self) -> Iterator[str | Grid]:
        """What was written where, or the text itself."""
        if self.text is None:
            yield from super().parts()
        else:
            yield self.text.removesuffix("\n")
