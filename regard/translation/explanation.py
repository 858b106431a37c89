"""Explaining a translation: where each word came from, how sure it is, how rare its source is.

Which source word a target word came from is read off cross-attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from regard.data.pairs import Pair
from regard.data.word_frequencies import WORDS_FILE, Span, key, read_counts, word_spans, words
from regard.decode.step import without_end
from regard.errors import UsageError, check_names
from regard.translation.document import Document, Part
from regard.translation.results import Alternative, Explanation, SourceWord, TargetWord, share_out

if TYPE_CHECKING:
    from regard.kit import Kit
    from regard.translation.memory import Memory

RARE = 10  # a word seen less often than this was hardly learnt
MANY = 3  # pieces of a word that the vocabulary hardly knows, where no counts are at hand
Link = tuple[int, int]
"""(source word, target word)."""


@dataclass(frozen=True)
class AlignConfig:
    """How links are read off cross-attention; config.json may hold it as `alignment`."""

    block: int = -1
    """Of the decoder; its heads are averaged. Negative: from the last."""
    firm: float = 0.7
    """A source word beside the best one, with at least this share of its weight, links too."""


def align_config(config: Mapping[str, Any]) -> AlignConfig:
    """What config.json says, if anything."""
    fields = config.get("alignment", {})
    check_names(fields, AlignConfig.__dataclass_fields__, "aligning", "a field of AlignConfig")
    return AlignConfig(**fields)


def seen_in_training(kit: Kit) -> dict[str, int] | None:
    """Words and how often each was seen, where the folder says so."""
    return read_counts(kit.files[WORDS_FILE]) if WORDS_FILE in kit.files else None


def explain_document(memory: Memory, document: Document) -> list[Explanation]:
    """Each sentence of a document, by the model of a memory."""
    return [explain_part(memory, part) for part in document.parts]


def explain_part(memory: Memory, part: Part) -> Explanation:
    """One sentence: the translation is read once more with the taps open."""
    kit, counts = memory.kit, memory.counts
    segment, best = part.segment, part.translations[0]
    shares = share_out([answer.logprob for answer in part.translations])
    others = [
        Alternative(answer.text, answer.logprob, share)
        for answer, share in zip(part.translations, shares, strict=True)
    ]
    if not segment.ids:
        entry = memory.sentences.get(segment.text)
        origin = entry.origin if entry else ""
        return Explanation(segment.text, best.text, [], [], [], [], others, True, origin)
    tokens = without_end(best.tokens, kit.stops)
    across = look_across(kit, segment.ids, tokens)
    weights, links = align_words(kit, segment.text, tokens, across, align_config(kit.config))
    offsets = kit.text_tokenizer.offsets(segment.text)
    heard = [source_word(segment.text, span, offsets, counts) for span in word_spans(segment.text)]
    return Explanation(
        segment.text,
        best.text,
        heard,
        target_words(kit, tokens, across.logprobs, segment.raised),
        links,
        weights.tolist(),
        others,
        examples=[example for word in heard if word.rare for example in memory.lookup(word.text)],
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
    """Of each block, the mean of its heads at each token (tokens, source tokens)."""
    logprobs: list[float]
    """Of each token."""


def cross_taps(kit: Kit) -> list[str]:
    """Where each block looks at the source."""
    taps = [name for name in kit.taps if name.endswith(".cross.pattern")]
    if not taps:
        wrong = "a model that sees one vector of its source"
        raise UsageError("explaining a translation", wrong, "one with attention to its source")
    return taps


@torch.no_grad()
def look_across(kit: Kit, row: Sequence[int], tokens: Sequence[int]) -> Across:
    """Cross-attention and log-probabilities of a translation that is there already."""
    taps = cross_taps(kit)
    start = kit.batch([list(row)]).ids[0].tolist()
    whole = [*start, *tokens]
    batch = kit.batch([list(row)], [whole])  # alone, so that nothing depends on others
    logits, seen = kit.hooked.run(batch, taps)
    first = len(start) - 1  # the step that writes the first token
    patterns = [pattern[0].float().mean(0)[first:-1].cpu() for pattern in seen.values()]
    log = logits[0, first:].float().log_softmax(-1)
    return Across(patterns, [float(log[n, token]) for n, token in enumerate(tokens)])


def align_words(
    kit: Kit, text: str, tokens: Sequence[int], across: Across, how: AlignConfig
) -> tuple[Tensor, list[Link]]:
    """Which words of a source text became which of the tokens of its translation.

    The weights (target words, source words), and the links.
    """
    source = token_shares(kit.text_tokenizer.offsets(text), word_spans(text))
    translation, spans = token_spans(kit, tokens)
    target = token_shares(spans, word_spans(translation))
    weights = word_weights(across.patterns[how.block], target, source)
    alike = same_kind(words(text), words(translation))
    return weights, link_words(weights * alike, how.firm)


@torch.no_grad()
def align_pairs(kit: Kit, pairs: Sequence[Pair]) -> Iterator[Tensor]:
    """Of each pair, how much each target word (row) came from each source word of its kind."""
    tap, tokenizer = cross_taps(kit)[align_config(kit.config).block], kit.text_tokenizer
    rows = tokenizer.encode_batch([source for source, _ in pairs])
    written = tokenizer.encode_batch([t for _, t in pairs], special=False, side="target")
    start = kit.batch(rows[:1]).ids[0].tolist()
    batch = kit.batch(rows, [[*start, *tokens] for tokens in written])
    _, seen = kit.hooked.run(batch, tap)
    patterns = seen[tap].float().mean(1).cpu()
    for (source, target), row, tokens, pattern in zip(pairs, rows, written, patterns, strict=True):
        first = len(start) - 1  # the step that writes the first token
        places = tokenizer.offsets(target, special=False, side="target")
        yield word_weights(
            pattern[first : first + len(tokens), : len(row)],
            token_shares(places, word_spans(target)),
            token_shares(tokenizer.offsets(source), word_spans(source)),
        ) * same_kind(words(source), words(target))


def token_shares(tokens: Sequence[Span], places: Sequence[Span]) -> Tensor:
    """How much of each token lies in each word (tokens, words); one outside all words gives 0."""
    start, end = torch.tensor(tokens).view(-1, 2, 1).unbind(1)  # (tokens, 1)
    first, last = torch.tensor(places).view(-1, 2).T  # (words,)
    shares = (end.minimum(last) - start.maximum(first)).clamp(min=0).float()
    return shares / shares.sum(1, keepdim=True).clamp(min=1)


def word_weights(pattern: Tensor, target: Tensor, source: Tensor) -> Tensor:
    """Attention (T, S) between tokens as attention (target words, source words).

    `target` (T, words) and `source` (S, words) are shares of tokens. The weight of a source word is
    the sum over its tokens, that of a target word the mean over its own. What goes to no word, such
    as the end of the sentence, is left out and the rest brought to 1.
    """
    weights = (target / target.sum(0).clamp(min=1e-9)).T @ pattern @ source
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-9)


def same_kind(source: Sequence[str], target: Sequence[str]) -> Tensor:
    """1 where both are words or both are marks (target, source), else 0: a stop is no word."""
    kinds = [torch.tensor([any(map(str.isalnum, w)) for w in side]) for side in (target, source)]
    return (kinds[0][:, None] == kinds[1][None, :]).float()


def link_words(weights: Tensor, firm: float) -> list[Link]:
    """The best source word of each target word, and others nearly as good beside it."""
    if weights.numel() == 0:
        return []
    best, at = weights.max(1)
    links = []
    for t in range(len(weights)):
        for s in range(weights.shape[1]):
            near = abs(s - int(at[t])) == 1 and weights[t, s] >= firm * best[t]
            if best[t] > 0 and (s == int(at[t]) or near):
                links.append((s, t))
    return links
