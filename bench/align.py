"""Alignment error rate of a translator on the pairs that were aligned by hand.

    python bench/align.py FOLDER

Each block of the decoder and several shares for a second link; the best is what `alignment` in the
folder's config.json should say.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from regard.data.word_frequencies import words
from regard.errors import UsageError
from regard.kit import Kit
from regard.loading import load
from regard.translation.explanation import (
    AlignConfig,
    Link,
    align_words,
    look_across,
    token_spans,
)

PAIRS = Path(__file__).parents[1] / "tests/translation/aligned.tsv"
Read = tuple[tuple[Any, ...], list[Any], set[Link], set[Link]]


def read_pair(kit: Kit, line: str) -> Read:
    """A pair that the model has read, with its links."""
    assert kit.tokenizer is not None
    source, target, notation = line.split("\t")
    tokens = kit.tokenizer.encode(target, special=False, side="target")
    (patterns,) = look_across(kit, [kit.tokenizer.encode(source)], [tokens])
    texts = (source, kit.tokenizer.offsets(source), *token_spans(kit, tokens))
    return (texts, patterns, *read_links(source, target, notation))


def error_rate(read: list[Read], how: AlignConfig) -> float:
    """Of one way to read the links."""
    found = [
        align_words(*texts, patterns[how.block], how.firm)[1] for texts, patterns, _, _ in read
    ]
    return alignment_error_rate(found, [r[2] for r in read], [r[3] for r in read])


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


def main() -> None:
    """Print a line for each way, the best last."""
    kit = load(sys.argv[1])
    read = [read_pair(kit, line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    blocks, firms = range(len(read[0][2].patterns)), (0.3, 0.5, 0.7, 1.0)
    ways = [AlignConfig(*way) for way in product(blocks, firms)]
    for rate, way in sorted(
        ((error_rate(read, way), way) for way in ways), key=lambda pair: -pair[0]
    ):
        print(f"{rate:.3f}  {way}")


if __name__ == "__main__":
    main()
