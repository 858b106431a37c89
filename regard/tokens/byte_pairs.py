"""Byte pair encoding to look at: each merge of a small text, and why a word was cut as it was.

Short rather than quick, for a page of text at most (Sennrich et al. 2016, algorithm 1);
`trainers.py` is for corpora.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from regard.errors import UsageError
from regard.tokens.results import Cut, Merge
from regard.tokens.tokenizer import RustEngine, Tokenizer

Spell = Callable[[str], str]
"""A piece as it is shown."""


def learn_merges(text: str, top: int | None = None) -> tuple[list[Merge], list[list[str]]]:
    """The merges in their order, and the words of the text cut into the pieces they leave.

    Words are split at blanks and begin as characters, case kept. The most frequent pair is merged,
    the first seen in the text among equals, until none occurs twice or there are `top`.
    """
    merges: list[Merge] = []
    words = [list(word) for word in text.split()]
    while top is None or len(merges) < top:
        pairs = Counter(pair for word in words for pair in pairwise(word))  # in the order seen
        pair = max(pairs, key=lambda pair: pairs[pair], default=None)  # the first of the largest
        if pair is None or pairs[pair] < 2:
            break
        merges.append(Merge(pair, pairs[pair]))
        words = [join(word, *pair) for word in words]
    return merges, words


def join(word: list[str], left: str, right: str) -> list[str]:
    """The word with each `left` `right` as one piece, from its start on."""
    joined: list[str] = []
    at = 0
    while at < len(word):
        both = word[at : at + 2] == [left, right]
        joined.append(left + right if both else word[at])
        at += 2 if both else 1
    return joined


def replay_merges(word: str, ranks: dict[tuple[str, ...], int], show: Spell) -> Iterator[str]:
    """How a trained BPE cuts one word, a line for each step.

    Of the pairs it knows the one learnt first is merged; a line ends with its place in that order.
    """
    pieces, merge = list(word), ""
    while True:
        yield " ".join(map(show, pieces)) + merge
        known = [pair for pair in pairwise(pieces) if pair in ranks]
        if not known:
            return
        first = min(known, key=lambda pair: ranks[pair])
        pieces, merge = join(pieces, *first), f"  (merge {ranks[first] + 1:,})"


def explain_text(tokenizer: Tokenizer, text: str) -> list[Cut]:
    """Each word of the text with its pieces and the reason for them."""
    engine = tokenizer.engine
    if not isinstance(engine, RustEngine):
        problem = "a SentencePiece tokenizer"
        raise UsageError("explaining a tokenizer", problem, "one with a tokenizer.json")
    rust = engine.literal
    model = json.loads(engine.rust.to_str())["model"]
    pairs = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model.get("merges", [])]
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    if rust.normalizer is not None:
        text = rust.normalizer.normalize_str(text)
    cut = rust.pre_tokenizer
    words = [word for word, _ in cut.pre_tokenize_str(text)] if cut else [text] if text else []
    return [explain_word(tokenizer, word, model, ranks) for word in words]


def explain_word(
    tokenizer: Tokenizer, word: str, model: dict[str, object], ranks: dict[tuple[str, ...], int]
) -> Cut:
    """One word, which the pre-tokenizer has cut off."""
    assert isinstance(tokenizer.engine, RustEngine)
    show = tokenizer.readable
    ids = [token.id for token in tokenizer.engine.literal.model.tokenize(word)]
    pieces = [tokenizer.engine.rust.id_to_token(id) or "" for id in ids]  # as spelt elsewhere
    if pieces == [word]:
        steps = ["the vocabulary has it whole"]
    elif pieces == [model.get("unk_token")]:
        steps = ["the vocabulary has neither it nor pieces that make it up"]
    elif model["type"] == "BPE" and ranks:
        steps = [*replay_merges(word, ranks, show), "no merge joins any two of these"]
    elif model["type"] == "WordPiece":
        steps = [f"{piece}: the longest piece that fits here" for piece in pieces]
    else:
        steps = ["not in the vocabulary, so written in smaller pieces"]
    return Cut(show(word), list(map(show, pieces)), steps)
