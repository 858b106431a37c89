"""Alignment error rate of a translator on the pairs that were aligned by hand.

    python bench/align.py FOLDER

Each block of the decoder, the step that writes a word or the one that reads it, and several shares
for a second link; the best is what `alignment` in the folder's config.json should say.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

from regard.kit import Kit
from regard.loading import load
from regard.translation.explanation import Across, align_words, look_across
from regard.translation.word_alignment import AlignConfig, Link, alignment_error_rate, read_links

PAIRS = Path(__file__).parents[1] / "tests/translation/aligned.tsv"
Read = tuple[str, list[int], Across, set[Link], set[Link]]


def read_pair(kit: Kit, line: str) -> Read:
    """A pair that the model has read, with its links."""
    assert kit.tokenizer is not None
    source, target, notation = line.split("\t")
    tokens = kit.tokenizer.encode(target, special=False, side="target")
    across = look_across(kit, kit.tokenizer.encode(source), tokens)
    return (source, tokens, across, *read_links(source, target, notation))


def error_rate(kit: Kit, read: list[Read], how: AlignConfig) -> float:
    """Of one way to read the links."""
    found = [
        align_words(kit, source, tokens, across, how).links for source, tokens, across, _, _ in read
    ]
    return alignment_error_rate(found, [r[3] for r in read], [r[4] for r in read])


def main() -> None:
    """Print a line for each way, the best last."""
    kit = load(sys.argv[1])
    read = [read_pair(kit, line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    blocks, firms = range(len(read[0][2].patterns)), (0.3, 0.5, 0.7, 1.0)
    ways = [AlignConfig(*way) for way in product(blocks, (False, True), firms)]
    for rate, way in sorted(
        ((error_rate(kit, read, way), way) for way in ways), key=lambda pair: -pair[0]
    ):
        print(f"{rate:.3f}  {way}")


if __name__ == "__main__":
    main()
