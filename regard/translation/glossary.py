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
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.data.pairs import shorten
from regard.data.text_files import read_lines
from regard.data.word_frequencies import Span, word_spans
from regard.errors import DataError, UsageError, expecting
from regard.translation.dictionary import RULES_FILE, hint, pluralise
from regard.translation.document import Segment, TargetText
from regard.translation.explanation import align_tokens
from regard.translation.normalise import tidy

if TYPE_CHECKING:
    from regard.translation.translator import SentenceSearch

# Reading ------------------------------------------------------------------------------------------


def read_glossary(glossary: str | Path | Mapping[str, str]) -> dict[str, str]:
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
        self.forms = dict[str, tuple[tuple[str, ...], bool]]()
        """A source term in each number; the target's forms for it, and whether it is a plural."""
        with expecting(f"reading {RULES_FILE}", "what translation/glossary.py lists"):
            data: dict[str, Any] = json.loads(files.get(RULES_FILE, b"{}"))
            source, target = data.get("source", {}), data.get("target", {})
            self.small = frozenset(data.get("small", "").split())
            self.joints = [(re.compile(pattern), new) for pattern, new in data.get("joints", ())]
            self.seems_plural = re.compile(target.get("seems_plural", "(?!)"))
            for plural in (False, True):  # what is written goes before what is formed
                for term, meant in terms.items():
                    both = (pluralise(meant, target), meant)
                    form = pluralise(term, source) if plural else term
                    self.forms.setdefault(form, (tuple(dict.fromkeys(both)), plural))
        self.longest = max(len(word_spans(term)) for term in self.forms)

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
    search: SentenceSearch, glossary: Glossary, segment: Segment, terms: Sequence[Term], text: str
) -> TargetText:
    """The translation of a segment, made to hold its terms as far as that can be had."""
    kit, row = search.kit, segment.ids
    answer = search.judge(row, text)
    with suppress(UsageError):  # what sees one vector of its source aligns nothing
        answer = replace_aligned(search, glossary, segment, terms, answer)
    if lacks_terms(answer.text, terms) and kit.config.get("hints"):
        hinted = segment.text
        for (_, end), forms, plural in reversed(terms):
            hinted = hinted[:end] + hint([forms[0 if plural else -1]], firm=True) + hinted[end:]
        (best,) = search.translate(kit.text_tokenizer.encode_batch([hinted]))
        answer = answer if lacks_terms(best.text, terms) else search.judge(row, best.text)
    if lacks_terms(answer.text, terms):
        must = (*search.config.must, *(term.forms[-1] for term in terms))
        wish = replace(search.config, must=tuple(dict.fromkeys(must)))
        with suppress(UsageError):  # there may be no such answer
            (held,) = type(search)(kit, wish).translate([row])
            answer = answer if lacks_terms(held.text, terms) else held
    return answer


def replace_aligned(
    search: SentenceSearch,
    glossary: Glossary,
    segment: Segment,
    terms: Sequence[Term],
    best: TargetText,
) -> TargetText:
    """A translation with terms in place of the words that are aligned with their sources."""
    text = best.text
    weights, links = align_tokens(search.kit, segment, best.tokens[:-1])
    spans, changes = word_spans(text), list[tuple[Span, tuple[str, ...]]]()
    words = [text[slice(*span)].lower() for span in spans]
    free = {n for n, w in enumerate(words) if any(map(str.isalnum, w)) and w not in glossary.small}
    for (begin, after), forms, plural in terms:
        if not free:
            break
        own = [n for n, (a, _) in enumerate(word_spans(segment.text)) if begin <= a < after]
        first = last = max(free, key=weights[:, own].sum(1).tolist().__getitem__)
        linked = free.intersection(t for s, t in links if s in own)
        while first - 1 in linked:
            first -= 1
        while last + 1 in linked:
            last += 1
        free.difference_update(range(first, last + 1))
        start, end = spans[first][0], spans[last][1]
        held = find_forms(text, forms)
        if len(held) < sum(term.forms == forms for term in terms) and not any(
            a < end and start < b for a, b in held
        ):
            if glossary.seems_plural.search(text[start:end]):
                forms = forms[:1]
            changes.append(((start, end), forms if plural else forms[-1:]))
    for span, forms in sorted(changes, reverse=True):
        answers = [search.judge(segment.ids, glossary.put(best.text, span, f)) for f in forms]
        best = max(answers, key=lambda a: a.logprob / search.beam.penalty(len(a.tokens)))
    return best
