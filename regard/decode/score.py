"""Score: log-probabilities of tokens that are there already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.model.batch import Batch, check_batch, pad_rows
from regard.model.model import Model

Row = Sequence[int]


@torch.no_grad()
def next_logprobs(model: Model, batch: Batch) -> Tensor:
    """Log-probability of each id after those before it: (B, T − 1) for ids (B, T)."""
    check_batch(batch, model.config)
    log: Tensor = model(batch.to(model.device))[:, :-1].float().log_softmax(-1)
    return log.gather(-1, batch.ids[:, 1:, None].to(log.device))[:, :, 0]


def score_rows(model: Model, rows: Sequence[Row]) -> list[list[float]]:
    """For each row of a decoder, the log-probability of its second id and all after it."""
    ids, mask = pad_rows(rows)
    found = next_logprobs(model, Batch(ids, mask=mask))
    return [line[: len(row) - 1].tolist() for line, row in zip(found, rows, strict=True)]


def score_pairs(model: Model, sources: Sequence[Row], targets: Sequence[Row]) -> list[list[float]]:
    """The same for targets of an encoder-decoder, each beginning with its start id."""
    ids, mask = pad_rows(targets)
    inputs, source_mask = pad_rows(sources)
    found = next_logprobs(model, Batch(inputs, ids, mask=mask, source_mask=source_mask))
    return [line[: len(row) - 1].tolist() for line, row in zip(found, targets, strict=True)]


@torch.no_grad()
def score_masked(
    model: Model, row: Row, mask: int, never: Iterable[int] = ()
) -> list[float | None]:
    """Log-probability of each id where it alone is hidden (Salazar 2020); None for `never`."""
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


def total_logprob(
    model: Model, parts: Iterable[tuple[list[int], int]], rows: int = 8
) -> Iterator[tuple[float, int]]:
    """Sum of log-probabilities and number of ids that counted, for each batch of windows."""
    group: list[tuple[list[int], int]] = []
    for part in parts:
        group.append(part)
        if len(group) == rows:
            yield add_up(model, group)
            group = []
    if group:
        yield add_up(model, group)


def add_up(model: Model, group: Sequence[tuple[list[int], int]]) -> tuple[float, int]:
    """The same for one batch."""
    found = score_rows(model, [window for window, _ in group])
    total = sum(sum(line[-count:]) for line, (_, count) in zip(found, group, strict=True))
    return total, sum(count for _, count in group)
