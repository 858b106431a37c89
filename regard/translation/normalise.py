"""Normalisation of source texts: what of them is translated, and how the model reads it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

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
# Marks and letters that training hardly saw: \\n, {1, 2}, ¶, ∈ℝ, ▶, 中, א.
SYMBOL = (
    r"\\\w*|\{[^{}]*\}|[{}¶]|[\u2100-\u2121\u2123-\u214f\u2190-\u25ff\u2900-\u2bff\ufe0f]+"
    r"|[\u0370-\u1dff\u2e80-\ud7ff\uf900-\ufaff\U00010000-\U0001efff]+"
)
KEPT = re.compile(f"{ADDRESS.pattern}|{EMOJI}|{CODE}|{SYMBOL}|{TAG}", re.IGNORECASE)
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


def is_other_language(text: str, language: str) -> bool:
    """Whether the small words of a text are those of another language than this, by its code."""
    if language not in LANGUAGES:
        return False
    counts = count_small_words(text)
    most = max(counts.values())
    return most >= 2 and most > 2 * counts[language]


def main_language(text: str) -> str:
    """The code of the language whose small words a text has most of."""
    counts = count_small_words(text)
    return max(counts, key=lambda name: counts[name])


def count_small_words(text: str) -> dict[str, int]:
    """How many small words of each language a text has."""
    words = re.findall(r"[^\W\d_]+'?", text.lower())
    return {name: sum(map(small.__contains__, words)) for name, small in LANGUAGES.items()}


def is_foreign(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> bool:
    """Whether the vocabulary was not made for this script: bytes instead of letters, or unknown."""
    unknown = tokenizer.specials.get("unk", -1)
    return len(ids) > 1.5 * len(text) + 2 or 2 * ids.count(unknown) > len(ids)


def set_off(text: str, start: int, end: int) -> str:
    """A stretch of a text, with the blank before it where there is one."""
    return f"{' ' if text[:start][-1:].isspace() else ''}{text[start:end]}"


def cut_around(text: str, span: Span, kept: re.Pattern[str]) -> list[Span]:
    """The stretches of a span that match, and those between them."""
    start, end = span
    edges = [start, *(edge for match in kept.finditer(text, start, end) for edge in match.span())]
    pairs = zip(edges, [*edges[1:], end], strict=True)
    return [stretch for a, b in pairs for stretch in trim(text, a, b)]
