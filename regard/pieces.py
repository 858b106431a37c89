"""Pieces of texts, what becomes of them, and the jobs that a translator or several do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from regard.data.sentences import Span
from regard.errors import UsageError
from regard.translating import Row, Searcher, TranslateConfig, Translation, given, translate

FEW = 4  # rows that are no quicker in two batches
STRAY = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]")  # what no reader can use: bytes of no letter
STOP = re.compile(r"(?<!\.)(?<!\.[^\W\d])\.$")  # of a sentence, not of an abbreviation or a pause


class Piece(NamedTuple):
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

    def restore(self, text: str, whole: bool = True) -> str:
        """A translation in capitals, and without a stop at its end, where the source is so."""
        made = STOP.sub("", text) if self.stopped and whole else text
        return made.upper() if self.raised else made


class Part(NamedTuple):
    """A piece with what became of it."""

    piece: Piece
    translations: list[Translation]


def in_case(piece: Piece, answer: Translation) -> Translation:
    """A translation on one line, without broken bytes, in capitals and open as the source was."""
    text = " ".join(answer.text.split())
    if STRAY.search(text) and not STRAY.search(piece.text):
        text = " ".join(STRAY.sub("", text).split())
    return answer._replace(text=piece.restore(text))


class Job(NamedTuple):
    """A batch of sources that is translated together."""

    rows: list[Row]
    how: TranslateConfig
    optional: bool = False
    """There may be no answer: it is asked for what perhaps cannot be had."""
    text: str = ""
    """A translation that is there already: what is asked for is its log-probability."""

    def split(self, ways: int) -> list[Job]:
        """The same in jobs of like size, of a few rows at least."""
        size = max(FEW, -(-len(self.rows) // ways))
        cut = range(0, len(self.rows), size)
        return [self._replace(rows=self.rows[n : n + size]) for n in cut]

    def do(self, kit: Searcher, strict: bool | None = None) -> list[list[Translation]]:
        """What becomes of each source."""
        if self.text:
            return [[given(kit, row, self.text, strict)] for row in self.rows]
        try:
            return translate(kit, self.rows, self.how, strict)
        except UsageError:
            if not self.optional:
                raise
            return [[] for _ in self.rows]


Run = Callable[[list[Job]], Iterator[list[list[Translation]]]]
"""Who does jobs: what becomes of each, in order, and of those that are added meanwhile."""
