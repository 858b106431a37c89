"""Alternatives at places: keep the words before one, take another there, and go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.decode.beam import BeamConfig
from regard.decode.loop import search_kit
from regard.decode.sampling import Ends
from regard.decode.step import Hypothesis, Process
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
    one of at most `limit` new tokens, the kept ones included, whose logprobs it has too.
    """
    ends = ends or Ends(kit.stops)
    starts, known = list[list[int]](), list[list[float]]()
    before = [float(log[n, token]) for n, token in enumerate(tokens)]
    count = min(count, log.shape[-1])
    for place in places:
        values, words = log[place].topk(count)
        starts += [[*tokens[:place], word] for word in words.tolist()]
        known += [[*before[:place], value] for value in values.tolist()]
    ended = [start[-1] in ends.eos for start in starts]
    going = [n for n, start in enumerate(starts) if not ended[n] and len(start) < limit]
    continued: dict[int, Hypothesis] = {}
    if going:
        longer = extend(batch, [starts[n] for n in going])
        limits = [limit - len(starts[n]) for n in going]
        rest = search_kit(kit, longer, limits, how, ends, processes, strict=strict)
        continued = {n: row[0] for n, row in zip(going, rest, strict=True) if row}
    answers = []
    for n, (start, own) in enumerate(zip(starts, known, strict=True)):
        more = continued.get(n, Hypothesis([], 0.0, 0.0, ended[n]))
        total, each = sum(own) + more.logprob, [*own, *more.logprobs]
        answers.append(Hypothesis([*start, *more.tokens], total, total, more.finished, each))
    return [answers[at : at + count] for at in range(0, len(answers), count)]


def extend(batch: Batch, starts: Sequence[Sequence[int]]) -> Batch:
    """The one row, which has no padding, as many times as there are starts, each start after it."""
    rows, (added, mask) = batch.tile(len(starts)), pad_rows(starts)
    ids = torch.cat((rows.ids, added.to(rows.ids)), 1)
    if mask is not None:
        mask = pad(mask.to(ids.device), (rows.ids.shape[1], 0), value=True)
    return replace(rows, **{"inputs" if batch.target is None else "target": ids}, mask=mask)
