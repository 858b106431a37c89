"""Score: log-probabilities of tokens that are there already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.model.batch import Batch, check_batch, check_ids, pad_rows
from regard.model.model import Model

Row = Sequence[int]


@torch.no_grad()
def next_logprobs(model: Model, batch: Batch, after: Tensor) -> Tensor:
    """Log-probability of each id of `after` (B, T) where `batch.ids` (B, T) stand before it."""
    check_batch(batch, model.config)
    log: Tensor = model(batch.to(model.device)).float().log_softmax(-1)
    return log.gather(-1, after[:, :, None].to(log.device))[:, :, 0]


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
    for n, line in zip(kept, next_logprobs(model, batch, after), strict=True):
        found[n] = line[: len(rows[n]) - 1].tolist()
    return found


@torch.no_grad()
def score_masked(
    model: Model,
    row: Row,
    mask: int,
    never: Iterable[int] = (),
    only: Iterable[int] | None = None,
) -> list[float | None]:
    """Log-probability of each id where it alone is hidden (Salazar 2020).

    None for ids that are `never` hidden, and at other places than `only` these.
    """
    skipped, wanted = set(never), set(range(len(row)) if only is None else only)
    places = [n for n, id in enumerate(row) if id not in skipped and n in wanted]
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
        found = f"windows of {length}, {stride} apart"
        raise UsageError("cutting windows", found, "a stride of 1 to the length")
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
def stream_logprobs(
    model: Model, parts: Iterable[tuple[list[int], int]]
) -> Iterator[list[Counted]]:
    """Log-probabilities of windows that follow each other, by a model that keeps its state.

    Each id has all ids before it as its context, however short the windows are.
    """
    past, before = model.carry(1), 0
    for window, count in parts:
        ids = torch.tensor([window])
        check_ids(ids, model.config.front, "input")
        log = model(Batch(ids[:, :-1]).to(model.device), past).float().log_softmax(-1)
        found = log.gather(-1, ids[:, 1:, None].to(log.device))[0, :, 0].tolist()
        yield [Counted(before + 1, found)]
        before += count


class Counted(NamedTuple):
    """The ids of a window that count."""

    before: int
    """Ids of the window that stand before the first of them."""
    logprobs: list[float]


def window_logprobs(
    model: Model, parts: Iterable[tuple[list[int], int]], rows: int = 8
) -> Iterator[list[Counted]]:
    """Log-probabilities of the ids that count, for each batch of `rows` windows."""
    left = iter(parts)
    while group := list(islice(left, rows)):
        found = score_rows(model, [window for window, _ in group])
        counts = [count for _, count in group]
        yield [
            Counted(len(line) - count + 1, line[-count:])
            for line, count in zip(found, counts, strict=True)
        ]
