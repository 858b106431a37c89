"""Passages: texts of any length and kind, translated by sentences and joined again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from regard.data.sentences import Span, cut_long, sentence_spans, trim
from regard.mending import Mend, with_figures, with_words
from regard.model.config import TextConfig
from regard.pieces import Job, Part, Piece, Run, in_case
from regard.schedule import Tell, do_all
from regard.source_text import (
    BETWEEN,
    KEPT,
    cut_around,
    in_capitals,
    is_copied,
    is_foreign,
    is_other_language,
    recased,
    set_off,
    tidy,
)
from regard.tokens.tokenizer import Tokenizer
from regard.translating import (
    Other,
    Searcher,
    TranslateConfig,
    Translation,
    Word,
)
from regard.wording import other_words

LONGEST = 256  # source tokens read at once, whatever the model has room for


class Answer(NamedTuple):
    """What became of one text."""

    translations: list[Translation]
    words: list[Word]
    """Of the first translation, where they were asked for."""
    parts: Sequence[Part] = ()
    """Its sentences."""


# Reading ----------------------------------------------------------------------------------------


def languages(kit: Searcher) -> tuple[str, str]:
    """The codes of the source's language and the translation's, "" where config.json has none."""
    source, target = kit.config.get("languages") or ("", "")
    return str(source), str(target)


def longest_source(kit: Searcher) -> int:
    """The most source tokens that are read at once."""
    front = kit.model.config.front
    length = front.length if isinstance(front, TextConfig) else None
    rooms = [n for n in (length, kit.room, LONGEST) if n is not None]
    return max(1, min(rooms))


def read_passages(kit: Searcher, texts: Sequence[str], how: TranslateConfig) -> list[list[Piece]]:
    """The pieces of each text. A wish for the whole of a translation keeps the text whole."""
    assert kit.tokenizer is not None
    whole = how.keeps_whole
    spans = [
        [(span, True) for span in trim(t, 0, len(t))]
        if whole
        else [part for span in sentence_spans(t) for part in stretches(t, span, BETWEEN)]
        for t in texts
    ]
    most, (language, _) = longest_source(kit), languages(kit)
    both = list(zip(texts, spans, strict=True))
    raw = [(t[slice(*span)], alone and bool(language)) for t, each in both for span, alone in each]
    rows = iter(encode(kit.tokenizer, raw))
    passages: list[list[Piece]] = []
    for text, each in both:
        passages.append([])
        for span, _ in each:
            read = next(rows)
            pieces = fit_piece(kit.tokenizer, text, span, read, None if whole else most)
            copied = not whole and is_other_language(read.text, language)
            passages[-1] += [p._replace(ids=[]) if copied else p for p in pieces]
    return passages


def stretches(text: str, span: Span, kept: re.Pattern[str]) -> list[tuple[Span, bool]]:
    """A sentence cut around what matches, and whether each stretch is all there is beside it."""
    parts = cut_around(text, span, kept)
    alone = sum(not kept.fullmatch(text, *part) for part in parts) == 1
    return [(part, alone) for part in parts]


class Reading(NamedTuple):
    """How a stretch of text is read."""

    text: str
    raised: bool
    stopped: bool
    ids: list[int]


def encode(tokenizer: Tokenizer, raw: Sequence[tuple[str, bool]]) -> list[Reading]:
    """Stretches of text as the model reads them: a sentence, True, with a stop at its end.

    Nearly all sentences that it was trained on have one: without it, Bonjour is "Hello Day".
    """
    tidied = [tidy(text) for text, _ in raw]
    small = [recased(tokenizer, text) if in_capitals(text) else text for text in tidied]
    raised = [a != b for a, b in zip(tidied, small, strict=True)]
    stopped = [end and text[-1:].isalnum() for text, (_, end) in zip(small, raw, strict=True)]
    ended = [f"{text}." if stop else text for text, stop in zip(small, stopped, strict=True)]
    rows = tokenizer.encode_batch(ended) if ended else []
    return [Reading(*found) for found in zip(ended, raised, stopped, rows, strict=True)]


def fit_piece(
    tokenizer: Tokenizer, text: str, span: Span, read: Reading, most: int | None
) -> Iterator[Piece]:
    """A sentence as one piece, or as several of at most `most` tokens."""
    if most is None or len(read.ids) <= most:
        yield make_piece(tokenizer, span, read)
        return

    def fits(part: str) -> bool:
        return len(encode(tokenizer, [(part, False)])[0].ids) <= most

    parts = list(cut_long(text, span, fits))
    again = encode(tokenizer, [(text[a:b], False) for a, b in parts])
    yield from map(partial(make_piece, tokenizer), parts, again)


def make_piece(tokenizer: Tokenizer, span: Span, read: Reading) -> Piece:
    """A piece, with its tokens where there is something to translate."""
    copied = is_copied(read.text) or is_foreign(read.text, read.ids, tokenizer)
    return Piece(span, read.text, [] if copied else read.ids, read.raised, read.stopped)


# Translating ------------------------------------------------------------------------------------


def translate_passages(
    kit: Searcher,
    texts: Sequence[str],
    how: TranslateConfig,
    strict: bool | None = None,
    words: bool = False,
    tell: Tell | None = None,
    run: Run | None = None,
) -> list[Answer]:
    """Translations of each text, in order; `tell` hears how many of how many pieces are done.

    Pieces of like length run together; the answers do not depend on it, nor on who runs them.
    """
    read = zip(texts, read_passages(kit, texts, how), strict=True)
    tasks = [translate_text(kit, text, pieces, how) for text, pieces in read]
    made = do_all(tasks, run or one_by_one(kit, strict), tell)
    return [
        Answer(
            join(text, each, how.count),
            word_choices(kit, text, each, how, strict) if words else [],
            each,
        )
        for text, each in zip(texts, made, strict=True)
    ]


def one_by_one(kit: Searcher, strict: bool | None) -> Run:
    """Jobs in this process, one after the other."""
    return lambda jobs: (job.do(kit, strict) for job in jobs)


def translate_text(kit: Searcher, text: str, pieces: Sequence[Piece], how: TranslateConfig) -> Mend:
    """The pieces of a text with their translations, mended where something was lost."""
    parts = yield from translate_pieces(text, pieces, how)
    if how.keeps_whole:
        return parts
    if anew := around_lost(kit, text, parts):
        parts = yield from translate_pieces(text, anew, how)
    if languages(kit) == ("fr", "en"):
        parts = yield from with_figures(parts, how)
    if not how.may_coin and kit.written:
        parts = yield from with_words(parts, kit.written, how)
    return parts


def translate_pieces(text: str, pieces: Sequence[Piece], how: TranslateConfig) -> Mend:
    """Pieces with their translations; those without tokens as they stand."""
    found = iter((yield [Job([piece.ids], how) for piece in pieces if piece.ids]))
    return [
        Part(piece, distinct(piece, next(found)) if piece.ids else [copied(text, piece)])
        for piece in pieces
    ]


def distinct(piece: Piece, answers: Sequence[Translation]) -> list[Translation]:
    """Translations as the source is written; of equal ones the first."""
    cased = [in_case(piece, answer) for answer in answers]
    return [*{answer.text: answer for answer in reversed(cased)}.values()][::-1]


def around_lost(kit: Searcher, text: str, parts: Sequence[Part]) -> list[Piece]:
    """The pieces anew, cut around addresses, code and such that a translation lost; else none."""
    assert kit.tokenizer is not None
    pieces, lost, named = list[Piece](), False, bool(languages(kit)[0])
    for piece, (best, *_) in parts:
        start, end = piece.span
        kept = [set_off(text, *match.span()) for match in KEPT.finditer(text, start, end)]
        if all(words.lower() in f" {best.text}".lower() for words in kept):
            pieces.append(piece)
            continue
        lost = True
        cut = stretches(text, piece.span, KEPT)
        read = encode(kit.tokenizer, [(text[a:b], alone and named) for (a, b), alone in cut])
        for (span, _), reading in zip(cut, read, strict=True):
            made = make_piece(kit.tokenizer, span, reading)
            pieces.append(made._replace(ids=[]) if KEPT.fullmatch(text, *span) else made)
    return pieces if lost else []


def copied(text: str, piece: Piece) -> Translation:
    """A piece as it stands in its text."""
    return Translation(text[slice(*piece.span)], 0.0, [])


def gap(text: str, parts: Sequence[Part], n: int) -> str:
    """What stands between a piece and the one before it."""
    return text[parts[n - 1].piece.span[1] : parts[n].piece.span[0]] if n else ""


def join(text: str, parts: Sequence[Part], count: int) -> list[Translation]:
    """Translations of a whole text: the best of each piece, then the likeliest mixtures."""
    if len(parts) == 1:
        return parts[0].translations[:count]
    found = [Translation("", 0.0, [])]
    for n, part in enumerate(parts):
        between = gap(text, parts, n)
        mixed: dict[str, Translation] = {}
        for a in found:
            for b in part.translations:
                both = Translation(
                    a.text + between + b.text, a.logprob + b.logprob, [*a.tokens, *b.tokens]
                )
                mixed.setdefault(both.text, both)
        first, *rest = mixed.values()
        found = [first, *sorted(rest, key=lambda t: -t.logprob)[: count - 1]]
    return found


def word_choices(
    kit: Searcher,
    text: str,
    parts: Sequence[Part],
    how: TranslateConfig,
    strict: bool | None,
) -> list[Word]:
    """Each word of the best translation with others, and the whole text that goes on from them."""
    best = [part.translations[0].text for part in parts]
    gaps = [gap(text, parts, n) for n in range(len(parts))]
    words: list[Word] = []
    for n, part in enumerate(parts):
        if not part.piece.ids:
            continue
        before = "".join(g + b for g, b in zip(gaps[:n], best[:n], strict=True)) + gaps[n]
        after = "".join(g + b for g, b in zip(gaps[n + 1 :], best[n + 1 :], strict=True))

        piece = part.piece
        listed = other_words(kit, piece.ids, part.translations[0], how, strict)
        for left, word in zip(range(len(listed) - 1, -1, -1), listed, strict=True):
            others = [
                Other(
                    piece.restore(o.text, o.translation.endswith(o.text)),
                    o.logprob,
                    f"{before}{piece.restore(o.translation)}{after}",
                )
                for o in word.others
            ]
            words.append(Word(piece.restore(word.text, not left), word.logprob, others))
    return words
