"""Dictionary: what a rare word or an idiom means, and hints that a translator reads.

A hint stands in the source, right after the words that it is for: several translations of which one
may suit, or one that must be written. A model that was trained with hints writes it in the form
that the sentence needs: entarté, pie or throw a pie at → threw a pie at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice, zip_longest
from typing import Any, NamedTuple

from regard.data.sorted_lines import SortedLines
from regard.data.word_frequencies import key, word_spans, words

ENTRIES_FILE = "dictionary.tsv"
"""Beside the weights: the rarest word of a headword, the headword, and for each part of speech a
letter, a blank and the translations with " | " between them; TABs between all, lines in the order
of their bytes, in lower case."""
FORMS_FILE = "forms.tsv"
"""Beside the weights: inflected form TAB lemma TAB letters of its parts of speech, if they are
known, in the order of the bytes."""
NOUN, VERB = "n", "v"
RULES_FILE = "glossary.json"
SELDOM = 20  # a word that training had less often needs a hint; commoner ones fare worse with it
SELDOM_IDIOM = 500  # an idiom, whose rarest word is commoner by itself
COMMON = 10_000  # an idiom has two words or more that training had less often
STEM, ENDING = 3, 2  # letters of a word that stay, and that an inflection may change
CHOICES = 4  # translations in a hint
Others = Callable[[str], Sequence[str]]
"""What else a word may become, by examples."""
SOFT, FIRM, OR, CLOSE = "\x0e", "\x11", "\x10", "\x0f"
"""Marks of hints. Texts have none: what a user writes with them is read as blanks."""
NEAR = 2  # words before a verb, of which one may be its object
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
    forms: tuple[str, ...] = ()
    """What may be written as it stands: the first translation, in all its forms where a verb is
    inflected or a phrase begins with one."""
    alone: bool = False
    """Whether, tried by itself, its first word is read for all of it: posé, of posé un lapin."""
    tried: bool = False
    """Whether it is tried by itself."""
    small: frozenset[str] = frozenset()
    """Words by which no translation is known: have, of have a lie-in."""

    @property
    def choices(self) -> list[str]:
        """What a hint says."""
        return list(dict.fromkeys([*self.translations[:CHOICES], *self.elsewhere]))


class Dictionary:
    """Headwords, their translations, and the lemmas of inflected forms.

    With counts of words, how often training saw them, only rare words and idioms of rare words.
    `rules` say how words become plural, of both languages: the folder's glossary.json.
    """

    def __init__(
        self,
        entries: bytes,
        forms: bytes,
        counts: Mapping[str, int] | None = None,
        rules: Mapping[str, Any] | None = None,
    ) -> None:
        self.entries = SortedLines(entries, ENTRIES_FILE)
        self.forms = SortedLines(forms, FORMS_FILE)
        self.counts = counts
        self.source, self.target = ((rules or {}).get(side, {}) for side in ("source", "target"))
        self.objects: dict[str, str] = (rules or {}).get("objects", {})
        self.small = frozenset((rules or {}).get("small", "").split())
        self.lemmas = lru_cache(1 << 16)(self._lemmas)
        self.headwords = lru_cache(1 << 16)(self._headwords)

    def _lemmas(self, word: str) -> dict[str, str]:
        """A word in lower case, what it may be a form of, and as which parts of speech."""
        kinds = {word: ""}
        for _, lemma, *letters in self.forms.starting(f"{word}\t"):
            kinds.setdefault(lemma, "".join(letters))
        return kinds

    def _headwords(self, word: str) -> list[tuple[list[str], Entry]]:
        """(Words, entry without its place) of each headword whose rarest word is this one."""
        known, verbs = list[tuple[list[str], Entry]](), list[tuple[list[str], Entry]]()
        for lemma, kinds in self.lemmas(word).items():
            for _, headword, *groups in self.entries.starting(f"{lemma}\t"):
                parts = headword.split(" ")
                alone = len(parts) == 1
                if not self.rare([word] if alone else parts):
                    continue
                fitting = [g for g in groups if alone and g[0] in kinds] or groups
                several = alone and headword != word == pluralise(headword, self.source)
                lists = [
                    [pluralise(t, self.target) if several and kind == NOUN else t for t in listed]
                    for kind, listed in ((g[0], g[2:].split(" | ")) for g in fitting)
                ]
                first, verb = lists[0][0], fitting[0][0] == VERB
                phrase, conjugated = verb and not alone, verb and headword != word
                forms = conjugate(first, self.target) if conjugated else (first,) if alone else ()
                small = self.small if phrase else frozenset()
                how: dict[str, Any] = dict(forms=forms, alone=phrase, small=small)
                entry = Entry(0, 0, headword, in_turns(*lists), **how)
                (verbs if verb else known).append((parts, entry))
        return known + verbs  # les hérissons

    def rare(self, said: Sequence[str]) -> bool:
        """Whether a word as it stands, or an idiom by its words, was seen seldom."""
        if self.counts is None:
            return True
        seen = [self.counts.get(word, 0) for word in said if word not in OPEN] or [COMMON]
        idiom = sum(count < COMMON for count in seen) > 1  # se rassembler is a word
        return min(seen) < (SELDOM_IDIOM if idiom else SELDOM)

    def hints(self, text: str, others: Others) -> list[Entry]:
        """Entries of rare words, and of idioms, with what they became elsewhere."""
        listed, entries = words(text), list[Entry]()
        for entry in self.find(listed):
            if entry.first == entry.last:
                news = (one for one in others(listed[entry.first])[:1] if not holds(one, entry))
                entry = entry._replace(elsewhere=tuple(news))  # no mere inflection
            entries.append(entry)
        return entries

    def find(self, words: Sequence[str]) -> list[Entry]:
        """Headwords that stand in a sentence, idioms first; no word is in two of them.

        Names are none, inhabitants of places are: Thierry is not Derek, Londoniens are Londoners.
        """
        big = [word[:1].isupper() for word in words]
        named = [own and (n > 0 or big[1:2] == [True]) for n, own in enumerate(big)]
        words = [key(word) for word in words]
        entries = dict[tuple[int, int], Entry]()
        for n, word in enumerate(words):
            for headword, entry in self.headwords(word):
                people = headword != [word] and entry.translations[0][:1].isupper()
                if named[n] and len(headword) == 1 and not people:
                    continue
                if span := self.place(words, n, headword):
                    first, last = span
                    near = words[max(0, first - NEAR) : first]
                    who = next((self.objects[w] for w in near if w in self.objects), "")
                    forms = tuple(put_object(form, who) for form in entry.forms)
                    entry = entry._replace(first=first, last=last, forms=forms)
                    if before := entries.get(span):
                        both = in_turns(before.translations, entry.translations)
                        entry = before._replace(translations=both)
                    entries[span] = entry
        taken, kept = set[int](), list[Entry]()
        for entry in sorted(entries.values(), key=lambda e: (-len(e.headword.split(" ")), e.first)):
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


def in_turns(*lists: Sequence[str]) -> list[str]:
    """The first of each list, then the second ones, each once: every sense has its turn."""
    turns = chain.from_iterable(zip_longest(*lists))
    return list(dict.fromkeys(one for one in turns if one is not None))


def pluralise(term: str, rules: Mapping[str, Any]) -> str:
    """A term in the plural by the rules of its language, if there are any: pommes de terre."""
    head = re.match(rules.get("head", ""), term)
    words = head[0].split(" ") if head else []
    for n in range(0 if rules.get("every") else max(0, len(words) - 1), len(words)):
        fitting = (rule for rule in rules.get("plural", ()) if re.search(rule[0], words[n]))
        for pattern, new in islice(fitting, 1):
            words[n] = re.sub(pattern, new, words[n], count=1)
    return " ".join(words) + term[head.end() :] if head else term


def put_object(phrase: str, word: str) -> str:
    """A phrase with a word, or nothing, for what stands for any other: stood someone up."""
    return " ".join(filter(None, (word if p in OPEN else p for p in phrase.split(" "))))


def conjugate(term: str, rules: Mapping[str, Any]) -> tuple[str, ...]:
    """The forms of a phrase that begins with a verb; none where its language has no rules."""
    if "endings" not in rules:
        return ()
    verb, *rest = term.split(" ")
    special = rules.get("irregular", {}).get(verb, "").split()
    forms = [verb, *special]
    for endings in rules["endings"][: 2 if special else None]:  # the last is the past
        fitting = (rule for rule in endings if re.search(rule[0], verb))
        forms += [re.sub(pattern, new, verb, count=1) for pattern, new in islice(fitting, 1)]
    return tuple(" ".join([form, *rest]) for form in dict.fromkeys(forms))


def write_hints(text: str, entries: Sequence[Entry]) -> tuple[str, list[int]]:
    """A text with a hint after each of these entries, and where each letter stands in it alone.

    Letters of a hint stand where the words end that it is for; at last comes the end of the text.
    """
    spans, hinted, places, at = word_spans(text), "", list[int](), 0
    for entry in entries:
        end = spans[entry.last][1]
        kept = spans[entry.first][1] if entry.alone and entry.tried else end
        new = hint(entry.choices, entry.firm)
        hinted += text[at:kept] + new
        places += [*range(at, kept), *[end] * len(new)]
        at = end
    return hinted + text[at:], [*places, *range(at, len(text) + 1)]


def hint(translations: Sequence[str], firm: bool = False) -> str:
    """Translations as they stand in a source, after the words that they are for."""
    marked = OR.join(f" {translation}" for translation in translations)
    return f"{FIRM if firm else SOFT}{marked}{CLOSE}"


def holds(text: str, entry: Entry) -> bool:
    """Whether a text has the longest word of one of an entry's translations, in any inflection."""
    phrases = (words(key(one)) for one in (*entry.choices, *entry.forms))
    said = ([word for word in phrase if word not in OPEN | entry.small] for phrase in phrases)
    longest = [max(parts, key=len) for parts in said if parts]
    stems = tuple(word[: max(STEM, len(word) - ENDING)] for word in longest)
    return any(word.startswith(stems) for word in words(key(text)))


def in_turn(entries: Sequence[Entry], text: str, firm: bool) -> Iterator[list[Entry]]:
    """Entries with one translation at a time, where a text has no word of theirs.

    The first two of an idiom, or of a word if one of them is of several words, whose forms may
    still change: he threw a pie at me. Or firmly: of other single words the first as it stands, of
    an inflected verb all its forms, of an idiom that begins with one too, with that verb alone.
    """
    each = list[Sequence[str]]()
    for entry in entries:
        two, idiom = entry.choices[:2], entry.first < entry.last
        soft = two if idiom or " " in "".join(two) else []
        each.append([] if holds(text, entry) else entry.forms if firm else soft)
    for k in range(max(map(len, each), default=0)):
        yield [
            e._replace(translations=[own[k % len(own)]], elsewhere=(), firm=firm, tried=True)
            if own
            else e
            for e, own in zip(entries, each, strict=True)
        ]
