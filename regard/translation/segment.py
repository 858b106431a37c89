"""Segmentation: texts of any length and kind as sentences that a model can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.data.sentences import Span, cut_long, sentence_spans, trim
from regard.model.config import TextConfig
from regard.tokens.tokenizer import Tokenizer
from regard.translation.document import Part, Segment
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

    def cut(self, text: str, whole: bool = False) -> list[Segment]:
        """The segments of a text; a `whole` one is one segment."""
        if whole:
            return [self.keep(self.read(text, span, True)) for span in trim(text, 0, len(text))]
        segments = list[Segment]()
        for span in sentence_spans(text):
            between = [match.span() for match in BETWEEN.finditer(text, *span)]
            for part in cut_around(text, span, between):
                sentence = self.read(text, part, True)
                left = is_left(sentence.text, self.language)
                kept = map(self.keep, self.fit(text, sentence))
                segments += [one._replace(ids=[]) if left else one for one in kept]
        return segments

    def cut_around_lost(self, text: str, parts: Sequence[Part]) -> list[Segment]:
        """Segments anew, cut around addresses, code and such that a translation lost; else none."""
        segments, lost = list[Segment](), False
        for segment, (best, *_) in parts:
            marks = " ".join(edge for mark in segment.marks for edge in mark[2:])
            kept = [m.span() for m in KEPT.finditer(text, *segment.span) if m[0] not in marks]
            foreign = foreign_clauses(text, segment.span, self.language) if segment.ids else []
            kept += [(a, b) for a, b in foreign if not any(a < d and c < b for c, d in kept)]
            written = f" {best.text}".lower()
            quotes = dict.fromkeys(foreign, ' «»“”"')  # which a translation may write otherwise
            said = [set_off(text, *span).strip(quotes.get(span, "")).lower() for span in kept]
            if not segment.ids or all(one in written for one in said):
                segments.append(segment)
                continue
            lost = True
            spans = cut_around(text, segment.span, sorted(kept))
            alone = sum(span not in kept for span in spans) == 1
            anew = [self.keep(self.read(text, span, alone)) for span in spans]
            segments += [new._replace(ids=[]) if new.span in kept else new for new in anew]
        return segments if lost else []

    def read(self, text: str, span: Span, ended: bool) -> Segment:
        """A stretch of a text as the model reads it: a sentence, `ended`, with a stop at its end.

        Nearly all sentences that it was trained on have one: without it, Bonjour is "Hello Day".
        Where the language is not known, nothing is added.
        """
        bare, marks = take_marks(tidy(text[slice(*span)]))
        small = recased(self.tokenizer, bare) if in_capitals(bare) else bare
        stopped = ended and bool(self.language) and small[-1:].isalnum()
        written = f"{small}." if stopped else small
        return Segment(span, written, self.tokenizer.encode(written), small != bare, stopped, marks)

    def fit(self, text: str, sentence: Segment) -> list[Segment]:
        """A sentence as one segment, or as several that can be read at once."""
        if len(sentence.ids) <= self.most:
            return [sentence]

        def fits(part: str) -> bool:
            return len(self.read(part, (0, len(part)), False).ids) <= self.most

        return [self.read(text, span, False) for span in cut_long(text, sentence.span, fits)]

    def keep(self, segment: Segment) -> Segment:
        """A segment, without tokens and marks where there is nothing to translate."""
        copied = is_copied(segment.text) or is_foreign(segment.text, segment.ids, self.tokenizer)
        return segment._replace(ids=[], marks=()) if copied else segment
