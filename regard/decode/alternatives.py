"""Alternatives at places: keep the words before one, take another there, and go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.decode.beam import BeamConfig
from regard.decode.loop import search_kit
from regard.decode.sampling import Ends
from regard.decode.step import Hypothesis, Process, take_last
from regard.model.batch import Batch, pad_rows

if TYPE_CHECKING:
    from regard.kit import Kit


def alternatives(
    kit: Kit,
    batch: Batch,
    log: Tensor,
    tokens: Sequence[int],
    places: Sequence[int],
    limit: int,
    count: int = 5,
    how: BeamConfig | None = None,
    ends: Ends | None = None,
    processes: Sequence[Process] = (),
    strict: bool | None = None,
) -> list[list[Hypothesis]]:
    """At each place, tokens[:place] gone on from with each of the `count` likeliest next tokens.

    `batch` holds one row, `tokens` were written after it, and `log` (n + 1, V) are the
    log-probabilities of what comes after the row and after each of them. Each answer is a whole
    one of at most `limit` new tokens, the kept ones included; its logprob counts all of them.
    """
    ends = ends or Ends(kit.stops)
    starts: list[list[int]] = []
    logprobs: list[float] = []
    known = [0.0]  # log-probability of the tokens before each place
    for n, token in enumerate(tokens):
        known.append(known[-1] + float(log[n, token]))
    count = min(count, log.shape[-1])
    for place in places:
        values, words = log[place].topk(count)
        starts += [[*tokens[:place], word] for word in words.tolist()]
        logprobs += [known[place] + value for value in values.tolist()]
    going = [
        n for n, start in enumerate(starts) if start[-1] not in ends.eos and len(start) < limit
    ]
    continued: dict[int, Hypothesis] = {}
    if going:
        longer = extend(batch, [starts[n] for n in going])
        limits = [limit - len(starts[n]) for n in going]
        rest = search_kit(kit, longer, limits, how, ends, processes, strict=strict)
        continued = {n: row[0] for n, row in zip(going, rest, strict=True) if row}
    answers = []
    for n, (start, value) in enumerate(zip(starts, logprobs, strict=True)):
        more = continued.get(n, Hypothesis([], 0.0, 0.0, start[-1] in ends.eos))
        total = value + more.logprob
        answers.append(Hypothesis([*start, *more.tokens], total, total, more.finished))
    return [answers[at : at + count] for at in range(0, len(answers), count)]


def after_each(logits: Tensor, batch: Batch, count: int) -> Tensor:
    """Log-probabilities (n + 1, V) after a row and each of `count` tokens that extend it.

    logits (1, T + n, V) are of the extended row.
    """
    width = batch.ids.shape[1]
    rows = [take_last(logits[:, :width], batch.mask), *logits[:, width : width + count].unbind(1)]
    return torch.cat(rows).float().log_softmax(-1)


def extend(batch: Batch, starts: Sequence[Sequence[int]]) -> Batch:
    """The one row as many times as there are starts, each start after it."""
    count = len(starts)
    added, filled = pad_rows(starts)
    added = added.to(batch.ids)
    ids = torch.cat((batch.ids.expand(count, -1), added), 1)
    mask = None
    if batch.mask is not None or filled is not None:
        before = torch.ones_like(batch.ids, dtype=torch.bool) if batch.mask is None else batch.mask
        after = torch.ones_like(added, dtype=torch.bool) if filled is None else filled
        mask = torch.cat((before.expand(count, -1), after.to(before)), 1)
    if batch.target is None:
        return Batch(ids, mask=mask)
    inputs = batch.inputs.expand(count, *[-1] * (batch.inputs.dim() - 1))
    real = None if batch.source_mask is None else batch.source_mask.expand(count, -1)
    return Batch(inputs, ids, mask=mask, source_mask=real)
