"""`regard shortlist`: list the words that translations need, so that a CPU scores only those."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.cli.opening import open_kit
from regard.cli.show import Progress, Show, human_bytes
from regard.cli.train_data import all_pairs
from regard.data.pairs import Pair
from regard.data.text_files import chunks, evenly
from regard.decode.shortlist import SHORTLIST_FILE, coverage, make_shortlist
from regard.errors import DataError, UsageError
from regard.files import write_whole
from regard.history.ibm1 import IBM1, Rows, TranslationTable
from regard.kit import Kit
from regard.model.config import TextConfig
from regard.tokens.tokenizer import Tokenizer
from regard.zoo import locate

DOING = "making a shortlist"
ROUNDS = 5  # of EM
LONGEST = 100  # tokens of a side; longer pairs say little of words and cost their square
HELD_OUT, MOST_HELD = 20, 2000  # one in so many pairs, at most so many, is kept to look at coverage


class Sides(NamedTuple):
    """The ids of pairs."""

    sources: list[list[int]]
    targets: list[list[int]]


def run(args: argparse.Namespace, show: Show) -> int:
    """Learn the lists, write them into the folder and say what they are worth."""
    with show.progress(DOING) as progress:
        progress(f"opening {args.path}")
        kit = open_kit(args.path, "cpu", "auto")
        sources, targets = vocabularies(kit, args.path)
        pairs = evenly(told(all_pairs(args.files), progress), args.pairs)
        learnt, held = split(encode(kit.text_tokenizer, pairs, progress), args.files)
        table = learn(learnt, sources, targets, progress)
        progress("writing the lists")
        seen = np.bincount(Rows.of(learnt.targets).ids, minlength=targets)
        made = make_shortlist(table, seen, kit.text_tokenizer, kit.stops, args.best, args.always)
        data, place = made.to_bytes(), Path(locate(args.path)) / SHORTLIST_FILE
        write_whole(place, data)
        worth = coverage(made, held.sources, held.targets)
    if show.as_json:
        sizes = {"file": str(place), "bytes": len(data), "words": targets}
        counts = {"pairs": len(learnt.sources), "held_out": len(held.sources)}
        show.result(sizes | {"always": len(made.always)} | worth._asdict() | counts)
        return 0
    show.line(f"{place}: {human_bytes(len(data))}")
    always = f"{len(made.always):,} of them always"
    show.line(f"a source has {worth.length:,.0f} of {targets:,} words on average, {always}")
    last = f"the last {len(held.sources):,} pairs, which were not learnt from"
    show.line(f"they hold {worth.share:.2%} of the target tokens of {last}")
    return 0


def vocabularies(kit: Kit, path: str) -> tuple[int, int]:
    """Source and target ids of an encoder-decoder of text."""
    front, words = kit.model.config.front, kit.model.config.head.size
    if kit.model.config.target is None or not isinstance(front, TextConfig) or words is None:
        raise UsageError(DOING, f"{path}, no translator of text", "an encoder-decoder")
    return front.vocab, words


def told(pairs: Iterator[Pair], progress: Progress) -> Iterator[Pair]:
    """Pairs that have both sides, while progress says how many there were."""
    for number, pair in enumerate(pairs):
        if number % 10_000 == 0:
            progress(f"{number:,} pairs read")
        if pair[0].strip() and pair[1].strip():
            yield pair


def encode(tokenizer: Tokenizer, pairs: list[Pair], progress: Progress) -> Sides:
    """The ids of pairs that are not too long."""
    made = Sides([], [])
    for some in chunks(pairs):
        progress(f"{len(made.sources):,} of {len(pairs):,} pairs cut into tokens")
        left = tokenizer.encode_batch([source for source, _ in some], special=False)
        right = tokenizer.encode_batch([target for _, target in some], special=False, side="target")
        for source, target in zip(left, right, strict=True):
            if 0 < len(source) <= LONGEST and 0 < len(target) <= LONGEST:
                made.sources.append(source)
                made.targets.append(target)
    return made


def split(sides: Sides, files: list[str]) -> tuple[Sides, Sides]:
    """The pairs that are learnt from, and the last ones, which show what that is worth."""
    count = len(sides.sources)
    if count < 2:
        found = f"{count} pairs of 1 to {LONGEST} tokens in {', '.join(files)}"
        raise DataError(DOING, found, "2 or more")
    first = count - max(1, min(count // HELD_OUT, MOST_HELD))
    learnt, held = (slice(first), slice(first, None))
    return (
        Sides(sides.sources[learnt], sides.targets[learnt]),
        Sides(sides.sources[held], sides.targets[held]),
    )


def learn(sides: Sides, sources: int, targets: int, progress: Progress) -> TranslationTable:
    """Which target words are translations of which source words."""
    progress(f"counting the words of {len(sides.sources):,} pairs")
    model = IBM1(Rows.of(sides.sources), Rows.of(sides.targets), sources, targets)
    for number in range(ROUNDS):
        progress(f"round {number + 1} of {ROUNDS} over {len(sides.sources):,} pairs")
        model.step()
    return model.table
