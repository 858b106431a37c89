"""Write: run a search over a model. Greedy, sampling and beam behind one call."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from regard.decode.beam import BeamConfig, beam
from regard.decode.generate import Ends, generate, greedy
from regard.decode.model_step import ModelStep
from regard.decode.sample import SampleConfig, Sampler, penalties
from regard.decode.step import Hypothesis, Limit, Process, limits_of
from regard.model.batch import Batch
from regard.model.model import Model


def write(
    model: Model,
    batch: Batch,
    limit: Limit,
    how: SampleConfig | BeamConfig | None = None,
    ends: Ends | None = None,
    processes: Sequence[Process] = (),
    strict: bool = False,
) -> list[list[Hypothesis]]:
    """Hypotheses of each row after `batch.ids`, best first; greedy unless `how` says otherwise."""
    ends = ends or Ends()
    step = ModelStep(model, batch, max(limits_of(limit, len(batch.ids))), strict)
    if isinstance(how, BeamConfig):
        return beam(step, batch.ids, limit, ends.eos, how, processes)
    choose = greedy if how is None else Sampler(how)
    added = [] if how is None else penalties(how)
    found = generate(step, batch.ids, limit, choose, ends, [*processes, *added])
    return [[hypothesis] for hypothesis in found]


def without_end(tokens: Sequence[int], eos: Collection[int]) -> list[int]:
    """The tokens before an end token."""
    return [*tokens[:-1]] if tokens and tokens[-1] in eos else [*tokens]
