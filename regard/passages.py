"""Passages: texts of any length and kind, translated by sentences and joined again."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from regard.data.sentences import Span, cut_long, sentence_spans, trim
from regard.errors import UsageError
from regard.figures import lost_figures
from regard.model.config import TextConfig
from regard.tokens.tokenizer import Tokenizer
from regard.translating import (
    Other,
    Row,
    Searcher,
    TranslateConfig,
    Translation,
    Word,
    other_words,
    translate,
)

ROWS = 64  # beams of a batch, about
TOKENS = 4000  # beams × source tokens of a batch, beams at least 2: a bound on its memory
CAPITALS = 8  # characters of a text that is no acronym, if the vocabulary does not know better
LONGEST = 256  # source tokens read at once, whatever the model has room for
# Addresses, and strings too long for words.
ADDRESS = re.compile(
    r"(?<!\S)\S{100,}|(?:https?://|www\.)\S*[^\s.,;:!?)»\"]|[\w.+-]++@[\w-]+(?:\.[\w-]+)+",
    re.IGNORECASE,
)
EMOJI = r"[\U0001f000-\U0001faff\u2600-\u27bf][\U0001f000-\U0001faff\u2600-\u27bf\ufe0f\u200d]*"
# Names and slots of programs: `git add`, %s, {name}, $HOME, f(), ma_fonction, C:\Users, <br>.
CODE = (
    r"`[^`]+`|%[sdif]\b|%\(\w+\)[sdif]|\$?\{\w*\}|\$\w+|\b[^\W\d]\w*\(\)|\b\w+_\w+\b"
    r"|\b[A-Za-z]:\\\S+|(?<!\S)(?:\.{0,2}|~)/[\w./-]*\w/[\w./-]*\w"
)
TAG = r"</?[A-Za-z][^<>]*>"
KEPT = re.compile(f"{ADDRESS.pattern}|{EMOJI}|{CODE}|{TAG}", re.IGNORECASE)
"""What no translation may lose."""
BETWEEN = re.compile(rf"{TAG}|\|")  # tags and the edges of a table's cells: each side for itself
EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|__)(?=\S)(.+?)(?<=\S)\1(?!\w)")  # **of Markdown**
CODE_MARKS = frozenset("{}[]<>=\\|_;&$#~^*+/`()\"'")
CODE_LINE = re.compile(
    r"[;{]\s*$|^\s*[}\])]+;?\s*$|[^=<>!]==?[^=]|=>|->|::|&&|\|\||^\s*(?:#include|import|from|def|"
    r"class|return|var|let|const|if \(|for \(|while \(|SELECT|INSERT|UPDATE)\b|\w\(.*\)\s*;?\s*$"
)
"""What makes a line one of a program, and not a sentence with markup."""
STOP_WORDS = {
    "fr": "le la les un une des du et est sont dans que qui pour pas ce il elle nous vous je se au "
    "aux avec sur ne plus on tu ça à de d' l' en y a ai as ont par ou où mais mon ma son sa",
    "en": "the is are was were of and to in that it for with this you not he she they have has be "
    "at by from an i we his her my your will would can",
    "de": "der die das und ist ein eine nicht ich sie wir mit auf für den dem von zu im wie auch",
    "es": "el los las una es y por para con no está esta este muy pero como más del yo mi en",
    "it": "il gli è e di che non per una con sono questo della nel ma io lo",
    "pt": "o os as é e não uma para com em do da no na por eu ele você",
    "nl": "de het een is en van niet ik op te met voor dat zijn hij wij je",
}
"""Small words that tell a language; some stand in several."""
LANGUAGES = {name: frozenset(words.split()) for name, words in STOP_WORDS.items()}

# What the model reads: one kind of apostrophe and of blank, nothing invisible.
TIDY = (
    {ord(mark): "'" for mark in "’ʼ‛"}
    | {ord(mark): None for mark in "\u00ad\u200b\u2060\ufeff"}
    | {number: " " for number in (*range(32), *range(127, 160))}
)

Tell = Callable[[int, int], None]
Run = Callable[[Sequence[list[Row]], TranslateConfig], Iterator[list[list[Translation]]]]
"""Batches of sources → what becomes of each batch, in order."""


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


class Part(NamedTuple):
    """A piece with what became of it."""

    piece: Piece
    translations: list[Translation]


class Answer(NamedTuple):
    """What became of one text."""

    translations: list[Translation]
    words: list[Word]
    """Of the first translation, where they were asked for."""
    parts: Sequence[Part] = ()
    """Its sentences."""


# Reading ----------------------------------------------------------------------------------------


def tidy(text: str) -> str:
    """A text with composed accents, straight apostrophes, plain blanks and no emphasis."""
    plain = EMPHASIS.sub(r"\2", unicodedata.normalize("NFC", text).translate(TIDY))
    return " ".join(plain.split())


def in_capitals(text: str) -> bool:
    """Whether a text of two letters or more is in capitals throughout."""
    return text.isupper() and sum(map(str.isalpha, text)) > 1


def recased(tokenizer: Tokenizer, text: str) -> str:
    """A text in capitals as it would be printed: names and acronyms keep theirs.

    Of a word in small letters, with a capital, and in capitals, the vocabulary knows best the one
    that it writes in the fewest pieces; of equals, the one whose piece it learnt first.
    """

    def known(word: str) -> tuple[int, int]:
        alone, elided = (
            tokenizer.encode(f"{before}{word}", special=False)[1:] for before in ("a ", "l'")
        )
        return min(len(alone), len(elided)), alone[0] if len(alone) == 1 else tokenizer.size

    def best(match: re.Match[str]) -> str:
        forms = (match[0].lower(), match[0].capitalize(), match[0])
        return min(forms if len(text) >= CAPITALS else forms[::-1], key=known)

    made = re.sub(r"[^\W\d_]{2,}(?!\d)|(?<!\w)[^\W\d_](?!\w)", best, text)
    return made[:1].upper() + made[1:]


def is_code(text: str) -> bool:
    """Whether a text is a line of a program: many marks, and one of the ways programs are written.

    Markup around words, such as <b>or</b> **these**, does not make them code.
    """
    plain = re.sub(rf"{TAG}|[*_|#>]", "", text)
    marks = sum(mark in CODE_MARKS for mark in plain)
    few = marks < 3 or 9 * marks < sum(not mark.isspace() for mark in plain)
    return not few and bool(CODE_LINE.search(plain))


def is_copied(text: str) -> bool:
    """Whether there is nothing to translate: no letter, an address, code."""
    return not any(map(str.isalpha, KEPT.sub("", text))) or is_code(text)


def is_other_language(text: str, language: str) -> bool:
    """Whether the small words of a text are those of another language than this, by its code."""
    if language not in LANGUAGES:
        return False
    words = re.findall(r"[^\W\d_]+'?", text.lower())
    counts = {name: sum(word in known for word in words) for name, known in LANGUAGES.items()}
    most = max(counts.values())
    return most >= 2 and most > 2 * counts[language]


def languages(kit: Searcher) -> tuple[str, str]:
    """The codes of the source's language and the translation's, "" where config.json has none."""
    source, target = kit.config.get("languages") or ("", "")
    return str(source), str(target)


def is_foreign(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> bool:
    """Whether the vocabulary was not made for this script: bytes instead of letters, or unknown."""
    unknown = tokenizer.specials.get("unk")
    return len(ids) > 1.5 * len(text) + 2 or 2 * sum(i == unknown for i in ids) > len(ids)


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
        trim(t, 0, len(t))
        if whole
        else [part for span in sentence_spans(t) for part in cut_around(t, span, BETWEEN)]
        for t in texts
    ]
    most, (language, _) = longest_source(kit), languages(kit)
    both = list(zip(texts, spans, strict=True))
    rows = iter(encode(kit.tokenizer, [t[a:b] for t, each in both for a, b in each]))
    passages: list[list[Piece]] = []
    for text, each in both:
        passages.append([])
        for span in each:
            read = next(rows)
            pieces = fit_piece(kit.tokenizer, text, span, read, None if whole else most)
            copied = not whole and is_other_language(read.text, language)
            passages[-1] += [p._replace(ids=[]) if copied else p for p in pieces]
    return passages


class Reading(NamedTuple):
    """How a stretch of text is read."""

    text: str
    raised: bool
    ids: list[int]


def encode(tokenizer: Tokenizer, raw: Sequence[str]) -> list[Reading]:
    """Stretches of text as the model reads them."""
    tidied = [tidy(text) for text in raw]
    small = [recased(tokenizer, text) if in_capitals(text) else text for text in tidied]
    raised = [a != b for a, b in zip(tidied, small, strict=True)]
    rows = tokenizer.encode_batch(small) if small else []
    return [Reading(*found) for found in zip(small, raised, rows, strict=True)]


def fit_piece(
    tokenizer: Tokenizer, text: str, span: Span, read: Reading, most: int | None
) -> Iterator[Piece]:
    """A sentence as one piece, or as several of at most `most` tokens."""
    if most is None or len(read.ids) <= most:
        yield make_piece(tokenizer, span, read)
        return

    def fits(part: str) -> bool:
        return len(encode(tokenizer, [part])[0].ids) <= most

    parts = list(cut_long(text, span, fits))
    for part, again in zip(parts, encode(tokenizer, [text[a:b] for a, b in parts]), strict=True):
        yield make_piece(tokenizer, part, again)


def make_piece(tokenizer: Tokenizer, span: Span, read: Reading) -> Piece:
    """A piece, with its tokens where there is something to translate."""
    copied = is_copied(read.text) or is_foreign(read.text, read.ids, tokenizer)
    return Piece(span, read.text, [] if copied else read.ids, read.raised)


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
    if run is None:
        run = one_by_one(kit, strict)
    parts = translate_parts(texts, read_passages(kit, texts, how), how, run, tell)
    if not how.keeps_whole:
        cut = {n: around_lost(kit, text, parts[n]) for n, text in enumerate(texts)}
        again = {n: pieces for n, pieces in cut.items() if pieces}
        some = translate_parts([texts[n] for n in again], [*again.values()], how, run)
        for n, each in zip(again, some, strict=True):
            parts[n] = each
        if languages(kit) == ("fr", "en"):
            parts = [[with_figures(part, how, run) for part in each] for each in parts]
    return [
        Answer(
            join(text, each, how.count),
            word_choices(kit, text, each, how, strict) if words else [],
            each,
        )
        for text, each in zip(texts, parts, strict=True)
    ]


def one_by_one(kit: Searcher, strict: bool | None) -> Run:
    """Batches in this process, one after the other."""

    def run(
        batches: Sequence[list[Row]], how: TranslateConfig
    ) -> Iterator[list[list[Translation]]]:
        return (translate(kit, rows, how, strict) for rows in batches)

    return run


def translate_parts(
    texts: Sequence[str],
    passages: Sequence[Sequence[Piece]],
    how: TranslateConfig,
    run: Run,
    tell: Tell | None = None,
) -> list[list[Part]]:
    """The pieces of each text with their translations."""
    flat = [(t, piece) for t, each in zip(texts, passages, strict=True) for piece in each]
    found = {n: [copied(t, piece)] for n, (t, piece) in enumerate(flat) if not piece.ids}
    found |= translate_pieces([piece for _, piece in flat], how, run, tell)
    numbers = iter(range(len(flat)))
    return [[Part(piece, found[next(numbers)]) for piece in each] for each in passages]


def around_lost(kit: Searcher, text: str, parts: Sequence[Part]) -> list[Piece]:
    """The pieces anew, cut around addresses, code and such that a translation lost; else none."""
    assert kit.tokenizer is not None
    pieces, lost = list[Piece](), False
    for piece, (best, *_) in parts:
        start, end = piece.span
        kept = [set_off(text, *match.span()) for match in KEPT.finditer(text, start, end)]
        if all(words.lower() in f" {best.text}".lower() for words in kept):
            pieces.append(piece)
            continue
        lost = True
        spans = cut_around(text, piece.span, KEPT)
        read = encode(kit.tokenizer, [text[a:b] for a, b in spans])
        made = (make_piece(kit.tokenizer, *both) for both in zip(spans, read, strict=True))
        pieces += [
            piece._replace(ids=[]) if KEPT.fullmatch(piece.text) else piece for piece in made
        ]
    return pieces if lost else []


def set_off(text: str, start: int, end: int) -> str:
    """A stretch of a text, with the blank before it where there is one."""
    return f"{' ' if text[:start][-1:].isspace() else ''}{text[start:end]}"


def cut_around(text: str, span: Span, kept: re.Pattern[str]) -> list[Span]:
    """The stretches of a span that match, and those between them."""
    start, end = span
    edges = [start, *(edge for match in kept.finditer(text, start, end) for edge in match.span())]
    pairs = zip(edges, [*edges[1:], end], strict=True)
    return [stretch for a, b in pairs for stretch in trim(text, a, b)]


def with_figures(part: Part, how: TranslateConfig, run: Run) -> Part:
    """A part whose translations have the numbers of the source, if a search for them finds any.

    Each digit is a token: long numbers come out short of one now and then, or with one too many.
    """
    piece, (best, *_) = part
    lost = lost_figures(piece.text, best.text) if piece.ids else []
    if not lost:
        return part
    wishes = replace(how, must=(*how.must, *lost), count=1)
    try:
        (((found, *_),),) = run([[piece.ids]], wishes)
    except UsageError:  # no room for all of them
        return part
    if len(lost_figures(piece.text, found.text)) >= len(lost):
        return part
    return Part(piece, [found, *part.translations][: max(1, how.count)])


def copied(text: str, piece: Piece) -> Translation:
    """A piece as it stands in its text."""
    return Translation(text[slice(*piece.span)], 0.0, [])


def translate_pieces(
    pieces: Sequence[Piece], how: TranslateConfig, run: Run, tell: Tell | None
) -> dict[int, list[Translation]]:
    """Translations of the pieces that have tokens, by their number; the longest come first."""
    order = sorted((n for n, p in enumerate(pieces) if p.ids), key=lambda n: -len(pieces[n].ids))
    beams = max(how.beams, how.count)
    size = how.batch or max(1, ROWS // beams)
    groups, first = list[list[int]](), 0
    while first < len(order):
        few = TOKENS // (max(2, beams) * len(pieces[order[first]].ids))
        groups.append(order[first : first + min(size, max(1, few))])
        first += len(groups[-1])
    found: dict[int, list[Translation]] = {}
    batches: list[list[Row]] = [[pieces[n].ids for n in group] for group in groups]
    for group, rows in zip(groups, run(batches, how), strict=True):
        for n, row in zip(group, rows, strict=True):
            found[n] = [in_case(pieces[n], answer) for answer in row]
        if tell:
            tell(len(found), len(order))
    return found


def in_case(piece: Piece, answer: Translation) -> Translation:
    """A translation on one line, in capitals where the source was."""
    text = " ".join(answer.text.split())
    return answer._replace(text=text.upper() if piece.raised else text)


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

        def case(text: str, up: bool = part.piece.raised) -> str:
            return text.upper() if up else text

        for word in other_words(kit, part.piece.ids, part.translations[0], how, strict):
            others = [
                Other(case(o.text), o.logprob, f"{before}{case(o.translation)}{after}")
                for o in word.others
            ]
            words.append(Word(case(word.text), word.logprob, others))
    return words
