"""The decoding loop: a search takes steps with a model until all its answers are there.

A search is functions on a state of tensors: `begin`, `advance(state, logits) → state`, `read`. A
state has the `column` of ids (N, t) that the model reads next, as many rows for each source; the
rows of the model to go on with (`parent`, by source; None is all as they are); and which sources
(A,) are `over`. The loop reads the column with the model and calls them; now and then it looks
which sources are over, reads their answers and goes on without them. What is over does not change
any more, so a late look changes no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from regard.core.cache import Cache
from regard.core.tap import Taps
from regard.decode.beam import BeamConfig, BeamSearch
from regard.decode.constraints import LexicalSearch
from regard.decode.native_search import search_natively
from regard.decode.sampling import Ends, SampleConfig, Sampling
from regard.decode.shortlist import Shortlist
from regard.decode.step import Hypothesis, Limit, ModelStep, Process, limits_of
from regard.errors import UsageError
from regard.model.batch import Batch, check_filled
from regard.model.fronts import TextFront
from regard.model.model import Memory, Model
from regard.model.precision import same_in_any_company
from regard.nvib.denoising import bottlenecks

if TYPE_CHECKING:
    from regard.kit import Kit

Driver = Literal["auto", "plain", "fixed", "compiled"]
"""How steps are taken. plain: one by one. fixed: at fixed shapes, as a CUDA graph where there is
CUDA. compiled: as fixed, compiled before (which takes tens of seconds). auto: fixed on CUDA.
What cannot run at fixed shapes runs plainly; the answers do not differ."""


Search = Sampling | BeamSearch | LexicalSearch
"""What chooses tokens. `width` is its rows of the model for each source, `key` what a recorded step
depends on (None where steps must run one by one), `watch` a look at each state, or None."""


class Loop:
    """One step after the other, with a look after each; what is over leaves at once."""

    every = 1  # steps between looks
    room = 0  # columns of a state, where it has more than are written

    def __init__(self, step: ModelStep) -> None:
        self.step = step
        self.read = 0  # rows that the model has read

    def run(self, search: Search, start: Tensor, limit: Limit) -> list[list[Hypothesis]]:
        """Hypotheses of each row of `start` (A, T), of at most `limit` new tokens, best first."""
        limits = limits_of(limit, len(start))
        steps = max(limits, default=0)
        answers: list[list[Hypothesis]] = [[] for _ in limits]
        state: Any = search.begin(self.begin(start), limits, max(steps, self.room))
        every, taken = self.every if search.watch is None else 1, 0
        while taken < steps:
            count = min(every, steps - taken)
            for _ in range(count):
                state = self.turn(state, search)
            taken += count
            if search.watch is not None:
                search.watch(state)
            over = state.over.tolist()
            kept = [] if all(over) else self.keep(over)
            if kept is None:
                continue
            leaving = sorted(set(range(len(over))) - set(kept))
            for number, hypotheses in search.read(state, leaving):
                answers[number] = hypotheses
            if not kept:
                break
            state = state.rows(torch.tensor(kept, device=state.over.device))
        return answers

    def begin(self, start: Tensor) -> Tensor:
        """The column that is read first, of what a search is given (A, T)."""
        return start

    def turn(self, state: Any, search: Search) -> Any:
        """One step."""
        if self.read and state.parent is not None:
            rows = state.parent.flatten()
            # Often all stay in place, as in a beam of one; to ask costs a CPU nothing.
            if rows.device.type != "cpu" or rows.tolist() != list(range(self.read)):
                self.step.select(rows, state.parent[0].numel())
        self.read = len(state.column)
        return search.advance(state, self.step(state.column))

    def keep(self, over: Sequence[bool]) -> list[int] | None:
        """Which sources stay; None when all do."""
        return [n for n, done in enumerate(over) if not done] if any(over) else None


def run_search(
    model: Model,
    batch: Batch,
    limit: Limit,
    how: SampleConfig | BeamConfig | Search | None = None,
    ends: Ends | None = None,
    processes: Sequence[Process] = (),
    *,
    strict: bool = False,
    driver: Driver = "auto",
    shortlist: Shortlist | None = None,
    memory: Memory | None = None,
    block: int | None = None,
    cache: Cache | None = None,
) -> list[list[Hypothesis]]:
    """Hypotheses of each row after `batch.ids`, best first; greedy unless `how` says otherwise.

    A search that is made already has its own ends and processes. A shortlist is used where it can.
    `block` is the one of the decoder whose attention to the source is noted, where that is free.
    `cache` holds what was read before `batch`; it is written on.
    """
    ends, limits, heard = ends or Ends(), limits_of(limit, len(batch.ids)), watched(model)
    if shortlist is not None and not can_shorten(model, batch, how, ends):
        shortlist = None
    if not (strict or heard or processes or ends.stop or ends.watch):
        answers = search_natively(model, batch, limits, how, ends.eos, shortlist, block)
        if answers is not None:
            return answers
    if shortlist is not None:
        ends = Ends(shortlist.local(ends.eos))
    search: Search
    if isinstance(how, BeamConfig):
        search = BeamSearch(how, ends.eos, processes)
    elif how is None or isinstance(how, SampleConfig):
        search = Sampling(how, ends, processes)
    else:
        search = how
    recordable = search.key is not None and not strict and shortlist is None and cache is None
    if wants_fixed(model, driver) and recordable and fits(model, batch, limits):
        from regard.decode.cuda_graph import GraphLoop, borrow_graphs

        with borrow_graphs(model) as graphs:  # none where a watcher of this model writes, too
            if graphs is not None:
                loop = GraphLoop(model, graphs, batch, search, max(limits), driver == "compiled")
                return loop.run(search, batch.ids, limits)
    with nullcontext() if heard else torch.inference_mode():
        step = ModelStep(model, batch, max(limits), strict, shortlist, memory, cache)
        answers = Loop(step).run(search, batch.ids, limits)
    if step.words is None:
        return answers
    return [
        [replace(h, tokens=listed[h.tokens].tolist()) for h in row]
        for row, listed in zip(answers, step.words.listed, strict=True)
    ]


def search_kit(
    kit: Kit,
    batch: Batch,
    limit: Limit,
    how: SampleConfig | BeamConfig | Search | None = None,
    ends: Ends | None = None,
    processes: Sequence[Process] = (),
    *,
    strict: bool | None = None,
    shortlist: bool = False,
    **more: Any,
) -> list[list[Hypothesis]]:
    """`run_search` as a Kit wants it: its end tokens, its mode, its hooks told of each position.

    `shortlist` uses the folder's list of words, if there is one; `memory`, `block` and `cache` are
    as `run_search` says.
    """
    if kit.model.decoder is None:
        raise UsageError("generating", "a model without decoder", "one that writes text")
    check_filled(batch, "generating")
    limits, (rows, width) = limits_of(limit, len(batch.ids)), batch.ids.shape
    lengths = [width] * rows if batch.mask is None else batch.mask.sum(1).tolist()
    kit.check_room(max(old + new for old, new in zip(lengths, limits, strict=True)))
    strict = kit.strict if strict is None else strict
    strict = strict and not same_in_any_company(kit.model)
    plain = not (strict or processes or wants_fixed(kit.model, kit.driver))
    kit.hooked.check_alone("generation, which reads one column at a time")
    answers = run_search(
        kit.model,
        batch,
        limits,
        how,
        ends or Ends(kit.stops),
        processes,
        strict=strict,
        driver=kit.driver,
        shortlist=kit.shortlist if shortlist and plain else None,
        **more,
    )
    if kit.hooked.keep is not None:
        kit.hooked.keep(batch, [row[0].tokens if row else [] for row in answers])
    return answers


# What a search can use ----------------------------------------------------------------------------


def can_shorten(
    model: Model, batch: Batch, how: SampleConfig | BeamConfig | Search | None, ends: Ends
) -> bool:
    """Whether a shortlist can serve: text into text on a CPU, and nobody looks at ids or scores."""
    if model.device.type != "cpu" or batch.target is None or batch.source_documents is not None:
        return False
    if not (how is None or isinstance(how, BeamConfig)) or ends.stop or ends.watch:
        return False
    heard = any(part is None or has_listener(part) for part in (model, model.head, model.head.out))
    return isinstance(model.front, TextFront) and not heard


def wants_fixed(model: Model, driver: Driver) -> bool:
    """Whether fixed shapes are asked for, or left to us on a GPU."""
    if driver not in get_args(Driver):
        raise UsageError("decoding", f"driver = {driver!r}", ", ".join(get_args(Driver)))
    return driver in ("fixed", "compiled") or (driver == "auto" and model.device.type == "cuda")


def fits(model: Model, batch: Batch, limits: list[int]) -> bool:
    """Whether a batch can run at fixed shapes: plain rows that stay inside a position table."""
    if not batch.ids.numel() or batch.documents is not None:
        return False
    plain = type(model) is Model and not bottlenecks(model)  # mixtures have more than keys
    if not (plain and model.stacks and isinstance(model.reader, TextFront)):
        return False
    size = None if model.reader.positions is None else model.reader.positions.size
    return size is None or batch.ids.shape[1] + max(limits) <= size + 1  # the last one is not read


def watched(model: Model) -> bool:
    """Whether somebody listens anywhere, who may keep tensors and compute gradients with them."""
    return any(has_listener(part) for part in model.modules())


def has_listener(part: torch.nn.Module) -> bool:
    """Whether a hook or a tap of a module is in use."""
    at = vars(part).get("at")
    tapped = isinstance(at, Taps) and any(tap.fn is not None for tap in vars(at).values())
    return bool(part._forward_hooks or part._forward_pre_hooks) or tapped
