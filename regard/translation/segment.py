"""Segmentation: texts of any length and kind as sentences that a model can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from regard.data.sentences import Span, cut_long, sentence_spans, trim
from regard.model.config import TextConfig
from regard.tokens.tokenizer import Tokenizer
from regard.translation.document import InlineMark, Part, Segment
from regard.translation.markup import take_marks
from regard.translation.normalise import (
    BETWEEN,
    KEPT,
    cut_around,
    foreign_clauses,
    in_capitals,
    is_copied,
    is_foreign,
    is_left,
    recased,
    set_off,
    tidy,
)

if TYPE_CHECKING:
    from regard.kit import Kit

MAX_SOURCE_TOKENS = 256  # read at once, whatever the model has room for


class Reading(NamedTuple):
    """How a stretch of text is read."""

    text: str
    raised: bool
    stopped: bool
    marks: tuple[InlineMark, ...]
    ids: list[int]


class Segmenter:
    """Cuts texts for one model."""

    def __init__(self, kit: Kit) -> None:
        self.tokenizer: Tokenizer = kit.text_tokenizer
        source, _ = kit.config.get("languages") or ("", "")
        self.language = str(source)
        """The code of the source's language, "" where config.json has none."""
        front = kit.model.config.front
        length = front.length if isinstance(front, TextConfig) else None
        rooms = [n for n in (length, kit.room, MAX_SOURCE_TOKENS) if n is not None]
        self.most = max(1, min(rooms))
        """Source tokens that are read at once."""

    def cut(self, texts: Sequence[str], whole: bool = False) -> list[list[Segment]]:
        """The segments of each text; `whole` texts are one segment each."""
        spans = [
            [(span, True) for span in trim(t, 0, len(t))]
            if whole
            else [
                (part, True)
                for span in sentence_spans(t)
                for part in cut_around(t, span, [m.span() for m in BETWEEN.finditer(t, *span)])
            ]
            for t in texts
        ]
        both = list(zip(texts, spans, strict=True))
        raw = [(t[slice(*span)], alone) for t, each in both for span, alone in each]
        rows = iter(self.read(raw))
        documents: list[list[Segment]] = []
        for text, each in both:
            documents.append([])
            for span, _ in each:
                reading = next(rows)
                segments = self.fit(text, span, reading, whole)
                copied = not whole and is_left(reading.text, self.language)
                documents[-1] += [s._replace(ids=[]) if copied else s for s in segments]
        return documents

    def cut_around_lost(self, text: str, parts: Sequence[Part]) -> list[Segment]:
        """Segments anew, cut around addresses, code and such that a translation lost; else none."""
        segments, lost = list[Segment](), False
        for segment, (best, *_) in parts:
            marks = " ".join(edge for mark in segment.marks for edge in mark[2:])
            kept = [m.span() for m in KEPT.finditer(text, *segment.span) if m[0] not in marks]
            foreign = foreign_clauses(text, segment.span, self.language) if segment.ids else []
            kept += [(a, b) for a, b in foreign if not any(a < d and c < b for c, d in kept)]
            written = f" {best.text}".lower()
            if not segment.ids or all(
                set_off(text, *span).strip(' «»“”"').lower() in written
                if span in foreign
                else set_off(text, *span).lower() in written
                for span in kept
            ):
                segments.append(segment)
                continue
            lost = True
            spans = cut_around(text, segment.span, sorted(kept))
            alone = sum(span not in kept for span in spans) == 1
            readings = self.read([(text[a:b], alone) for a, b in spans])
            for span, reading in zip(spans, readings, strict=True):
                new = self.segment(span, reading)
                segments.append(new._replace(ids=[]) if span in kept else new)
        return segments if lost else []

    def read(self, raw: Sequence[tuple[str, bool]]) -> list[Reading]:
        """Stretches of text as the model reads them: a sentence, True, with a stop at its end.

        Nearly all sentences that it was trained on have one: without it, Bonjour is "Hello Day".
        Where the language is not known, nothing is added.
        """
        bare = [take_marks(tidy(text)) for text, _ in raw]
        tidied, marks = [text for text, _ in bare], [marks for _, marks in bare]
        small = [recased(self.tokenizer, text) if in_capitals(text) else text for text in tidied]
        raised = [a != b for a, b in zip(tidied, small, strict=True)]
        stopped = [
            end and bool(self.language) and text[-1:].isalnum()
            for text, (_, end) in zip(small, raw, strict=True)
        ]
        ended = [f"{text}." if stop else text for text, stop in zip(small, stopped, strict=True)]
        rows = self.tokenizer.encode_batch(ended) if ended else []
        return [Reading(*parts) for parts in zip(ended, raised, stopped, marks, rows, strict=True)]

    def fit(self, text: str, span: Span, reading: Reading, whole: bool) -> Iterator[Segment]:
        """A sentence as one segment, or as several that can be read at once."""
        if whole or len(reading.ids) <= self.most:
            yield self.segment(span, reading)
            return

        def fits(part: str) -> bool:
            return len(self.read([(part, False)])[0].ids) <= self.most

        parts = list(cut_long(text, span, fits))
        again = self.read([(text[a:b], False) for a, b in parts])
        yield from map(self.segment, parts, again)

    def segment(self, span: Span, reading: Reading) -> Segment:
        """A segment, with its tokens where there is something to translate."""
        copied = is_copied(reading.text) or is_foreign(reading.text, reading.ids, self.tokenizer)
        ids = [] if copied else reading.ids
        marks = () if copied else reading.marks
        return Segment(span, reading.text, ids, reading.raised, reading.stopped, marks)
