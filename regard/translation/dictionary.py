"""Dictionary: what a rare word or an idiom means, and hints that a translator reads.

A hint stands in the source, right after the words that it is for: several translations of which one
may suit, or one that must be written. A model that was trained with hints writes it in the form
that the sentence needs: entarté, pie or throw a pie at → threw a pie at.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from regard.data.word_frequencies import Span, key, unpack, word_spans, words

ENTRIES_FILE = "dictionary.tsv.xz"
"""Beside the weights: the rarest word of a headword, the headword, its translations, TABs between
them and " | " between translations; lines in the order of their bytes, in lower case."""
FORMS_FILE = "forms.tsv.xz"
"""Beside the weights: inflected form TAB lemma, in the order of the bytes."""
RULES_FILE = "glossary.json"
SELDOM = 20  # a word that training had less often needs a hint; commoner ones fare worse with it
SELDOM_IDIOM = 500  # an idiom, whose rarest word is commoner by itself
STEM, ENDING = 3, 2  # letters of a word that stay, and that an inflection may change
CHOICES = 4  # translations in a hint
Others = Callable[[str], Sequence[str]]
"""What else a word may become, by examples."""
SOFT, FIRM, OR, CLOSE = "\x0e", "\x11", "\x10", "\x0f"
"""Marks of hints. Texts have none: what a user writes with them is read as blanks."""
GAP = 1  # words that may stand between two of an idiom: poser encore un lapin
OPEN = frozenset({"quelqu'un", "quelque", "chose", "someone", "something", "one's", "qqn", "qqch"})
"""Words of a headword that stand for any other."""


class Entry(NamedTuple):
    """A headword that stands in a sentence."""

    first: int
    """Its first word."""
    last: int
    headword: str
    translations: list[str]
    """The one that most sources agree on first."""
    elsewhere: tuple[str, ...] = ()
    """What it became in an example."""
    firm: bool = False
    """Whether it is to be written as it stands."""

    @property
    def choices(self) -> list[str]:
        """What a hint says."""
        return list(dict.fromkeys([*self.translations[:CHOICES], *self.elsewhere]))


class SortedLines:
    """Lines in the order of their bytes: found by bisection, never taken apart as a whole."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def starting(self, prefix: str) -> Iterator[list[str]]:
        """The fields of each line that starts so."""
        data, want = self.data, prefix.encode()

        def begins(at: int) -> bytes:  # how the line begins that has this byte
            start = data.rfind(b"\n", 0, at) + 1
            return data[start : start + len(want)]

        start = bisect_left(range(len(data)), want, key=begins)
        while data.startswith(want, start):
            end = data.index(b"\n", start)
            yield data[start:end].decode().split("\t")
            start = end + 1


class Dictionary:
    """Headwords, their translations, and the lemmas of inflected forms.

    With counts of words, how often training saw them, only rare words and idioms of rare words.
    """

    def __init__(
        self, entries: bytes, forms: bytes, counts: Mapping[str, int] | None = None
    ) -> None:
        self.entries, self.forms, self.counts = SortedLines(entries), SortedLines(forms), counts
        self.lemmas = lru_cache(1 << 16)(self._lemmas)
        self.headwords = lru_cache(1 << 16)(self._headwords)

    def _lemmas(self, word: str) -> tuple[str, ...]:
        """A word in lower case, and what it may be a form of."""
        lemmas = (lemma for _, lemma in self.forms.starting(f"{word}\t"))
        return tuple(dict.fromkeys((word, *lemmas)))

    def _headwords(self, word: str) -> list[tuple[list[str], list[str]]]:
        """(Words, translations) of each headword whose rarest word is this one."""
        known = [
            (headword.split(" "), translations.split(" | "))
            for lemma in self.lemmas(word)
            for _, headword, translations in self.entries.starting(f"{lemma}\t")
        ]
        return [both for both in known if self.rare(both[0] if len(both[0]) > 1 else [word])]

    def rare(self, said: Sequence[str]) -> bool:
        """Whether a word as it stands, or an idiom by its words, was seen seldom."""
        counts, most = self.counts, SELDOM if len(said) == 1 else SELDOM_IDIOM
        return counts is None or min(counts.get(word, 0) for word in said) < most

    def find(self, words: Sequence[str]) -> list[Entry]:
        """Headwords that stand in a sentence, idioms first; no word is in two of them."""
        words = [key(word) for word in words]
        entries = dict[tuple[int, int], Entry]()
        for n, word in enumerate(words):
            for headword, translations in self.headwords(word):
                if span := self.place(words, n, headword):
                    known = entries[span].translations if span in entries else []
                    both = list(dict.fromkeys([*known, *translations]))
                    entries[span] = Entry(*span, " ".join(headword), both)
        ranked = sorted(entries.values(), key=lambda e: (-len(e.headword.split(" ")), e.first))
        taken, kept = set[int](), list[Entry]()
        for entry in ranked:
            inside = set(range(entry.first, entry.last + 1))
            if not taken & inside:
                taken |= inside
                kept.append(entry)
        return sorted(kept)

    def place(
        self, words: Sequence[str], n: int, headword: Sequence[str]
    ) -> tuple[int, int] | None:
        """Where a headword stands whose rarest word is the nth of a sentence, if it does."""
        for k, part in enumerate(headword):
            if part in self.lemmas(words[n]):
                first = self.walk(words, n, headword[:k][::-1], -1)
                last = self.walk(words, n, headword[k + 1 :], 1)
                if first is not None and last is not None:
                    return first, last
        return None

    def walk(self, words: Sequence[str], at: int, parts: Sequence[str], step: int) -> int | None:
        """The place of the last of these words, in their order from `at` on; None without one."""
        for part in parts:
            if part in OPEN:
                continue
            near = (at + step * far for far in range(1, GAP + 2))
            inside = (n for n in near if 0 <= n < len(words))
            at = next((n for n in inside if part in self.lemmas(words[n])), -1)
            if at < 0:
                return None
        return at


def read_dictionary(files: Mapping[str, bytes], counts: Mapping[str, int]) -> Dictionary | None:
    """The dictionary of a model's folder, for rare words; None where there is none."""
    if not {ENTRIES_FILE, FORMS_FILE} <= files.keys():
        return None
    entries, forms = (unpack(files[name], name).encode() for name in (ENTRIES_FILE, FORMS_FILE))
    return Dictionary(entries, forms, counts)


class Hinter(NamedTuple):
    """Writes hints into sentences for a model that was trained to read them."""

    dictionary: Dictionary
    others: Others
    """What a word became in examples."""
    rules: Mapping[str, Any]
    """How words become plural, of both languages: the folder's glossary.json."""

    def find(self, text: str) -> list[Entry]:
        """Entries of rare words, and of idioms, with what they became elsewhere."""
        listed, entries = words(text), list[Entry]()
        for entry in self.dictionary.find(listed):
            if entry.first == entry.last:
                said = listed[entry.first]
                news = (one for one in self.others(said)[:1] if not holds(one, entry))
                entry = entry._replace(elsewhere=tuple(news))  # no mere inflection
                source, target = (self.rules.get(side, {}) for side in ("source", "target"))
                if entry.headword != said == pluralise(entry.headword, source):
                    several = [pluralise(one, target) for one in entry.translations]
                    entry = entry._replace(translations=several)
            entries.append(entry)
        return entries


def pluralise(term: str, rules: Mapping[str, Any]) -> str:
    """A term in the plural by the rules of its language, if there are any: pommes de terre."""
    head = re.match(rules.get("head", ""), term)
    words = head[0].split(" ") if head else []
    for n in range(0 if rules.get("every") else max(0, len(words) - 1), len(words)):
        fitting = (rule for rule in rules.get("plural", ()) if re.search(rule[0], words[n]))
        for pattern, new in islice(fitting, 1):
            words[n] = re.sub(pattern, new, words[n], count=1)
    return " ".join(words) + term[head.end() :] if head else term


def write_hints(text: str, entries: Sequence[Entry]) -> str:
    """A text with a hint after each of these entries."""
    spans = word_spans(text)
    for entry in reversed(entries):
        end = spans[entry.last][1]
        text = text[:end] + hint(entry.choices, entry.firm) + text[end:]
    return text


def plain_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """Where tokens of a text with hints stand in the text without.

    A token of a hint stands where the word ends that it is for.
    """
    places, at, inside = list[int](), 0, False
    for letter in text:
        places.append(at)
        inside = inside or letter in (SOFT, FIRM)
        at += not inside
        inside = inside and letter != CLOSE
    places.append(at)
    both = [(places[start], places[end]) for start, end in spans]
    return [(start, end) if start < end else (start - 1, end) for start, end in both]


def hint(translations: Sequence[str], firm: bool = False) -> str:
    """Translations as they stand in a source, after the words that they are for."""
    marked = OR.join(f" {translation}" for translation in translations)
    return f"{FIRM if firm else SOFT}{marked}{CLOSE}"


def holds(text: str, entry: Entry) -> bool:
    """Whether a text has the longest word of one of an entry's translations, in any inflection."""
    longest = (max(words(key(one)), key=len) for one in entry.choices)
    stems = tuple(word[: max(STEM, len(word) - ENDING)] for word in longest)
    return any(word.startswith(stems) for word in words(key(text)))


def in_turn(entries: Sequence[Entry], text: str, firm: bool) -> Iterator[list[Entry]]:
    """Entries with one translation at a time, where a text has no word of theirs.

    The first two of an idiom, or of a word if one of them is of several words, whose forms may
    still change: he threw a pie at me. Or firmly, of single words, the first as it stands.
    """
    each = list[list[str]]()
    for entry in entries:
        two, idiom = entry.choices[:2], entry.first < entry.last
        soft = two if idiom or " " in "".join(two) else []
        each.append([] if holds(text, entry) else two[: 1 - idiom] if firm else soft)
    for k in range(max(map(len, each), default=0)):
        yield [
            e._replace(translations=[own[k % len(own)]], elsewhere=(), firm=firm) if own else e
            for e, own in zip(entries, each, strict=True)
        ]
