"""Words of a translation, and what else could stand in the place of each."""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.decode.alternatives import alternatives
from regard.decode.score import score_rows
from regard.decode.step import Hypothesis
from regard.decode.write import without_end
from regard.model.batch import Batch
from regard.translating import (
    Other,
    Row,
    Searcher,
    TranslateConfig,
    Translation,
    Word,
    bans,
    limits_for,
    path,
    spellings,
)


@torch.no_grad()
def other_words(
    kit: Searcher, row: Row, answer: Translation, how: TranslateConfig, strict: bool | None = None
) -> list[Word]:
    """Each word of a translation with at most `how.count` others that could stand there."""
    tokens = without_end(answer.tokens, kit.stops)
    spans = word_spans(kit.text, tokens)
    if not spans:
        return []
    batch, log = path(kit, row, tokens, strict)
    rules = bans(spellings(kit, how.ban))

    def go_on(longer: Batch, limits: list[int]) -> list[list[Hypothesis]]:
        return kit.search(longer, limits, None, None, strict, rules)

    (limit,) = limits_for(kit, [row], how.limit)
    places = [start for start, _ in spans]
    found = alternatives(log, batch, tokens, places, limit, go_on, kit.stops, how.count + 1)
    begin = batch.ids[0].tolist()
    rows = [[*begin, *h.tokens] for branches in found for h in branches]
    scored = iter(score_rows(kit.model, rows, [list(row)] * len(rows)))
    words = []
    for (start, end), branches in zip(spans, found, strict=True):
        own = sum(float(log[n, tokens[n]]) for n in range(start, end))
        text = kit.text(tokens[:end])[len(kit.text(tokens[:start])) :].strip()
        others: dict[str, Other] = {}
        for branch, logprobs in zip(branches, scored, strict=False):
            other = first_word(kit, branch.tokens, start, logprobs[len(begin) - 1 :])
            if other.text and other.text != text:
                others.setdefault(other.text, other)
        ranked = sorted(others.values(), key=lambda other: -other.logprob)
        words.append(Word(text, own, ranked[: how.count]))
    return words


def first_word(kit: Searcher, tokens: list[int], start: int, logprobs: list[float]) -> Other:
    """The word that begins at a place of a branch."""
    kept = without_end(tokens, kit.stops)
    end = next((b for a, b in word_spans(kit.text, kept) if a == start), start)
    text = kit.text(kept[:end])[len(kit.text(kept[:start])) :].strip()
    return Other(text, sum(logprobs[start:end]), " ".join(kit.text(kept).split()))


def word_spans(read: Callable[[list[int]], str], tokens: list[int]) -> list[tuple[int, int]]:
    """(first token, one past the last) of each word; a blank of its own ends the one before."""
    starts, before = list[int](), " "
    for n in range(len(tokens)):
        after = read(tokens[: n + 1])
        new = after[len(before) :] if n else after
        if n == 0 or (new.strip() and (new[0].isspace() or before[-1:].isspace())):
            starts.append(n)
        before = after
    return list(zip(starts, [*starts[1:], len(tokens)], strict=False))
