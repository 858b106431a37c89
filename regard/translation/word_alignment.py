"""Alignment: which source word a target word came from, read off cross-attention."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.word_frequencies import words
from regard.errors import UsageError, check_names

Span = tuple[int, int]
Link = tuple[int, int]
"""(source word, target word)."""


@dataclass(frozen=True)
class AlignConfig:
    """How links are read off cross-attention; config.json may hold it as `alignment`."""

    block: int = -1
    """Of the decoder; its heads are averaged. Negative: from the last."""
    reading: bool = False
    """The step that reads a word, instead of the one that writes it (Chen et al. 2020)."""
    firm: float = 0.7
    """A source word beside the best one, with at least this share of its weight, links too."""

    def steps(self, patterns: Sequence[Tensor]) -> Tensor:
        """One row for each token, of (tokens + 1, S) for each block."""
        pattern = patterns[self.block]
        return pattern[1:] if self.reading else pattern[:-1]


def align_config(config: Mapping[str, Any]) -> AlignConfig:
    """What config.json says, if anything."""
    fields = config.get("alignment", {})
    check_names(fields, AlignConfig.__dataclass_fields__, "aligning", "a field of AlignConfig")
    return AlignConfig(**fields)


def token_shares(tokens: Sequence[Span], words: Sequence[Span]) -> Tensor:
    """How much of each token lies in each word (tokens, words); one outside all words gives 0."""
    shares = torch.zeros(len(tokens), len(words))
    for n, (start, end) in enumerate(tokens):
        for m, (first, last) in enumerate(words):
            shares[n, m] = max(0, min(end, last) - max(start, first))
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


def alignment_error_rate(
    found: Iterable[Collection[Link]],
    sure: Iterable[Collection[Link]],
    possible: Iterable[Collection[Link]],
) -> float:
    """1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over all sentences (Och and Ney 2003).

    Sure links are possible too.
    """
    hits = total = 0
    for a, s, p in zip(found, sure, possible, strict=True):
        links, certain = set(a), set(s)
        hits += len(links & certain) + len(links & (set(p) | certain))
        total += len(links) + len(certain)
    if total == 0:
        raise UsageError("measuring alignments", "no links at all", "found and sure links")
    return 1 - hits / total


# Alignments by hand -----------------------------------------------------------------------------


def read_links(source: str, target: str, notation: str) -> tuple[set[Link], set[Link]]:
    """Sure and possible links as people write them: `chat=cat dort~is la/2=the`.

    `=` is sure, `~` only possible; /2 is the second time that a word stands in its sentence.
    """
    links: dict[str, set[Link]] = {"=": set(), "~": set()}
    for link in notation.split():
        kind = "=" if "=" in link else "~"
        left, _, right = link.partition(kind)
        links[kind].add((find_word(left, words(source)), find_word(right, words(target))))
    return links["="], links["~"]


def find_word(name: str, listed: Sequence[str]) -> int:
    """Where a word, or its second or third time, stands."""
    word, _, time = name.partition("/")
    places = [n for n, other in enumerate(listed) if other == word]
    number = int(time or 1)
    if number > len(places):
        raise UsageError("reading links", f"{name!r}", f"a word of: {' '.join(listed)}")
    return places[number - 1]
