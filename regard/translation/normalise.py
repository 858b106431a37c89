"""Normalisation of source texts: what of them is translated, and how the model reads it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from regard.data.sentences import Span, trim
from regard.tokens.tokenizer import Tokenizer

CAPITALS = 8  # characters of a text that is no acronym, if the vocabulary does not know better
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
# Marks and letters that training hardly saw: \\n, **, {1, 2}, ¶, ∈ℝ, ▶, 中, א.
SYMBOL = (
    r"\\\w*|\*{2,3}|\{[^{}]*\}|[{}¶]|[\u2100-\u2121\u2123-\u2129\u212c-\u214f\u2190-\u25ff\u2900-\u2bff\ufe0f]+"
    r"|[\u0370-\u1dff\u2e80-\ud7ff\ue000-\ufaff\U00010000-\U0001efff\U0001fb00-\U0010ffff]+"
)
KEPT = re.compile(f"{ADDRESS.pattern}|{EMOJI}|{CODE}|{SYMBOL}|{TAG}", re.IGNORECASE)
"""What no translation may lose."""
INLINE = (
    "(?:a|abbr|acronym|b|bdi|bdo|big|cite|del|dfn|em|font|i|ins|kbd|mark|q|s|samp|small|span|strike"
    r"|strong|sub|sup|tt|u|var|x\d+)"
)
"""Names of tags that stand inside a sentence."""
# Other tags, the edges of cells, numbers that no search can copy: each side for itself.
BETWEEN = re.compile(rf"</?(?!{INLINE}[\s>])[A-Za-z][^<>]*>|[|\t]|\d{{60,}}", re.IGNORECASE)
CODE_MARKS = frozenset("{}[]<>=\\|_;&$#~^*+/`()\"'")
CODE_LINE = re.compile(
    r"[;{]\s*$|^\s*[}\])]+;?\s*$|[^=<>!]==?[^=]|=>|->|::|&&|\|\||^\s*(?:#include|import|from|def|"
    r"class|return|var|let|const|if \(|for \(|while \(|SELECT|INSERT|UPDATE)\b|\w\(.*\)\s*;?\s*$"
)
"""What makes a line one of a program, and not a sentence with markup."""
SMALL_WORD = re.compile(r"(?<!\w)[^\W\d_]{2,}(?!\d)'?|(?<![\w[(-])[^\W\d_](?![\w\])-])'?|[¿¡]")
CLAUSE = re.compile(r"«[^«»]*»|“[^“”]*”|\"[^\"]*\"|\([^()]*\)|[^«»“”\"(),;:]+")
LANGUAGES = json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))
"""By its code: the name of a language, letters of its own, small words; some stand in several."""
CODES, LETTER_CODES = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
for _code, _language in LANGUAGES.items():
    for _word in _language["words"].split():
        CODES[_word].append(_code)
    for _letter in _language["letters"]:
        LETTER_CODES[_letter].append(_code)

# What the model reads: one kind of apostrophe and of blank, nothing invisible, no half letters.
TIDY = (
    {ord(mark): "'" for mark in "’ʼ‛"}
    | {ord(mark): None for mark in "\u00ad\u200b\u2060\ufeff"}
    | {number: " " for number in (*range(32), *range(127, 160), *range(0xD800, 0xE000))}
)


def tidy(text: str) -> str:
    """A text with composed accents, straight apostrophes and plain blanks."""
    return " ".join(unicodedata.normalize("NFC", text).translate(TIDY).split())


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

    cased = re.sub(r"[^\W\d_]{2,}(?!\d)|(?<!\w)[^\W\d_](?!\w)", best, text)
    return cased[:1].upper() + cased[1:]


def is_code(text: str) -> bool:
    """Whether a text is a line of a program: many marks, and one of the ways programs are written.

    Markup around words, such as <b>or</b> **these**, does not make them code.
    """
    plain = re.sub(rf"{TAG}|[*_|#>]", "", text)
    marks = sum(map(CODE_MARKS.__contains__, plain))
    few = marks < 3 or 9 * marks < len("".join(plain.split()))
    return not few and bool(CODE_LINE.search(plain))


def is_copied(text: str) -> bool:
    """Whether there is nothing to translate: no letter, an address, code."""
    return not any(map(str.isalpha, KEPT.sub("", text))) or is_code(text)


@lru_cache(2048)
def small_words(text: str) -> dict[str, set[str]]:
    """The small words of a text that each language has, and those with letters of its own.

    Tags are no words: <i> would be Italian.
    """
    small: dict[str, set[str]] = {code: set() for code in LANGUAGES}
    for word in {*SMALL_WORD.findall(re.sub(TAG, " ", text.lower().replace("’", "'")))}:
        letters = () if word.isascii() else word
        for code in (*CODES.get(word, ()), *(c for x in letters for c in LETTER_CODES.get(x, ()))):
            small[code].add(word)
    return small


def other_language(text: str, language: str) -> str:
    """The code of a language that a text is in rather than in this one; "" where there is none.

    It has two small words of the other; those that this language lacks are more than twice those
    that the other lacks.
    """
    words = small_words(text)
    margins = {
        other: len(theirs - words[language]) - 2 * len(words[language] - theirs)
        for other, theirs in words.items()
        if language in words and len(theirs) >= 2
    }
    best = max(margins, key=lambda name: margins[name], default="")
    return best if margins.get(best, 0) > 0 else ""


def foreign_clauses(text: str, span: Span, language: str) -> list[Span]:
    """Quotes and clauses of a sentence in another language; neighbours are one."""
    spans, words = list[Span](), small_words(text[slice(*span)])
    if all(len(theirs - words.get(language, theirs)) < 2 for theirs in words.values()):
        return []
    for match in CLAUSE.finditer(text, *span):
        for a, b in trim(text, *match.span()) if other_language(match[0], language) else ():
            if spans and not any(map(str.isalnum, text[spans[-1][1] : a])):
                a = spans.pop()[0]
            spans.append((a, b))
    return spans


def is_left(text: str, language: str) -> bool:
    """Whether all of a sentence is in another language: no clause has words of this one."""
    other = other_language(text, language)
    outside, end = "", 0
    for a, b in foreign_clauses(text, (0, len(text)), language) if other else ():
        outside, end = f"{outside} {text[end:a]}", b
    words = small_words(outside + text[end:]) if end else {}
    return bool(other) and not (end and words[language] - words[other])


def is_foreign(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> bool:
    """Whether the vocabulary was not made for this script: bytes instead of letters, or unknown."""
    unknown = tokenizer.of("source").specials.get("unk", -1)
    return len(ids) > 1.5 * len(text) + 2 or 2 * ids.count(unknown) > len(ids)


def set_off(text: str, start: int, end: int) -> str:
    """A stretch of a text, with the blank before it where there is one."""
    return f"{' ' if text[:start][-1:].isspace() else ''}{text[start:end]}"


def cut_around(text: str, span: Span, kept: Iterable[Span]) -> list[Span]:
    """Some stretches of a span, and those between them."""
    start, end = span
    edges = [start, *(edge for stretch in kept for edge in stretch)]
    pairs = zip(edges, [*edges[1:], end], strict=True)
    return [stretch for a, b in pairs for stretch in trim(text, a, b)]
