"""Explaining a translation: where each word came from, how sure it is, how rare its source is.

Which source word a target word came from is read off cross-attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.pairs import Pair
from regard.data.word_frequencies import WORDS_FILE, Span, WordCounts, key, word_spans, words
from regard.decode.step import without_end
from regard.errors import UsageError, check_names
from regard.model.model import Memory
from regard.translation.document import Part, Segment
from regard.translation.results import (
    Alternative,
    DictionaryEntry,
    Explanation,
    SourceWord,
    TargetWord,
)
from regard.translation.word_confidence import DoubtConfig, doubt_features, word_confidence

if TYPE_CHECKING:
    from regard.kit import Kit
    from regard.translation.translator import Translator

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


def seen_in_training(kit: Kit) -> WordCounts | None:
    """How often each word was seen, where the folder says so."""
    return WordCounts(kit.files[WORDS_FILE]) if WORDS_FILE in kit.files else None


def explain_part(translator: Translator, part: Part, reading: WordReading) -> Explanation:
    """One sentence whose words were read."""
    kit, memory, counts = translator.kit, translator.memory, translator.memory.counts
    segment, best = part.segment, part.translations[0]
    others = [Alternative(answer.text, answer.logprob) for answer in part.translations]
    if not segment.ids:
        entry = memory.sentences.get(segment.text)
        origin = entry.origin if entry else ""
        return Explanation(segment.text, best.text, [], [], [], [], others, True, origin)
    attention_of([best.attention])  # or there is nothing to explain
    offsets = kit.text_tokenizer.offsets(segment.text)
    heard = [source_word(segment.text, span, offsets, counts) for span in word_spans(segment.text)]
    return Explanation(
        segment.text,
        best.text,
        heard,
        [replace(w, text=w.text.upper()) if segment.raised else w for w in reading.words],
        reading.links,
        reading.weights.tolist(),
        others,
        examples=[example for word in heard if word.rare for example in memory.lookup(word.text)],
        entries=[
            DictionaryEntry(
                " ".join(word.text for word in heard[entry.first : entry.last + 1]),
                entry.headword,
                entry.translations,
            )
            for entry in translator.entries(segment.text)
        ],
    )


class WordReading(NamedTuple):
    """The words of a sentence's translation, and what they came from."""

    words: list[TargetWord]
    weights: Tensor
    """(target words, source words); rows sum to 1."""
    links: list[Link]
    tokens: list[tuple[int, int]]
    """Those of each word, as `word_tokens` says."""
    features: list[list[float]]
    """What the confidence of each word is computed from."""


def read_words(kit: Kit, part: Part, doubt: DoubtConfig | None = None) -> WordReading:
    """The words of a part's best translation, by what its search noted; a copied part is sure."""
    segment, best = part.segment, part.translations[0]
    if not segment.ids:
        copied = [TargetWord(word, 1.0, [word]) for word in words(best.text)]
        return WordReading(copied, torch.eye(len(copied)), [], [(0, 0)] * len(copied), [])
    tokens = without_end(best.tokens, kit.stops)
    text, spans = token_spans(kit, tokens)
    (places, ranges), sources = word_tokens(text, spans), words(segment.text)
    weights, links = torch.zeros(len(places), len(sources)), list[Link]()
    if best.attention is not None:
        weights, links = align_tokens(kit, segment, tokens, best.attention)
    logprobs = [sum(best.logprobs[a:b]) for a, b in ranges]
    mean = -sum(best.logprobs) / max(1, len(best.logprobs))
    features = doubt_features(logprobs, mean, weights.tolist(), links)
    sure = word_confidence(features, doubt) if doubt else [math.exp(log) for log in logprobs]
    written = [
        TargetWord(text[a:b], sure[n], [sources[s] for s, t in links if t == n])
        for n, (a, b) in enumerate(places)
    ]
    return WordReading(written, weights, links, ranges, features)


def word_tokens(text: str, spans: Sequence[Span]) -> tuple[list[Span], list[tuple[int, int]]]:
    """Where words stand in a text, and the first token of each and one past its last.

    A token counts for the word that has most of it. A word without any has (0, 0).
    """
    places = word_spans(text)
    tokens = [(0, 0)] * len(places)
    for t, shares in enumerate(token_shares(spans, places).tolist()):
        if any(shares):
            n = shares.index(max(shares))
            tokens[n] = (tokens[n][0] if tokens[n][1] else t, t + 1)
    return places, tokens


def fit_words(text: str, read: Sequence[TargetWord]) -> list[TargetWord]:
    """Words that were read as a text has them: in capitals, without a stop, with other numbers."""
    written, fitted = words(text), list[TargetWord]()
    old, new = ([word.casefold() for word in side] for side in ([w.text for w in read], written))
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for n in range(c, d):
            own = [read[a + n - c]] if tag == "equal" else [*read[a:b]]
            aligned = dict.fromkeys(source for word in own for source in word.aligned)
            least = min((word.confidence for word in own), default=1.0)
            others = own[0].alternatives if len(own) == 1 else None
            fitted.append(TargetWord(written[n], least, [*aligned], others))
    return fitted


def source_word(
    text: str, span: Span, tokens: Sequence[Span], counts: Mapping[str, int] | None
) -> SourceWord:
    """A word with its pieces and whether it is rare."""
    inside = dict.fromkeys((max(a, span[0]), min(b, span[1])) for a, b in tokens)
    pieces = [text[a:b] for a, b in inside if a < b and text[a:b].strip()]
    word = text[slice(*span)]
    seen = None if counts is None else counts.get(key(word), 0)
    rare = any(map(str.isalpha, word)) and (len(pieces) >= MANY if seen is None else seen < RARE)
    return SourceWord(word, pieces, seen, rare)


def token_spans(kit: Kit, tokens: Sequence[int]) -> tuple[str, list[Span]]:
    """The text of tokens that were written, and where each stands in it."""
    whole, texts = kit.decode_text(list(tokens)), [*map(kit.token_text, tokens)]
    blank = len("".join(texts)) - len("".join(texts).lstrip())
    ends = [max(0, end - blank) for end in accumulate(map(len, texts))]
    if "".join(texts)[blank:] != whole:  # bytes of letters, blanks that are lost
        ends = [len(kit.decode_text(list(tokens[: n + 1]))) for n in range(len(tokens))]
    return whole, [(min(a, b), b) for a, b in zip([0, *ends], ends, strict=False)]


def attention_of(patterns: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32]:
    """The attention that was looked up; an error where the model has none."""
    if patterns and patterns[0] is not None:
        return patterns[0]
    wrong = "a model that sees one vector of its source"
    raise UsageError("explaining a translation", wrong, "one with attention to its source")


@torch.no_grad()
def look_across(
    kit: Kit,
    rows: Sequence[Sequence[int]],
    written: Sequence[Sequence[int]],
    memory: Memory | None = None,
    block: int | None = None,
) -> list[list[NDArray[np.float32]]]:
    """Cross-attention of translations (tokens) that are there already, each of its source (row).

    For each of them the mean over heads at each token (tokens, source tokens), of one block or all;
    none where the model sees one vector of its source. `memory` is what the encoder made of rows.
    """
    names = [name for name in kit.taps if name.endswith(".cross.pattern")]
    names = names if block is None else names[block:][:1]
    if not names:
        return [[] for _ in rows]
    start = kit.batch([list(rows[0])]).ids[0].tolist()
    batch = kit.batch([list(row) for row in rows], [[*start, *tokens] for tokens in written])
    with kit.hooked.reading(names) as hooks:
        if memory is None:
            kit.model.hidden(batch)
        else:
            kit.model.decode(batch, memory)
        seen = [hook.seen for hook in hooks.values() if hook.seen is not None]  # (B, H, T, S)
    patterns = [pattern.float().mean(1).cpu().numpy() for pattern in seen]
    first = len(start) - 1  # the step that writes the first token
    return [
        [pattern[n, first : first + len(tokens), : len(row)].copy() for pattern in patterns]
        for n, (row, tokens) in enumerate(zip(rows, written, strict=True))
    ]


def align_tokens(
    kit: Kit, segment: Segment, tokens: Sequence[int], pattern: NDArray[np.float32] | None = None
) -> tuple[Tensor, list[Link]]:
    """`align_words` of a segment and the tokens of its translation; looked up without a pattern."""
    offsets, how = segment.offsets(kit.text_tokenizer), align_config(kit.config)
    if pattern is None:
        (patterns,) = look_across(kit, [segment.ids], [tokens], None, how.block)
        pattern = attention_of(patterns)
    return align_words(segment.text, offsets, *token_spans(kit, tokens), pattern, how.firm)


def align_words(
    source: str,
    offsets: Sequence[Span],
    target: str,
    spans: Sequence[Span],
    pattern: NDArray[np.float32],
    firm: float,
) -> tuple[Tensor, list[Link]]:
    """Which words of a source text became which of its translation.

    `offsets` and `spans` are where their tokens stand, `pattern` (tokens, source tokens) is a
    block's attention. The weights (target words, source words), and the links.
    """
    read = token_shares(offsets, word_spans(source))
    weights = word_weights(torch.from_numpy(pattern), token_shares(spans, word_spans(target)), read)
    return weights, link_words(weights * same_kind(words(source), words(target)), firm)


def align_pairs(kit: Kit, pairs: Sequence[Pair]) -> Iterator[Tensor]:
    """Of each pair, how much each target word (row) came from each source word of its kind."""
    tokenizer, block = kit.text_tokenizer, align_config(kit.config).block
    rows = tokenizer.encode_batch([source for source, _ in pairs])
    written = tokenizer.encode_batch([t for _, t in pairs], special=False, side="target")
    seen = look_across(kit, rows, written, None, block)
    for (source, target), patterns in zip(pairs, seen, strict=True):
        places = tokenizer.offsets(target, special=False, side="target")
        both = (source, tokenizer.offsets(source), target, places)
        weights, _ = align_words(*both, attention_of(patterns), 1.0)
        yield weights * same_kind(words(source), words(target))


def token_shares(tokens: Sequence[Span], places: Sequence[Span]) -> Tensor:
    """How much of each token lies in each word (tokens, words); one outside all words gives 0."""
    start, end = torch.tensor(tokens).view(-1, 2, 1).unbind(1)  # (tokens, 1)
    first, last = torch.tensor(places).view(-1, 2).unbind(1)  # (words,)
    shares = (torch.minimum(end, last) - torch.maximum(start, first)).clamp(min=0)
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
    links = []
    for t, row in enumerate(weights.tolist()):
        best = max(row)
        at = row.index(best)
        for s in range(max(0, at - 1), min(len(row), at + 2)):
            if best > 0 and (s == at or row[s] >= firm * best):
                links.append((s, t))
    return links
