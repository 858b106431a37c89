"""Vectors of words: what a tap holds at the token that stands for each word of a sentence."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import UsageError
from regard.look.capture import Board
from regard.look.edit import POSITION
from regard.look.names import resolve
from regard.model.batch import Batch, like_lengths
from regard.tokens.tokenizer import Span, Tokenizer

Take = Literal["last", "first", "all"]
MakeBatch = Callable[[Sequence[Sequence[int]]], Batch]
"""Rows of ids → what the model reads, padded on the right."""
TOKENS = 1024  # of a batch, padding included


class Read(NamedTuple):
    """A sentence as the model reads it."""

    ids: list[int]
    words: list[int]
    """Words that have a token; one with several that all stand for it, as often."""
    columns: list[int]
    """The token that stands for each of them."""


def read_words(tokenizer: Tokenizer, text: str, spans: Sequence[Span], take: Take = "last") -> Read:
    """Ids of a text, and of each word (a span of characters) its first, last, or every token."""
    tokens = tokenizer.offsets(text)
    real = [at for at, (first, last) in enumerate(tokens) if first < last]  # in the text's order
    firsts, lasts = [tokens[at][0] for at in real], [tokens[at][1] for at in real]
    words, columns = list[int](), list[int]()
    for n, (start, end) in enumerate(spans):
        own = real[bisect_right(lasts, start) : bisect_left(firsts, end)]
        own = {"last": own[-1:], "first": own[:1], "all": own}[take]
        words += [n] * len(own)
        columns += own
    return Read(tokenizer.encode(text), words, columns)


def word_taps(board: Board, patterns: str | Sequence[str] = ()) -> list[str]:
    """The taps that patterns name; without any, the embeddings and the stream after each block.

    In a recurrent model the states of each layer stand for blocks. An encoder-decoder reads by its
    encoder.
    """
    reading = board.model.encoder is not None and board.model.decoder is not None
    usual = [
        name
        for name in board.taps
        if name.rpartition(".")[2] in ("embed", "resid_post", "state")
        and ".back." not in name
        and (name.startswith("encoder.") or not reading)
    ]
    chosen = resolve(patterns, board.taps) if patterns else usual
    for name in chosen:
        if name.rpartition(".")[2] in POSITION or name == "logits":
            why = "holds no vector for each token"
        elif reading and not name.startswith("encoder."):
            why = "belongs to what the model writes, not to the sentence that it reads"
        elif ".back." in name:
            why = "is read from the end of a sentence to its beginning"
        else:
            continue
        expected = "taps such as blocks.*.resid_post" if not reading else "taps of the encoder"
        raise UsageError("reading vectors of words", f"{name} {why}", expected)
    return chosen


@torch.no_grad()
def word_vectors(
    board: Board,
    make: MakeBatch,
    rows: Sequence[Read],
    taps: Sequence[str],
    tell: Callable[[int], None] = lambda done: None,
) -> dict[str, Tensor]:
    """For each tap the vectors (N, D) of all words that have a token, row by row, on the CPU."""
    starts = [0, *accumulate(len(row.columns) for row in rows)]
    found: dict[str, Tensor] = {}
    done = 0
    for some in like_lengths([len(row.ids) for row in rows], TOKENS):
        batch = make([rows[n].ids for n in some])
        at = [(k, column) for k, n in enumerate(some) for column in rows[n].columns]
        line, column = torch.tensor(at, dtype=torch.long).view(-1, 2).T
        into = [place for n in some for place in range(starts[n], starts[n + 1])]
        with board.reading(taps) as stations:
            board.model.hidden(batch)
            for name, station in stations.items():
                assert station.seen is not None
                seen = station.seen.flatten(2)  # (B, T, D), heads side by side
                x = seen[line.to(seen.device), column.to(seen.device)].float().cpu()
                found.setdefault(name, x.new_empty(starts[-1], x.shape[1]))[into] = x
        done += len(some)
        tell(done)
    return found


def by_row(x: Tensor, rows: Sequence[Read]) -> list[Tensor]:
    """Vectors (N, D) of all words → those of each row."""
    bounds = [0, *accumulate(len(row.columns) for row in rows)]
    return [x[start:end] for start, end in pairwise(bounds)]


def mean_by(x: Tensor, group: Sequence[int]) -> Tensor:
    """Rows (N, D) of groups numbered from 0 → the mean of each group (G, D)."""
    index = torch.tensor(group, dtype=torch.long, device=x.device)
    sums = x.new_zeros(max(group, default=-1) + 1, x.shape[1]).index_add_(0, index, x)
    return sums / index.bincount()[:, None]


def sense_cosines(x: Tensor, sense: Sequence[int]) -> Tensor:
    """Mean cosine (N, senses) of each vector with all others of each sense; NaN without others."""
    unit = F.normalize(x.double(), dim=1)
    own = F.one_hot(torch.tensor(sense, device=x.device)).double()  # (N, senses)
    total = unit @ (own.T @ unit).T - own * unit.square().sum(1, keepdim=True)  # not with itself
    count = own.sum(0) - own
    return torch.where(count > 0, total / count, torch.nan)
