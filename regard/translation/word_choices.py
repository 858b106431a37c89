"""Word choices: each word of a translation, and what else could stand in its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from regard.decode.alternatives import alternatives
from regard.decode.scoring import score_rows
from regard.decode.step import without_end
from regard.translation.document import Document, TargetText, gap_before
from regard.translation.results import OtherWord, WordChoice
from regard.translation.translator import Row, SentenceSearch, Translator, bans


def word_choices(
    translator: Translator, document: Document, count: int | None = None
) -> list[WordChoice]:
    """Each word of the best translation with others, and the whole text that goes on from them.

    At most `count` others, or as many as the translator is asked for alternatives.
    """
    config = translator.config
    config = config if count is None else replace(config, alternatives=count)
    search = SentenceSearch(translator.kit, config, translator.strict)
    parts = document.parts
    best = [part.translations[0].text for part in parts]
    gaps = [gap_before(document.text, parts, n) for n in range(len(parts))]
    words: list[WordChoice] = []
    for n, (segment, translations) in enumerate(parts):
        if not segment.ids:
            continue
        before = "".join(g + b for g, b in zip(gaps[:n], best[:n], strict=True)) + gaps[n]
        after = "".join(g + b for g, b in zip(gaps[n + 1 :], best[n + 1 :], strict=True))
        listed = other_words(search, segment.ids, translations[0])
        for left, word in zip(range(len(listed) - 1, -1, -1), listed, strict=True):
            others = [
                OtherWord(
                    segment.restore(o.text, o.translation.endswith(o.text)),
                    o.probability,
                    f"{before}{segment.restore(o.translation)}{after}",
                )
                for o in word.alternatives
            ]
            text = segment.restore(word.text, not left)
            words.append(WordChoice(text, word.probability, others))
    return words


@torch.no_grad()
def other_words(search: SentenceSearch, row: Row, answer: TargetText) -> list[WordChoice]:
    """Each word of a sentence's translation with as many others as there are alternatives."""
    kit, count = search.kit, search.config.alternatives
    tokens = without_end(answer.tokens, kit.stops)
    spans = token_words(kit.text, tokens)
    if not spans:
        return []
    batch, log = search.follow(row, tokens)
    at = (batch, log, tokens, [start for start, _ in spans], search.limit(row), count + 1)
    branched = alternatives(kit, *at, processes=bans(search.ban), strict=search.strict)
    begin = batch.ids[0].tolist()
    rows = [[*begin, *h.tokens] for branches in branched for h in branches]
    scored = iter(score_rows(kit.model, rows, [list(row)] * len(rows)))
    words = []
    for (start, end), branches in zip(spans, branched, strict=True):
        own = sum(float(log[n, tokens[n]]) for n in range(start, end))
        text = kit.text(tokens[:end])[len(kit.text(tokens[:start])) :].strip()
        others: dict[str, OtherWord] = {}
        for branch, logprobs in zip(branches, scored, strict=False):
            kept = without_end(branch.tokens, kit.stops)
            stop = next((b for a, b in token_words(kit.text, kept) if a == start), start)
            word = kit.text(kept[:stop])[len(kit.text(kept[:start])) :].strip()
            if word and word != text:
                logprob = sum(logprobs[len(begin) - 1 :][start:stop])
                whole = " ".join(kit.text(kept).split())
                others.setdefault(word, OtherWord(word, math.exp(logprob), whole))
        ranked = sorted(others.values(), key=lambda other: -other.probability)
        words.append(WordChoice(text, math.exp(own), ranked[:count]))
    return words


def token_words(read: Callable[[list[int]], str], tokens: list[int]) -> list[tuple[int, int]]:
    """(First token, one past the last) of each word; a blank of its own ends the one before."""
    starts, before = list[int](), " "
    for n in range(len(tokens)):
        after = read(tokens[: n + 1])
        new = after[len(before) :] if n else after
        if n == 0 or (new.strip() and (new[0].isspace() or before[-1:].isspace())):
            starts.append(n)
        before = after
    return list(zip(starts, [*starts[1:], len(tokens)], strict=False))
