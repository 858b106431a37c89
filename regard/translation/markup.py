"""Markup inside a sentence: **bold**, *italics*, [links](…), <b>tags</b> and « quotes ».

The model reads a sentence without its marks; they are put around the words that came from those
between them. Quotes are read, and put back where a translation lost them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from regard.data.word_frequencies import Span, word_spans
from regard.decode.step import without_end
from regard.errors import UsageError
from regard.translation.document import InlineMark, Part, TargetText
from regard.translation.explanation import align_tokens
from regard.translation.normalise import INLINE

if TYPE_CHECKING:
    from regard.kit import Kit

PAIR = re.compile(
    rf"(?P<open><(?P<name>{INLINE})(?:\s[^<>]*)?>)(?P<tagged>.*?)(?P<close></(?P=name)>)"
    r"|(?<![\w*])(?P<mark>\*{1,3}|_{1,3}|~~)(?![\s*])(?P<marked>.+?)(?<![\s*])(?P=mark)(?![\w*])"
    r"|\[(?P<linked>[^\[\]]+)\](?P<target>\([^()\s]+\))",
    re.IGNORECASE,
)
MARK = rf"(?:\*{{2,3}}|~~|</?{INLINE}(?:\s[^<>]*)?>)+"
EDGE = re.compile(rf"^{MARK}|{MARK}$", re.IGNORECASE)  # its other half is in another sentence
QUOTE = re.compile(r"«\s?(?P<a>[^«»]+?)\s?»|“(?P<b>[^“”]+)”|(?<!\S)\"(?P<c>[^\"]+)\"(?!\w)")
QUOTED = re.compile(r"[«»“”„‘\"]|''|(?<!\w)'|'(?!\w)")


def take_marks(text: str) -> tuple[str, tuple[InlineMark, ...]]:
    """A text without its marks, and these: those outside before those inside."""
    marks, at = list[InlineMark](), 0
    while match := PAIR.search(text, at):
        at = match.start()
        both = [("open", "tagged", "close"), ("mark", "marked", "mark"), ("", "linked", "target")]
        first, inside, last = next(names for names in both if match[names[1]] is not None)
        opened, closed = (match[first], match[last]) if first else ("[", f"]{match[last]}")
        text = text[:at] + match[inside] + text[match.end() :]
        less = len(opened) + len(closed)
        marks = [m if m.end <= at else m._replace(end=m.end - less) for m in marks]
        marks.append(InlineMark(at, at + len(match[inside]), opened, closed))
    for match in reversed([*EDGE.finditer(text)]):  # the one at the end first
        a, b = match.span()
        text = text[:a] + text[b:]
        shift = 0 if a else b
        marks = [m._replace(start=m.start - shift, end=m.end - shift) for m in marks]
        marks.insert(0, InlineMark(0, len(text), *(("", match[0]) if a else (match[0], ""))))
    return text, tuple(marks)


def put_marks(kit: Kit, part: Part) -> Part:
    """A part whose translations have the marks of its source, and quotes if they lost all."""
    segment, answers = part.segment, list[TargetText]()
    matches = QUOTE.finditer(segment.text) if segment.ids else ()
    quotes = [InlineMark(*match.span(match.lastgroup or 0), '"', '"') for match in matches]
    for answer in part.translations:
        lost = [] if QUOTED.search(answer.text) else quotes
        marks = sorted([*segment.marks, *lost], key=lambda mark: (mark.start, -mark.end))
        if marks and answer.text:
            links = list[tuple[int, int]]()
            with suppress(UsageError):  # what sees one vector of its source aligns nothing
                links = align_tokens(kit, segment, without_end(answer.tokens, kit.stops))[1]
            windows = find_windows(marks, word_spans(segment.text), links)
            outside = [segment.text[: mark.start] + segment.text[mark.end :] for mark in marks]
            placed = [
                (mark, window)
                for mark, window, rest in zip(marks, windows, outside, strict=True)
                if window or mark in segment.marks or not any(map(str.isalnum, rest))
            ]
            answer = answer._replace(text=wrap(answer.text, word_spans(answer.text), placed))
        answers.append(answer)
    return Part(segment, answers)


def find_windows(
    marks: Sequence[InlineMark], sources: Sequence[Span], links: Sequence[tuple[int, int]]
) -> list[Span | None]:
    """For each mark the first and the last target word between it; None is all of them.

    Words that came from those marked count for it, others between them against it. No window
    crosses another, so that what opens last closes first.
    """
    windows = list[Span | None]()
    for mark in marks:
        inside = {s for s, (a, b) in enumerate(sources) if a < mark.end and b > mark.start}
        own = {t for s, t in links if s in inside}
        gains = {
            (a, b): sum(1 if t in own else -1 for t in range(a, b + 1))
            for a in own
            for b in own
            if a <= b
            and not any(w and (a < w[0] <= b < w[1] or w[0] < a <= w[1] < b) for w in windows)
        }
        best = max(sorted(gains), key=lambda window: gains[window], default=None)
        windows.append(None if len(inside) == len(sources) else best)
    return windows


def wrap(text: str, places: Sequence[Span], marks: Iterable[tuple[InlineMark, Span | None]]) -> str:
    """A text with marks around windows of its words."""
    before, after = defaultdict[int, str](str), defaultdict[int, str](str)
    spans = list[tuple[int, int, InlineMark]]()
    for mark, window in marks:
        known = window is not None and window[1] < len(places)
        a, b = (places[window[0]][0], places[window[1]][1]) if window and known else (0, len(text))
        spans.append((a, -b, mark))
    for a, b, mark in sorted(spans, key=lambda span: span[:2]):  # those outside first
        before[a] += mark.opened
        after[-b] = mark.closed + after[-b]
    return "".join(f"{after[n]}{before[n]}{letter}" for n, letter in enumerate([*text, ""]))
