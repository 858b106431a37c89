"""Byte pair encoding to look at: each merge of a small text (Sennrich et al. 2016, algorithm 1).

Short rather than quick, for a page of text at most; `train.py` is for corpora.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from regard.errors import UsageError


class Merge(NamedTuple):
    """Two pieces that became one, and how often they stood side by side."""

    left: str
    right: str
    times: int


def learn_merges(text: str, limit: int | None = None) -> tuple[list[Merge], list[list[str]]]:
    """The merges in their order, and the words of the text cut into the pieces they leave.

    Words are split at blanks and begin as characters, case kept. The most frequent pair is merged,
    the first seen in the text among equals, until none occurs twice or `limit` is reached.
    """
    if limit is not None and limit < 0:
        raise UsageError("learning merges", f"limit {limit}", "0 or more")
    merges: list[Merge] = []
    words = [list(word) for word in text.split()]
    while limit is None or len(merges) < limit:
        pairs = Counter(pair for word in words for pair in pairwise(word))  # in the order seen
        pair = max(pairs, key=lambda pair: pairs[pair], default=None)  # the first of the largest
        if pair is None or pairs[pair] < 2:
            break
        merges.append(Merge(*pair, pairs[pair]))
        words = [join(word, *pair) for word in words]
    return merges, words


def join(word: list[str], left: str, right: str) -> list[str]:
    """The word with each `left` `right` as one piece, from its start on."""
    made: list[str] = []
    at = 0
    while at < len(word):
        both = word[at : at + 2] == [left, right]
        made.append(left + right if both else word[at])
        at += 2 if both else 1
    return made


class Step(NamedTuple):
    """A word on its way to its pieces: which merge was made, and what it looks like now."""

    rank: int | None
    """The merge's place in the order in which they were learnt, from 1; None at the start."""
    pieces: list[str]


def replay_merges(word: str, ranks: dict[tuple[str, str], int]) -> list[Step]:
    """How a trained BPE cuts one word: of the pairs it knows, the one learnt first is merged."""
    steps = [Step(None, list(word))]
    while True:
        pieces = steps[-1].pieces
        known = [pair for pair in pairwise(pieces) if pair in ranks]
        if not known:
            return steps
        first = min(known, key=lambda pair: ranks[pair])
        steps.append(Step(ranks[first] + 1, join(pieces, *first)))
