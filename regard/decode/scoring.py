"""Scoring: log-probabilities of tokens that are there already, and of words for gaps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from os.path import commonprefix
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from regard.ambient import track
from regard.data.statistics import check_finite
from regard.decode.prompt import encode_gaps
from regard.decode.results import FilledGaps, GapWord, TokenScores
from regard.errors import DataError, UsageError
from regard.model.batch import Batch, check_batch, check_ids, like_lengths, pad_rows
from regard.model.model import Model
from regard.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.history.ngram_model import NgramModel
    from regard.kit import Kit

Row = Sequence[int]
Counted = tuple[int, list[float]]
TOKENS = 1024  # of texts that are scored together, padding included


@torch.no_grad()
def score_rows(
    model: Model, rows: Sequence[Row], sources: Sequence[Row] | None = None
) -> list[list[float]]:
    """For each row, the log-probability of its second id and of all after it.

    An encoder-decoder has `sources`; its rows begin with the start id.
    """
    kept = [n for n, row in enumerate(rows) if len(row) > 1]  # the others have nothing to predict
    found: list[list[float]] = [[] for _ in rows]
    if not kept:
        return found
    before, mask = pad_rows([rows[n][:-1] for n in kept])
    after, _ = pad_rows([rows[n][1:] for n in kept])
    batch = Batch(before, mask=mask)
    if sources is not None:
        inputs, source_mask = pad_rows([sources[n] for n in kept])
        batch = Batch(inputs, before, mask=mask, source_mask=source_mask)
    check_batch(batch, model.config)
    log: Tensor = model(batch.to(model.device)).float().log_softmax(-1)
    scored = log.gather(-1, after[:, :, None].to(log.device))[:, :, 0]
    for n, line in zip(kept, scored, strict=True):
        found[n] = line[: len(rows[n]) - 1].tolist()
    return found


@torch.no_grad()
def score_endings(
    model: Model, rows: Sequence[list[int]], begins: Sequence[int]
) -> list[list[float]]:
    """For each row, the log-probabilities of its ids from its `begin` (1 or more) on.

    What all rows begin with, such as the examples of a prompt, is read once.
    """
    shared = min(len(commonprefix(rows)), min(begins) - 1) if model.stacks else 0
    scores: list[list[float]] = [[] for _ in rows]
    prefix = model.cache(1, max(map(len, rows))) if shared else None
    if prefix is not None:
        model.hidden(Batch(torch.tensor([rows[0][:shared]])).to(model.device), prefix)
    lengths = [len(row) - shared + shared // 8 for row in rows]  # keys of what is shared: a copy
    for some in track(list(like_lengths(lengths, TOKENS)), "batches of texts"):
        ids, mask = pad_rows([rows[n][shared:-1] for n in some])
        batch, cache = Batch(ids, mask=mask), None
        check_batch(batch, model.config)
        if prefix is not None:
            cache = prefix.copy()
            cache.select(torch.zeros(len(some), dtype=torch.long, device=model.device))
        x = model.hidden(batch.to(model.device), cache)
        for n, vectors in zip(some, x, strict=True):
            wanted = torch.tensor(rows[n][begins[n] :], device=model.device)
            last = len(rows[n]) - shared - 1
            log = model.score(vectors[None, last - len(wanted) : last]).float().log_softmax(-1)
            scores[n] = log[0].gather(-1, wanted[:, None])[:, 0].tolist()
    return scores


@torch.no_grad()
def score_masked(model: Model, row: Row, mask: int, never: Iterable[int]) -> list[float | None]:
    """Log-probability of each id where it alone is hidden (Salazar 2020); None for `never` ones."""
    skipped = set(never)
    places = [n for n, id in enumerate(row) if id not in skipped]
    found: list[float | None] = [None] * len(row)
    for first in range(0, len(places), 32):
        some = places[first : first + 32]
        ids = torch.tensor(row).repeat(len(some), 1)
        ids[range(len(some)), some] = mask
        batch = Batch(ids)
        check_batch(batch, model.config)
        log = model(batch.to(model.device)).float().log_softmax(-1)
        for n, place in enumerate(some):
            found[place] = float(log[n, place, row[place]])
    return found


def windows(ids: Iterable[int], length: int, stride: int) -> Iterator[tuple[list[int], int]]:
    """Cut a stream into windows of at most `length` + 1 ids: (window, how many of its ends count).

    Every id but the first of the stream counts once; windows begin `stride` ids apart, so all ids
    after the first window have at least `length` − `stride` ids before them.
    """
    if length < 1 or not 1 <= stride <= length:
        wrong = f"windows of {length}, {stride} apart"
        raise UsageError("cutting windows", wrong, "a stride of 1 to the length")
    held: list[int] = []
    new = -1  # the first id is context only
    for id in ids:
        held.append(id)
        new += 1
        if len(held) == length + 1:
            yield held, new
            held, new = held[stride:], 0
    if new > 0:
        yield held, new


@torch.no_grad()
def stream_logprobs(model: Model, parts: Iterable[tuple[list[int], int]]) -> Iterator[Counted]:
    """As `window_logprobs`, of windows that follow each other, by a model that keeps its state.

    Each id has all ids before it as its context, however short the windows are.
    """
    past, before = model.carry(1), 0
    for window, count in parts:
        ids = torch.tensor([window])
        check_ids(ids, model.config.front, "input")
        log = model(Batch(ids[:, :-1]).to(model.device), past).float().log_softmax(-1)
        logprobs = log.gather(-1, ids[:, 1:, None].to(log.device))[0, :, 0].tolist()
        yield before + 1, logprobs
        before += count


def window_logprobs(
    model: Model, parts: Iterable[tuple[list[int], int]], rows: int = 8
) -> Iterator[Counted]:
    """Of each window how many ids stand before those that count, and their log-probabilities.

    `rows` windows run together.
    """
    left = iter(parts)
    while group := list(islice(left, rows)):
        scored = score_rows(model, [window for window, _ in group])
        for line, (_, count) in zip(scored, group, strict=True):
            yield len(line) - count + 1, line[-count:]


# Texts ------------------------------------------------------------------------------------------


def score_text(kit: Kit, text: str, number: int = 1) -> TokenScores:
    """By a decoder from left to right, by an encoder token by token hidden.

    An encoder-decoder scores the target of source TAB target. `number` is the text's among many.
    """
    model, tokenizer = kit.model, kit.text_tokenizer
    if model.encoder is not None and model.decoder is not None:
        source, tab, target = text.partition("\t")
        if not tab or "\t" in target:
            wrong = f"{text.count(chr(9))} TABs in text {number}"
            raise DataError("scoring by an encoder-decoder", wrong, "source TAB target")
        ids, row = tokenizer.encode(target, side="target"), tokenizer.encode(source)
        begun = [*kit.batch([row]).ids[0].tolist(), *ids]
        return describe_scores(tokenizer, text, ids, score_rows(model, [begun], [row])[0])
    ids = tokenizer.encode(text)
    kit.warn_long(len(ids))
    if kit.room is not None and len(ids) > kit.room:
        wrong = f"{len(ids):,} tokens in text {number}"
        any_length = "`regard evaluate lm` takes any length"
        fix = any_length if model.decoder is not None else "shorter texts"
        raise DataError("scoring", wrong, f"at most {kit.room:,}", fix)
    if model.decoder is not None:
        return describe_scores(
            tokenizer, text, ids, [None, *score_rows(model, [ids])[0]] if ids else []
        )
    mask = tokenizer.specials.get("mask")
    if mask is None or model.config.head.take != "all":
        raise UsageError("scoring", "an encoder that predicts no words", "a language model")
    masked = score_masked(model, ids, mask, tokenizer.specials.values())
    return describe_scores(tokenizer, text, ids, masked)


def score_by_ngrams(model: NgramModel, text: str) -> TokenScores:
    """By n-grams; the beginning of a sentence is never predicted."""
    ids = model.tokenizer.encode(text, special=model.lines)
    logprobs = model.tables.logprobs(np.array(ids, np.int64)).tolist()
    known = [None if math.isnan(value) else value for value in logprobs]
    return describe_scores(model.tokenizer, text, ids, known)


def describe_scores(
    tokenizer: Tokenizer, text: str, ids: list[int], logprobs: Sequence[float | None]
) -> TokenScores:
    """Tokens and their log-probabilities as a result."""
    check_finite("scoring", (value for value in logprobs if value is not None))
    return TokenScores(ids, tokenizer.pieces(ids), list(logprobs), text)


def fill_gaps(kit: Kit, text: str, mask: int, top: int) -> FilledGaps:
    """For each gap of a text, its `top` likeliest words, best first."""
    tokenizer = kit.text_tokenizer
    ids = encode_gaps(tokenizer, text, mask)
    scores = kit.logits([ids])[0]
    gaps = []
    for place in (n for n, id in enumerate(ids) if id == mask):
        likely = scores[place].float().softmax(-1)[: tokenizer.size]
        best = likely.topk(min(top, len(likely)))
        likeliest = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        texts = [(tokenizer.decode([id]).strip(), id, p) for id, p in likeliest]
        gaps.append([GapWord(text or tokenizer.pieces([id])[0], id, p) for text, id, p in texts])
    return FilledGaps(text, gaps)
