"""Write: run a search over a model. Greedy, sampling and beam behind one call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import torch

from regard.decode.beam import BeamConfig, advance_beams, beam, beam_at
from regard.decode.fixed import FixedPace
from regard.decode.generate import Ends, advance_rows, generate, generate_at, greedy
from regard.decode.model_step import ModelStep
from regard.decode.recorded import Shelf, shelf_of, watched
from regard.decode.sample import SampleConfig, Sampler, penalties
from regard.decode.step import Hypothesis, Limit, Process, limits_of
from regard.errors import UsageError
from regard.model.batch import Batch
from regard.model.fronts import TextFront
from regard.model.model import Model

Driver = Literal["auto", "plain", "fixed", "compiled"]
"""How steps are taken. plain: one by one. fixed: at fixed shapes, as a CUDA graph where there is
CUDA. compiled: the same, compiled before (which takes tens of seconds). auto: fixed on CUDA.
What cannot run at fixed shapes runs plainly; the answers are the same."""


def write(
    model: Model,
    batch: Batch,
    limit: Limit,
    how: SampleConfig | BeamConfig | None = None,
    ends: Ends | None = None,
    processes: Sequence[Process] = (),
    strict: bool = False,
    driver: Driver = "auto",
) -> list[list[Hypothesis]]:
    """Hypotheses of each row after `batch.ids`, best first; greedy unless `how` says otherwise."""
    ends, limits = ends or Ends(), limits_of(limit, len(batch.ids))
    if isinstance(how, SampleConfig):
        processes = [*processes, *penalties(how)]
    plain = strict or processes or ends.listener is not None
    if wants_fixed(model, driver) and not plain and fits(model, batch, limits):
        shelf = shelf_of(model)
        if shelf is not None and shelf.lock.acquire(blocking=False):  # else in use: a watcher's own
            try:
                return write_fixed(model, batch, limits, how, ends, shelf, driver == "compiled")
            finally:
                shelf.lock.release()
    with nullcontext() if watched(model) else torch.inference_mode():
        return write_plain(
            ModelStep(model, batch, max(limits), strict, ends.listener),
            limits,
            how,
            ends,
            processes,
        )


def write_plain(
    step: ModelStep,
    limits: list[int],
    how: SampleConfig | BeamConfig | None,
    ends: Ends,
    processes: Sequence[Process],
) -> list[list[Hypothesis]]:
    """One step after the other."""
    start = step.begin.ids
    if isinstance(how, BeamConfig):
        return beam(step, start, limits, ends.eos, how, processes)
    choose = greedy if how is None else Sampler(how)
    found = generate(step, start, limits, choose, ends, processes)
    return [[hypothesis] for hypothesis in found]


def write_fixed(
    model: Model,
    batch: Batch,
    limits: list[int],
    how: SampleConfig | BeamConfig | None,
    ends: Ends,
    shelf: Shelf,
    compiled: bool,
) -> list[list[Hypothesis]]:
    """The same at fixed shapes. What differs from call to call is in tensors, not in the key."""
    count = len(set(ends.eos))
    if isinstance(how, BeamConfig):
        key = (count, how.width, how.count, how.groups, how.diversity)
        pace = FixedPace(model, batch, how.width, max(limits), shelf, key, compiled)
        grow = partial(advance_beams, config=how)
        return beam_at(pace, batch.ids, limits, ends.eos, how, grow)
    choose, first = greedy, 0
    if how is not None:  # a seed counts as so many rows more
        choose, first = Sampler(replace(how, seed=0, first=0)), how.seed + how.first
    named = None if how is None else replace(how, seed=0, first=0)
    pace = FixedPace(model, batch, 1, max(limits), shelf, (count, named), compiled)
    advance = partial(advance_rows, choose=choose)
    found = generate_at(pace, batch.ids, limits, advance, ends, first)
    return [[hypothesis] for hypothesis in found]


def wants_fixed(model: Model, driver: Driver) -> bool:
    """Whether fixed shapes are asked for, or left to us on a GPU."""
    if driver not in get_args(Driver):
        raise UsageError("decoding", f"driver = {driver!r}", ", ".join(get_args(Driver)))
    return driver in ("fixed", "compiled") or (driver == "auto" and model.device.type == "cuda")


def fits(model: Model, batch: Batch, limits: list[int]) -> bool:
    """Whether a batch can run at fixed shapes: plain rows that stay inside a position table."""
    if not batch.ids.numel() or batch.documents is not None or batch.prefix is not None:
        return False
    if not model.stacks:
        return False
    if batch.source_documents is not None or not isinstance(model.reader, TextFront):
        return False
    table = model.reader.positions
    size = None if table is None else table.size
    return size is None or batch.ids.shape[1] + max(limits) <= size


def without_end(tokens: Sequence[int], eos: Collection[int]) -> list[int]:
    """The tokens before an end token."""
    return [*tokens[:-1]] if tokens and tokens[-1] in eos else [*tokens]
