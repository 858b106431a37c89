"""Markup inside a sentence: **bold**, *italics*, [links](…), <b>tags</b> and « quotes ».

The model reads a sentence without its marks; they are put around the words that came from those
between them. Quotes are read, and put back where a translation lost them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.data.word_frequencies import word_spans
from regard.decode.step import without_end
from regard.errors import UsageError
from regard.translation.document import Mark, Part, TargetText
from regard.translation.explanation import align_config, align_words, look_across
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


def take_marks(text: str) -> tuple[str, tuple[Mark, ...]]:
    """A text without its marks, and these: those outside before those inside."""
    marks, at = list[Mark](), 0
    while match := PAIR.search(text, at):
        at = match.start()
        both = [("open", "tagged", "close"), ("mark", "marked", "mark"), ("", "linked", "target")]
        first, inside, last = next(names for names in both if match[names[1]] is not None)
        opened, closed = (match[first], match[last]) if first else ("[", f"]{match[last]}")
        text = text[:at] + match[inside] + text[match.end() :]
        less = len(opened) + len(closed)
        marks = [m if m.end <= at else m._replace(end=m.end - less) for m in marks]
        marks.append(Mark(at, at + len(match[inside]), opened, closed))
    for match in reversed([*EDGE.finditer(text)]):
        less = len(match[0])
        text = text[less:] if match.start() == 0 else text[:-less]
        if match.start() == 0:
            marks = [m._replace(start=m.start - less, end=m.end - less) for m in marks]
        edges = (match[0], "") if match.start() == 0 else ("", match[0])
        marks.insert(0, Mark(0, len(text), *edges))
    return text, tuple(marks)


def put_marks(kit: Kit, part: Part) -> Part:
    """A part whose translations have the marks of its source, and quotes if they lost all."""
    segment, quotes = part.segment, list[Mark]()
    for match in QUOTE.finditer(segment.text):
        inside = match.lastgroup or "a"
        quotes.append(Mark(*match.span(inside), '"', '"'))
    if not segment.ids or not (segment.marks or quotes):
        return part
    answers = []
    for answer in part.translations:
        lost = [] if QUOTED.search(answer.text) else quotes
        marks = sorted([*segment.marks, *lost], key=lambda mark: (mark.start, -mark.end))
        if marks:
            places = word_spans(answer.text)
            windows = find_windows(marks, word_spans(segment.text), links_of(kit, part, answer))
            answer = answer._replace(text=wrap(answer.text, places, marks, windows))
        answers.append(answer)
    return Part(segment, answers)


def links_of(kit: Kit, part: Part, answer: TargetText) -> list[tuple[int, int]]:
    """Links (source word, target word) of a segment and a translation; none if not known."""
    tokens = without_end(answer.tokens, kit.stops)
    try:
        across = look_across(kit, part.segment.ids, tokens)
    except UsageError:  # it sees one vector of its source
        return []
    return align_words(kit, part.segment.text, tokens, across, align_config(kit.config))[1]


def find_windows(
    marks: Sequence[Mark], sources: Sequence[tuple[int, int]], links: Sequence[tuple[int, int]]
) -> list[tuple[int, int] | None]:
    """For each mark the first and the last target word between it; None is all of them.

    Words that came from those marked count for it, others between them against it. No window
    crosses another, so that what opens last closes first.
    """
    windows = list[tuple[int, int] | None]()
    last = max((t for _, t in links), default=0)
    for n, mark in enumerate(marks):
        inside = {s for s, (a, b) in enumerate(sources) if a < mark.end and b > mark.start}
        if len(inside) == len(sources):
            windows.append(None)
            continue
        own = {t for s, t in links if s in inside}
        low, high = 0, last
        for other, window in zip(marks[:n], windows, strict=True):
            if window and other.start <= mark.start and mark.end <= other.end:
                low, high = window
        taken = [w for m, w in zip(marks[:n], windows, strict=True) if w and m.end <= mark.start]
        free = [t for t in range(low, high + 1) if not any(a <= t <= b for a, b in taken)]
        gains = {
            (a, b): sum(1 if t in own else -1 for t in range(a, b + 1))
            for a in own.intersection(free)
            for b in own.intersection(free)
            if a <= b and not set(range(a, b + 1)) - {*free}
        }
        beside = [window for window in taken if own.intersection(range(window[0], window[1] + 1))]
        around = (low, high) if (low, high) != (0, last) else None
        best = max(sorted(gains), key=lambda window: gains[window], default=None)
        windows.append(best or next(iter(beside), around))
    return windows


def wrap(
    text: str,
    places: Sequence[tuple[int, int]],
    marks: Sequence[Mark],
    windows: Sequence[tuple[int, int] | None],
) -> str:
    """A text with marks around windows of its words."""
    before, after = dict[int, str](), dict[int, str]()
    for mark, window in zip(marks, windows, strict=True):
        start, end = 0, len(text)
        if window and window[1] < len(places):
            start, end = places[window[0]][0], places[window[1]][1]
        before[start] = before.get(start, "") + mark.opened
        after[end] = mark.closed + after.get(end, "")
    edges = sorted({0, len(text), *before, *after})
    pieces = [
        after.get(a, "") + before.get(a, "") + text[a:b]
        for a, b in zip(edges, [*edges[1:], len(text)], strict=True)
    ]
    return "".join(pieces)
