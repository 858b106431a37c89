"""Sentences of a French or English text, and shorter pieces of one that is too long."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Span = tuple[int, int]
"""Where a piece stands: text[start:end], no blanks around it."""

# A mark that may end a sentence, what closes after it, blanks, and what the next one begins with.
# Nothing here is tried twice: a line of ten thousand dots or blanks takes no longer than words.
END = re.compile(
    r"(?<![.!?…])[.!?…]++(?:\s?»|[”\"’')\]])*+(?P<gap>\s++)"
    r"(?=[«“\"‘'(\[\s—–-]*+(?P<next>[^\W_]+))|(?P<line>\n\s*+)"
)
# Quotes and brackets that are not cut, unless they are long.
WHOLE = re.compile(
    r"«[^«»]{0,150}»|“[^“”]{0,150}”|(?<![^\s(])\"[^\"]{0,150}\"(?!\w)|\([^()]{0,150}\)"
)
CUTS = (r"(?<=[.!?…»”\")])(\s++)", r"[;:](\s++)", r",(\s++)|(?<!\s)(\s++)[—–-]\s", r"(\s++)")
LEVELS = tuple(re.compile(cut) for cut in CUTS)  # where a long sentence may be cut, best first


def dotted(text: str) -> frozenset[str]:
    """Abbreviations without their last full stop."""
    return frozenset(text.split())


TITLES = dotted(
    "m mm mr mrs ms mme mlle dr drs pr prof st ste me mgr gen gén gov hon lt sgt cap capt col cmdr "
    "rev sen rep cf vs i.e e.g c.-à-d p.ex ex av apr env bd boul éd ed dir coll resp approx dept "
    "mt ft messrs viz"
)
"""A name or an explanation follows: never the end of a sentence."""
NUMBERED = dotted("art n no nos num p pp fig vol ch chap sect par al éq eq tél tel rte ca jan janv")
NUMBERED |= dotted("feb fév févr mar apr avr jun jul juil aug sep sept oct nov dec déc")
"""Not the end of a sentence where a number follows."""
STARTERS = frozenset(
    "il elle ils elles on nous vous je tu ce cette ces le la les un une des mais et puis alors "
    "he she it they we you i this that these those the a an but and then so".split()
)
"""Words that begin a sentence rather than a name: after a single letter, the end of one."""


def sentence_spans(text: str) -> list[Span]:
    """Each sentence in order; only blanks stand before, between and after them."""
    kept = [match.span() for match in WHOLE.finditer(text)]
    spans, start, inside = list[Span](), 0, 0
    for match in END.finditer(text):
        at = match.start("gap") if match["line"] is None else match.start()
        while inside < len(kept) and kept[inside][1] <= at:
            inside += 1
        within = inside < len(kept) and kept[inside][0] < at
        if match["line"] is not None or (not within and is_end(text, start, match)):
            spans += trim(text, start, at)
            start = at
    return [*spans, *trim(text, start, len(text))]


def trim(text: str, start: int, end: int) -> list[Span]:
    """The span without the blanks around it; none when there is nothing else."""
    piece = text[start:end]
    first = start + len(piece) - len(piece.lstrip())
    return [(first, first + len(piece.strip()))] if piece.strip() else []


def is_end(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends at this mark."""
    after = match["next"]
    if after[0].islower():
        return False
    if text[match.start()] != "." or text[match.start() : match.start() + 2] == "..":
        return True
    before = text[start : match.start()].split()
    word = before[-1].lstrip("«“\"‘'([").lower() if before else ""
    if len(before) == 1 and (word.isdigit() or len(word) == 1):  # "1. First", "a. First"
        return False
    word = re.split(r"(?<=\w\w)['’]|(?<=\b\w)['’]", word)[-1]  # d'art. 5
    if word in TITLES:
        return False
    if word in NUMBERED and after[0].isdigit():
        return False
    if re.fullmatch(r"[^\W\d_](?:\.-?[^\W\d_])*", word):  # J. Dupont, J.-P. Dupont, U.S. Army
        return after.lower() in STARTERS
    return True


def cut_long(text: str, span: Span, fits: Callable[[str], bool]) -> Iterator[Span]:
    """A piece in parts that fit: halves at sentence ends, clause marks, blanks, or anywhere."""
    start, end = span
    if end - start < 2 or fits(text[start:end]):
        yield span
        return
    at = middle_cut(text[start:end])
    for part in (*trim(text, start, start + at), *trim(text, start + at, end)):
        yield from cut_long(text, part, fits)


def middle_cut(text: str) -> int:
    """The best place to cut near the middle: of the strongest marks, the nearest."""
    half, quarter = len(text) // 2, len(text) // 4
    for level in LEVELS:
        places = [m.start(m.lastindex or 0) for m in level.finditer(text, quarter, len(text))]
        near = [at for at in places if quarter < at < len(text) - quarter]
        if near:
            return min(near, key=lambda at: abs(at - half))
    return half
