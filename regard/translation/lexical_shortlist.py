"""Learning a lexical shortlist (`decode/shortlist.py`) from sentence pairs by IBM model 1."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.ambient import progress
from regard.data.pairs import Pair
from regard.data.text_files import chunks, evenly
from regard.decode.shortlist import SHORTLIST_FILE, Ids, Shortlist
from regard.errors import DataError, UsageError
from regard.files import write_whole
from regard.history.ibm1 import IBM1, Ragged
from regard.model.config import TextConfig
from regard.tokens.tokenizer import Tokenizer
from regard.train.results import LearntShortlist

if TYPE_CHECKING:
    from regard.kit import Kit

DOING = "making a shortlist"
ROUNDS = 5  # of EM
LONGEST = 100  # tokens of a side; longer pairs say little of words and cost their square
HELD_OUT, MOST_HELD = 20, 2000  # one in so many pairs, at most so many, is kept to look at coverage
LIKELY = 1e-4  # t(target | source) below which no translation is listed
OFTEN = 0.5  # expected count below which two words met by chance


def learn_shortlist(
    kit: Kit, folder: Path, pairs: Iterable[Pair], best: int, always: int, most: int
) -> LearntShortlist:
    """Write the shortlist of a translator into its folder.

    At most `most` pairs are learnt from, evenly spaced; a list has `always` frequent words and at
    most `best` translations of each source word.
    """
    front, words = kit.model.config.front, kit.model.config.head.size
    if kit.model.config.target is None or not isinstance(front, TextConfig) or words is None:
        raise UsageError(DOING, f"{folder}, no translator of text", "an encoder-decoder")
    with progress(DOING) as say:
        say("pairs")
        some = evenly((pair for pair in pairs if pair[0].strip() and pair[1].strip()), most)
        sources, targets = encode_pairs(kit.text_tokenizer, some)
        if len(sources) < 2:
            raise DataError(DOING, f"{len(sources)} pairs of 1 to {LONGEST} tokens", "2 or more")
        first = len(sources) - max(1, min(len(sources) // HELD_OUT, MOST_HELD))
        say(f"counting the words of {first:,} pairs")
        rows = Ragged.of(targets[:first])
        model = IBM1(Ragged.of(sources[:first]), rows, front.vocab, words)
        for number in range(ROUNDS):
            say(f"round {number + 1} of {ROUNDS} over {first:,} pairs")
            model.step()
        say("writing the lists")
        seen = np.bincount(rows.ids, minlength=words)
        lists = make_shortlist(model, seen, kit.text_tokenizer, kit.stops, best=best, always=always)
        data, place = lists.to_bytes(), folder / SHORTLIST_FILE
        write_whole(place, data)
        length, share = coverage(lists, sources[first:], targets[first:])
    counts = (first, len(sources) - first)
    return LearntShortlist(str(place), len(data), words, len(lists.always), length, share, *counts)


def encode_pairs(
    tokenizer: Tokenizer, pairs: Sequence[Pair]
) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of both sides of pairs that are not too long."""
    kept = list[tuple[list[int], list[int]]]()
    for some in chunks(pairs):
        left = tokenizer.encode_batch([source for source, _ in some], special=False)
        right = tokenizer.encode_batch([target for _, target in some], special=False, side="target")
        both = zip(left, right, strict=True)
        kept += [pair for pair in both if all(0 < len(side) <= LONGEST for side in pair)]
    return [source for source, _ in kept], [target for _, target in kept]


def make_shortlist(
    model: IBM1, seen: Ids, tokenizer: Tokenizer, ends: Collection[int], *, best: int, always: int
) -> Shortlist:
    """The `always` most frequent of target ids seen so often (V,), `best` more for each source id.

    A source id that the target writes as well may be copied.
    """
    allowed = np.zeros(len(seen), bool)
    allowed[np.argsort(-seen, kind="stable")[:always]] = True
    allowed &= seen > 0
    spelling = (id for id in range(tokenizer.size) if len(tokenizer.decode([id]).strip()) <= 1)
    # One character or byte each: any text can be spelt with them.
    allowed[[*spelling, *tokenizer.specials.values(), *ends]] = True
    sources = len(model.bounds) - 2  # the last row is NULL's
    same = tokenizer.pieces(range(tokenizer.size), "source")
    target = tokenizer.pieces(range(tokenizer.size), "target")
    lists = list[list[int]]()
    for source in range(sources):
        ids, t, count = model.row(source)
        good = (t >= LIKELY) & (count >= OFTEN) & ~allowed[ids]
        ids, t = ids[good], t[good]
        ids = ids[np.argsort(-t, kind="stable")[:best]]
        own = source < tokenizer.size and same[source] == target[source]
        if own and seen[source] and not allowed[source]:
            ids = np.append(ids, source)
        lists.append(sorted(ids.tolist()))
    flat = Ragged.of(lists)
    return Shortlist(np.flatnonzero(allowed), flat.ids, flat.bounds, len(seen))


def coverage(
    shortlist: Shortlist, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> tuple[float, float]:
    """How long the lists of sources are on average, and the share of the targets they hold."""
    length = held = total = 0
    for source, target in zip(sources, targets, strict=True):
        listed = shortlist.choose(torch.tensor([source], dtype=torch.long)).words()[0].numpy()
        length += len(listed)
        held += int(np.isin(target, listed).sum())
        total += len(target)
    return length / len(sources), held / total
