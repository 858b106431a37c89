"""Word choices: each word of a translation, and what else could stand in its place."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from regard.decode.alternatives import alternatives
from regard.decode.scoring import score_rows
from regard.decode.step import without_end
from regard.translation.document import Document, Part, gap_before
from regard.translation.explanation import WordReading, fit_words, token_spans, word_tokens
from regard.translation.results import OtherWord, TargetWord
from regard.translation.translator import SentenceSearch, Translator, bans


def document_words(
    translator: Translator, document: Document, readings: list[WordReading], others: bool = False
) -> list[TargetWord]:
    """The words of the best translation; with others, and the whole text that goes on from them."""
    parts = document.parts
    best = [part.translations[0].text for part in parts]
    gaps = [gap_before(document.text, parts, n) for n in range(len(parts))]
    listed: list[TargetWord] = []
    for n, (part, reading) in enumerate(zip(parts, readings, strict=True)):
        words = reading.words
        if others and part.segment.ids:
            before = "".join(g + b for g, b in zip(gaps[:n], best[:n], strict=True)) + gaps[n]
            after = "".join(g + b for g, b in zip(gaps[n + 1 :], best[n + 1 :], strict=True))
            choices = other_words(translator.search, part, reading, before, after)
            both = zip(words, choices, strict=True)
            words = [replace(word, alternatives=listed) for word, listed in both]
        listed += fit_words(best[n], words)
    return listed


@torch.no_grad()
def other_words(
    search: SentenceSearch, part: Part, reading: WordReading, before: str, after: str
) -> list[list[OtherWord]]:
    """For each word of a sentence's translation as many others as there are alternatives.

    `before` and `after` are what stands around the sentence in the whole text.
    """
    kit, count, row = search.kit, search.config.alternatives, part.segment.ids
    restore = part.segment.restore
    tokens = without_end(part.translations[0].tokens, kit.stops)
    places = [start for start, end in reading.tokens if end]
    if not places:
        return [[] for _ in reading.words]
    batch, log = search.follow(row, tokens)
    at = (batch, log, tokens, places, search.limit(row), count + 1)
    branched = iter(alternatives(kit, *at, processes=bans(search.ban), strict=search.strict))
    begin = batch.ids[0].tolist()
    listed = []
    for word, (start, end) in zip(reading.words, reading.tokens, strict=True):
        others: dict[str, OtherWord] = {}
        branches = [without_end(h.tokens, kit.stops) for h in next(branched)] if end else []
        rows = [[*begin, *kept] for kept in branches]
        scored = score_rows(kit.model, rows, [list(row)] * len(rows))
        for kept, logprobs in zip(branches, scored, strict=True):
            text, spans = token_spans(kit, kept)
            inside = [
                (text[a:b], stop)
                for (a, b), (first, stop) in zip(*word_tokens(text, spans), strict=True)
                if first == start and stop
            ]
            if inside and inside[0][0] != word.text:
                other, stop = inside[0]
                probability = math.exp(sum(logprobs[len(begin) - 1 :][start:stop]))
                whole = " ".join(text.split())
                ending = restore(other, whole.endswith(other))
                translation = f"{before}{restore(whole)}{after}"
                others.setdefault(other, OtherWord(ending, probability, translation))
        listed.append(sorted(others.values(), key=lambda other: -other.probability)[:count])
    return listed
