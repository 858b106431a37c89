"""Documents: the segments of a text, what became of each, and the whole text joined again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.sentences import Span
from regard.tokens.tokenizer import Tokenizer
from regard.translation.dictionary import Entry, write_hints
from regard.translation.results import Explanation, TargetWord

QUOTE = re.compile(r'(?<!\S)" (?=\w)')  # one that opens, with the blank of the hint after it
STRAY = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]")  # what no reader can use: bytes of no letter
STOP = re.compile(r"(?<!\.)(?<!\.[^\W\d])\.$")  # of a sentence, not of an abbreviation or a pause


class TargetText(NamedTuple):
    """One translation of a text or a segment."""

    text: str
    logprob: float
    tokens: list[int]
    logprobs: list[float] = []
    """Of each token."""
    attention: NDArray[np.float32] | None = None
    """Of each token but the end on each source token, where it was looked at."""


class InlineMark(NamedTuple):
    """Markup around a stretch of a sentence, such as ** and **."""

    start: int
    end: int
    opened: str
    closed: str


class Segment(NamedTuple):
    """A sentence, or a part of a long one."""

    span: Span
    """Where it stands in its text."""
    text: str
    """As the model reads it."""
    ids: list[int]
    """Its tokens; none where it is copied."""
    raised: bool
    """Whether it stood in capitals and so its translation does."""
    stopped: bool = False
    """Whether the model reads a full stop that is not there, and the translation goes without."""
    marks: tuple[InlineMark, ...] = ()
    """What stands around words of its text, and is not read."""
    entries: tuple[Entry, ...] = ()
    """What a dictionary says of its words; the tokens have hints of it."""

    def offsets(self, tokenizer: Tokenizer) -> list[Span]:
        """Where its tokens stand in its text; those of a hint where the word ends it is for."""
        hinted, places = write_hints(self.text, self.entries)
        both = [(places[start], places[end]) for start, end in tokenizer.offsets(hinted)]
        return [(start, end) if start < end else (start - 1, end) for start, end in both]

    def restore(self, text: str, whole: bool = True) -> str:
        """A translation in capitals, and without a stop at its end, where the source is so."""
        text = STOP.sub("", text) if self.stopped and whole else text
        return text.upper() if self.raised else text

    def dress(self, answer: TargetText) -> TargetText:
        """A translation on one line, without broken bytes, in capitals and open as the source."""
        text = QUOTE.sub('"', " ".join(answer.text.split()))
        if STRAY.search(text) and not STRAY.search(self.text):
            text = " ".join(STRAY.sub("", text).split())
        return answer._replace(text=self.restore(text))


class Part(NamedTuple):
    """A segment with its translations, best first."""

    segment: Segment
    translations: list[TargetText]


class Document(NamedTuple):
    """What became of one text."""

    text: str
    parts: list[Part]
    translations: list[TargetText]
    """Of the whole text: the best of each segment, then the likeliest mixtures."""
    words: list[TargetWord] | None = None
    """Of the first translation, where they are asked for."""
    reasons: list[Explanation] | None = None
    """Of each part."""


def distinct(answers: Iterable[TargetText]) -> list[TargetText]:
    """Translations in their order, of those with one text the first."""
    texts: dict[str, TargetText] = {}
    for answer in answers:
        texts.setdefault(answer.text, answer)
    return [*texts.values()]


def gap_before(text: str, parts: Sequence[Part], n: int) -> str:
    """What stands between a segment and the one before it."""
    return text[parts[n - 1].segment.span[1] : parts[n].segment.span[0]] if n else ""


def join(text: str, parts: Sequence[Part], count: int) -> list[TargetText]:
    """Translations of a whole text: the best of each segment, then the likeliest mixtures."""
    if len(parts) == 1:
        return parts[0].translations[:count]
    whole = [TargetText("", 0.0, [])]
    for n, part in enumerate(parts):
        between = gap_before(text, parts, n)
        first, *rest = distinct(
            TargetText(a.text + between + b.text, a.logprob + b.logprob, [*a.tokens, *b.tokens])
            for a in whole
            for b in part.translations
        )
        whole = [first, *sorted(rest, key=lambda t: -t.logprob)[: count - 1]]
    return whole
