"""Glossaries: which term of the target stands for a term of the source.

A plain search comes first. Where its translation lacks a term, the words that are aligned with the
source's give way to it, in their number and case. Where none are, a search for the term is made.
(A search alone puts terms anywhere and says the usual word too: "in a cage. ombudsman.")

How terms inflect is data in the model's folder, `glossary.json`:
  source, target   of each language:
    plural         [pattern, replacement] for the end of a word; the first that matches counts
    head           the beginning of a term that is inflected: pomme de terre
    every          whether all words of it are, or the last alone
    seems_plural   of the target: how a plural looks
  small            words of the target that no term replaces: articles, pronouns
  joints           [pattern, replacement] for a term and the word before: a | apple
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.data.pairs import shorten
from regard.data.text_files import read_lines
from regard.data.word_frequencies import Span, word_spans
from regard.errors import DataError, UsageError
from regard.translation.document import TargetText
from regard.translation.explanation import align_config, align_words, look_across
from regard.translation.normalise import tidy

if TYPE_CHECKING:
    from regard.translation.translator import SentenceSearch

RULES_FILE = "glossary.json"
HINT, HINT_END = "\x11", "\x0f"
"""Around a term that stands behind a source word, for a model that was trained to read hints."""
Rule = tuple[re.Pattern[str], str]
GlossaryLike = str | Path | Mapping[str, str]
"""A file, source term TAB target term on each line, or a mapping."""


# Reading ------------------------------------------------------------------------------------------


def read_glossary(glossary: GlossaryLike) -> dict[str, str]:
    """Source term → target term; further columns of a file are remarks."""
    doing, lines = "reading a glossary", list[tuple[str, str, str]]()
    if isinstance(glossary, Mapping):
        lines = [(f"entry {n}", *pair) for n, pair in enumerate(glossary.items(), 1)]
    else:
        doing += f" from {glossary}"
        for number, line in enumerate(read_lines(glossary), 1):
            if line.strip():
                source, tab, target = line.partition("\t")
                if not tab:
                    wrong = f"no TAB in line {number}: {shorten(line)!r}"
                    raise DataError(doing, wrong, "source term TAB target term")
                lines.append((f"line {number}", source, target.partition("\t")[0]))
    terms, places = dict[str, str](), dict[str, str]()
    for place, source, target in lines:
        source, target = tidy(source), " ".join(target.split())
        if not source or not target:
            side = "target" if source else "source"
            raise DataError(doing, f"an empty {side} term in {place}", "a term on each side")
        if terms.setdefault(source, target) != target:
            wrong = f"{source!r} is {terms[source]!r} in {places[source]}, {target!r} in {place}"
            raise DataError(doing, wrong, "one translation of each term", "take one of them out")
        places.setdefault(source, place)
    return terms


@dataclass(frozen=True)
class Inflection:
    """How the terms of a language form their plural; without rules they do not."""

    plural: Sequence[Rule] = ()
    head: re.Pattern[str] = re.compile("")
    every: bool = False

    def pluralise(self, term: str) -> str:
        """A term in the plural: pommes de terre."""
        match = self.head.match(term)
        if match is None or not match[0]:
            return term
        *before, last = match[0].split(" ")
        before = [self.inflect(word) for word in before] if self.every else before
        return " ".join([*before, self.inflect(last)]) + term[match.end() :]

    def inflect(self, word: str) -> str:
        """A word in the plural."""
        rules = (rule for rule in self.plural if rule[0].search(word))
        return next((pattern.sub(new, word, count=1) for pattern, new in rules), word)


def read_rules(pairs: Sequence[Sequence[str]]) -> list[Rule]:
    """Patterns and what replaces them."""
    return [(re.compile(pattern), new) for pattern, new in pairs]


# Terms of a text ----------------------------------------------------------------------------------


class Term(NamedTuple):
    """A term of a source and what its translation may write for it."""

    span: Span
    """Where it stands in the source."""
    forms: tuple[str, ...]
    """The target term in the right case: its plural, if it has one, and as the glossary has it."""
    plural: bool
    """Whether the source is in the plural."""


class Glossary:
    """Terms, with their inflection where the model's folder tells it."""

    def __init__(self, terms: Mapping[str, str], files: Mapping[str, bytes]) -> None:
        source, target = Inflection(), Inflection()
        self.small, self.seems_plural = frozenset[str](), re.compile("(?!)")
        self.joints = list[Rule]()
        if RULES_FILE in files:
            try:
                data: dict[str, Any] = json.loads(files[RULES_FILE])
                source, target = (
                    Inflection(read_rules(one["plural"]), re.compile(one["head"]), one["every"])
                    for one in (data["source"], data["target"])
                )
                self.seems_plural = re.compile(data["target"]["seems_plural"])
                self.small, self.joints = (
                    frozenset(data["small"].split()),
                    read_rules(data["joints"]),
                )
            except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
                wrong = f"{type(error).__name__}: {error}"
                expected = "what translation/glossary.py lists"
                raise DataError(f"reading {RULES_FILE}", wrong, expected) from None
        self.forms = dict[str, tuple[tuple[str, ...], bool]]()
        """A source term in each number; the target's forms for it, and whether it is a plural."""
        for plural in (False, True):  # what is written goes before what is formed
            for term, meant in terms.items():
                both = meant if self.seems_plural.search(meant) else target.pluralise(meant), meant
                form = source.pluralise(term) if plural else term
                self.forms.setdefault(form, (tuple(dict.fromkeys(both)), plural))
        self.longest = max((len(word_spans(term)) for term in self.forms), default=0)

    def find(self, text: str) -> list[Term]:
        """The terms of a text; of those that begin at one word the longest.

        Terms in small letters are there in any case, others only as they are written.
        """
        spans, terms, after = word_spans(text), list[Term](), 0
        for n, (start, _) in enumerate(spans):
            for last in range(min(n + self.longest, len(spans)) - 1, n - 1, -1):
                written = text[start : spans[last][1]]
                entry = self.forms.get(written) or self.forms.get(written.lower())
                if entry is None or n < after:
                    continue
                forms, plural = entry
                if written not in self.forms and written.isupper() and len(written) > 1:
                    forms = tuple(form.upper() for form in forms)
                elif written not in self.forms and n > 0:
                    forms = tuple(form[0].upper() + form[1:] for form in forms)
                terms.append(Term((start, spans[last][1]), forms, plural))
                after = last + 1
        return terms

    def put(self, text: str, span: Span, form: str) -> str:
        """A translation with a term in place of what stands there."""
        start, end = span
        form = form if text[:start].strip() else form[0].upper() + form[1:]
        before = text.rfind(" ", 0, max(0, start - 1)) + 1
        joined = text[before:start] + form
        for pattern, new in self.joints:
            joined = pattern.sub(new, joined, count=1)
        return text[:before] + joined + text[end:]


def find_forms(text: str, forms: Sequence[str]) -> list[Span]:
    """Where a term stands in a translation, in any of its forms and any case."""
    either = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
    matches = re.finditer(rf"(?<!\w)(?:{either})(?!\w)", text, re.IGNORECASE)
    return [match.span() for match in matches]


def lacks_terms(text: str, terms: Sequence[Term]) -> bool:
    """Whether a translation has one of the terms less often than its source."""
    needed = Counter(term.forms for term in terms)
    return any(len(find_forms(text, forms)) < count for forms, count in needed.items())


# Translations -------------------------------------------------------------------------------------


def put_terms(
    search: SentenceSearch,
    glossary: Glossary,
    row: Sequence[int],
    source: str,
    text: str,
    terms: Sequence[Term],
) -> list[TargetText]:
    """A translation of a source, its tokens `row`, made to hold the terms; none where it cannot."""
    kit = search.kit
    if kit.config.get("hints"):
        hinted = source
        for (_, end), forms, plural in reversed(terms):
            form = forms[0 if plural else -1]
            hinted = f"{hinted[:end]}{HINT} {form}{HINT_END}{hinted[end:]}"
        ((best, *_),) = search.translate(kit.text_tokenizer.encode_batch([hinted]))
        if not lacks_terms(best.text, terms):
            return [search.judge(row, best.text)]
    answer = replace_aligned(search, glossary, row, source, text, terms)
    if lacks_terms(answer.text, terms):
        must = dict.fromkeys((*search.config.must, *(term.forms[-1] for term in terms)))
        wish = replace(search.config, must=tuple(must), alternatives=1)
        try:
            ((held, *_),) = type(search)(kit, wish, search.strict).translate([row])
        except UsageError:
            return [answer]
        answer = answer if lacks_terms(held.text, terms) else held
    return [answer]


def replace_aligned(
    search: SentenceSearch,
    glossary: Glossary,
    row: Sequence[int],
    source: str,
    text: str,
    terms: Sequence[Term],
) -> TargetText:
    """A translation with terms in place of the words that are aligned with their sources."""
    kit, plain = search.kit, search.judge(row, text)
    across = look_across(kit, row, plain.tokens[:-1])
    how = align_config(kit.config)
    weights, links = align_words(kit, source, plain.tokens[:-1], across, how)
    spans = word_spans(text)
    free = {
        n
        for n, (a, b) in enumerate(spans)
        if any(map(str.isalnum, text[a:b])) and text[a:b].lower() not in glossary.small
    }
    changes = list[tuple[Span, tuple[str, ...]]]()
    for (begin, after), forms, plural in terms:
        own = [n for n, (a, _) in enumerate(word_spans(source)) if begin <= a < after]
        mass = weights[:, own].sum(1).tolist()
        if not free:
            break
        first = last = max(free, key=mass.__getitem__)
        linked = free.intersection(t for s, t in links if s in own)
        while first - 1 in linked:
            first -= 1
        while last + 1 in linked:
            last += 1
        free.difference_update(range(first, last + 1))
        start, end = spans[first][0], spans[last][1]
        held = any(a < end and start < b for a, b in find_forms(text, forms))
        if held or not lacks_terms(text, [term for term in terms if term.forms == forms]):
            continue
        if glossary.seems_plural.search(text[start:end]):
            forms = forms[:1]
        elif not plural:
            forms = forms[-1:]
        changes.append(((start, end), forms))
    answers = [plain]
    for span, forms in sorted(changes, reverse=True):
        texts = [glossary.put(answers[0].text, span, form) for form in forms]
        answers = sorted(
            (search.judge(row, new) for new in texts),
            key=lambda answer: -answer.logprob / search.beam.penalty(len(answer.tokens)),
        )
    return answers[0]
