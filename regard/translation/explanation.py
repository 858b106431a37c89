"""Explaining a translation: where each word came from, how sure it is, how rare its source is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.data.word_frequencies import WORDS_FILE, Span, key, read_counts, word_spans, words
from regard.decode.step import without_end
from regard.errors import UsageError
from regard.translation.document import Document, Part
from regard.translation.results import Alternative, Explanation, SourceWord, TargetWord, share_out
from regard.translation.word_alignment import (
    AlignConfig,
    Link,
    align_config,
    link_words,
    same_kind,
    token_shares,
    word_weights,
)

if TYPE_CHECKING:
    from regard.kit import Kit

RARE = 10  # a word seen less often than this was hardly learnt
MANY = 3  # pieces of a word that the vocabulary hardly knows, where no counts are at hand


def seen_in_training(kit: Kit) -> dict[str, int] | None:
    """Words and how often each was seen, where the folder says so."""
    return read_counts(kit.files[WORDS_FILE]) if WORDS_FILE in kit.files else None


def explain_document(
    kit: Kit, document: Document, counts: Mapping[str, int] | None
) -> list[Explanation]:
    """Each sentence of a document."""
    return [explain_part(kit, part, counts) for part in document.parts]


def explain_part(kit: Kit, part: Part, counts: Mapping[str, int] | None) -> Explanation:
    """One sentence: the translation is read once more with the taps open."""
    segment, best = part.segment, part.translations[0]
    shares = share_out([answer.logprob for answer in part.translations])
    others = [
        Alternative(answer.text, answer.logprob, share)
        for answer, share in zip(part.translations, shares, strict=True)
    ]
    if not segment.ids:
        return Explanation(segment.text, best.text, [], [], [], [], others, copied=True)
    tokens = without_end(best.tokens, kit.stops)
    across = look_across(kit, segment.ids, tokens)
    aligned = align_words(kit, segment.text, tokens, across, align_config(kit.config))
    offsets = kit.text_tokenizer.offsets(segment.text)
    return Explanation(
        segment.text,
        best.text,
        [source_word(segment.text, span, offsets, counts) for span in word_spans(segment.text)],
        target_words(kit, tokens, across.logprobs, segment.raised),
        aligned.links,
        aligned.weights.tolist(),
        others,
    )


def target_words(
    kit: Kit, tokens: Sequence[int], logprobs: Sequence[float], raised: bool
) -> list[TargetWord]:
    """Words of a translation; a token counts for the word that has most of it."""
    text, spans = token_spans(kit, tokens)
    places = word_spans(text)
    sums = [0.0] * len(places)
    for parts, logprob in zip(token_shares(spans, places), logprobs, strict=True):
        if places and float(parts.max()) > 0:
            sums[int(parts.argmax())] += logprob
    texts = [text[a:b].upper() if raised else text[a:b] for a, b in places]
    return [TargetWord(word, math.exp(sums[n])) for n, word in enumerate(texts)]


def source_word(
    text: str, span: Span, tokens: Sequence[Span], counts: Mapping[str, int] | None
) -> SourceWord:
    """A word with its pieces and whether it is rare."""
    inside = dict.fromkeys((max(a, span[0]), min(b, span[1])) for a, b in tokens)
    pieces = [text[a:b] for a, b in inside if a < b and text[a:b].strip()]
    word = text[slice(*span)]
    seen = None if counts is None else counts.get(key(word), 0)
    letters = any(map(str.isalpha, word))
    rare = letters and (len(pieces) >= MANY if seen is None else seen < RARE)
    return SourceWord(word, pieces, seen, rare)


def token_spans(kit: Kit, tokens: Sequence[int]) -> tuple[str, list[Span]]:
    """The text of tokens that were written, and where each stands in it."""
    texts = [kit.text(list(tokens[: n + 1])) for n in range(len(tokens))]
    ends = [len(text) for text in texts]
    spans = [(min(a, b), b) for a, b in zip([0, *ends], ends, strict=False)]
    return (texts[-1] if texts else ""), spans


class Across(NamedTuple):
    """A translation that was read once more."""

    patterns: list[Tensor]
    """Of each block, the mean of its heads (steps, source tokens): one step before each token and
    one after the last."""
    logprobs: list[float]
    """Of each token."""


@torch.no_grad()
def look_across(kit: Kit, row: Sequence[int], tokens: Sequence[int]) -> Across:
    """Cross-attention and log-probabilities of a translation that is there already."""
    if not any(name.endswith(".cross.pattern") for name in kit.taps):
        wrong = "a model that sees one vector of its source"
        raise UsageError("explaining a translation", wrong, "one with attention to its source")
    start = kit.batch([list(row)]).ids[0].tolist()
    whole = [*start, *tokens]
    batch = kit.batch([list(row)], [whole])  # alone, so that nothing depends on others
    logits, seen = kit.hooked.run(batch, "decoder.*cross.pattern")
    first = len(start) - 1  # the step that writes the first token
    patterns = [pattern[0].float().mean(0)[first:].cpu() for pattern in seen.values()]
    log = logits[0, first:].float().log_softmax(-1)
    return Across(patterns, [float(log[n, token]) for n, token in enumerate(tokens)])


class Aligned(NamedTuple):
    """A source text and its translation, word by word."""

    weights: Tensor
    """(target words, source words)."""
    links: list[Link]


def align_words(
    kit: Kit, text: str, tokens: Sequence[int], across: Across, how: AlignConfig
) -> Aligned:
    """Which words of a source text became which of the tokens of its translation."""
    assert kit.tokenizer is not None
    source = token_shares(kit.tokenizer.offsets(text), word_spans(text))
    made, spans = token_spans(kit, tokens)
    pattern = how.steps(across.patterns)
    weights = word_weights(pattern, token_shares(spans, word_spans(made)), source)
    return Aligned(weights, link_words(weights * same_kind(words(text), words(made)), how.firm))
