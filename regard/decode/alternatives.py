"""Alternatives at a place: keep the words before it, take another one there, and go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.decode.beam import BeamConfig
from regard.decode.generate import Ends
from regard.decode.model_step import ModelStep
from regard.decode.sample import SampleConfig
from regard.decode.step import Hypothesis
from regard.decode.write import write
from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.model import Model


def alternatives(
    model: Model,
    batch: Batch,
    tokens: Sequence[int],
    at: int,
    limit: int,
    how: SampleConfig | BeamConfig | None = None,
    ends: Ends | None = None,
    count: int = 5,
) -> list[Hypothesis]:
    """Go on from tokens[:at] with each of the `count` likeliest next tokens, likeliest first.

    `batch` holds one row, `tokens` were written after it. Each answer is a whole one of at most
    `limit` new tokens, the kept ones included; its logprob counts all of them.
    """
    if len(batch.ids) != 1:
        raise UsageError("finding alternatives", f"{len(batch.ids)} rows", "one")
    if not 0 <= at <= len(tokens) or at >= limit:
        expected = f"0 to {min(len(tokens), limit - 1)}"
        raise UsageError("finding alternatives", f"place {at} of {len(tokens)} tokens", expected)
    if count < 1:
        raise UsageError("finding alternatives", f"count = {count}", "1 or more")
    ends = ends or Ends()
    kept = list(tokens[:at])
    log = next_log(model, batch, kept)
    values, words = log[-1].topk(min(count, log.shape[-1]))
    known = sum(float(log[n, token]) for n, token in enumerate(kept))
    starts = [[*kept, word] for word in words.tolist()]
    logprobs = [known + value for value in values.tolist()]
    going = [n for n, start in enumerate(starts) if start[-1] not in ends.eos and at + 1 < limit]
    found: dict[int, Hypothesis] = {}
    if going:
        longer = extend(batch, [starts[n] for n in going])
        rest = write(model, longer, limit - at - 1, how, replace(ends, watch=None))
        found = {n: row[0] for n, row in zip(going, rest, strict=True)}
    answers = []
    for n, (start, value) in enumerate(zip(starts, logprobs, strict=True)):
        more = found.get(n, Hypothesis([], 0.0, 0.0, start[-1] in ends.eos))
        total = value + more.logprob
        answers.append(Hypothesis([*start, *more.tokens], total, total, more.finished))
    return answers


def next_log(model: Model, batch: Batch, kept: Sequence[int]) -> Tensor:
    """Log-probabilities (n + 1, V) of what comes after the row, and after each kept token."""
    step = ModelStep(model, batch, len(kept) + 1)
    rows = [step(batch.ids)]
    rows += [step(batch.ids.new_tensor([[token]])) for token in kept]
    return torch.cat(rows).float().log_softmax(-1)


def extend(batch: Batch, starts: Sequence[Sequence[int]]) -> Batch:
    """The one row as many times as there are starts, each start after it."""
    count = len(starts)
    added = batch.ids.new_tensor(starts)
    ids = torch.cat((batch.ids.expand(count, -1), added), 1)
    mask = None
    if batch.mask is not None:
        mask = torch.cat(
            (batch.mask.expand(count, -1), torch.ones_like(added, dtype=torch.bool)), 1
        )
    if batch.target is None:
        return Batch(ids, mask=mask)
    inputs = batch.inputs.expand(count, *[-1] * (batch.inputs.dim() - 1))
    real = None if batch.source_mask is None else batch.source_mask.expand(count, -1)
    return Batch(inputs, ids, mask=mask, source_mask=real)
