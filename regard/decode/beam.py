"""Beam search: keep the `width` best prefixes of each source at each step (Wu 2016).

All on tensors. A source's prefixes are `width` neighbouring rows of the model; a source whose
answers can no longer change is dropped from the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from regard.decode.pace import Pace, drive
from regard.decode.penalty import Penalty, length_penalty
from regard.decode.pool import Pool, take
from regard.decode.step import Hypothesis, Limit, Process, Step, chain, limits_of
from regard.decode.top import Scored, best_tokens, leading
from regard.errors import UsageError


@dataclass(frozen=True)
class BeamConfig:
    """How to search."""

    width: int = 4
    """Prefixes kept per source."""
    count: int = 1
    """Hypotheses returned per source, at most `width`."""
    penalty: Penalty = length_penalty()
    """A log-probability is divided by this function of the length, the end token counted."""
    groups: int = 1
    """Diverse beam search: split the beam into this many groups (Vijayakumar 2018)."""
    diversity: float = 0.0
    """Subtracted per earlier group that chose the same token at this step."""

    def __post_init__(self) -> None:
        if self.width < 1 or not 1 <= self.count <= self.width:
            found = f"width = {self.width}, count = {self.count}"
            raise UsageError("beam search", found, "width ≥ 1 and 1 ≤ count ≤ width")
        if self.groups < 1 or self.width % self.groups:
            found = f"{self.groups} groups of a beam of {self.width}"
            raise UsageError("beam search", found, "groups that divide the width")


@dataclass(frozen=True)
class Beams:
    """The prefixes of each source, w of them: one at the start, or `width`."""

    number: Tensor  # (A,) of the source in its batch
    limit: Tensor  # (A,) tokens at most
    largest: Tensor  # (A,) penalty at the limit
    penalty: Tensor  # (most,) penalty of each length, 1 first
    ends: Tensor  # (E,) tokens that end a hypothesis
    column: Tensor  # (A · w, t) read next
    tokens: Tensor  # (A, w, most)
    logprob: Tensor  # (A, w)
    pool: Pool  # what has ended
    length: Tensor  # (A,) of the living prefixes
    over: Tensor  # (A,)
    count: Tensor  # () steps taken
    parent: Tensor  # (A, w) row of the model that each prefix grew from

    def rows(self, kept: Tensor) -> Beams:
        """Only these sources."""
        return Beams(
            self.number[kept],
            self.limit[kept],
            self.largest[kept],
            self.penalty,
            self.ends,
            self.column.unflatten(0, self.parent.shape)[kept].flatten(0, 1),
            self.tokens[kept],
            self.logprob[kept],
            self.pool.rows(kept),
            self.length[kept],
            self.over[kept],
            self.count,
            self.parent[kept],
        )

    def settle(self) -> Beams:
        """The same when the model's rows are these."""
        rows = torch.arange(self.parent.numel(), device=self.parent.device)
        return replace(self, parent=rows.view_as(self.parent))


def begin(
    column: Tensor, limits: Sequence[int], eos: Collection[int], config: BeamConfig, columns: int
) -> Beams:
    """An empty prefix per source, or `width` of them of which each group has one that counts."""
    sources, device = len(limits), column.device
    prefixes = len(column) // sources if sources else 1
    tokens = column.new_zeros(sources, prefixes, columns)
    logprob = torch.full((sources, prefixes), -torch.inf, device=device)
    logprob[:, :: config.width // config.groups] = 0.0
    return Beams(
        torch.arange(sources, device=device),
        torch.tensor(limits, dtype=torch.long, device=device),
        torch.tensor([config.penalty(n) for n in limits], device=device),
        torch.tensor([config.penalty(n + 1) for n in range(columns)], device=device),
        torch.tensor(sorted(set(eos)), dtype=torch.long, device=device),
        column,
        tokens,
        logprob,
        Pool.empty(tokens, config.width),
        column.new_zeros(sources),
        torch.zeros(sources, dtype=torch.bool, device=device),
        column.new_zeros(()),
        torch.arange(len(column), device=device).view(sources, prefixes),
    )


def advance_beams(
    state: Beams, logits: Tensor, config: BeamConfig, processes: Sequence[Process] = ()
) -> Beams:
    """Grow each prefix by a token and keep the best; a source that is over stays as it is."""
    if processes:  # on log-probabilities of the model, so that what is left keeps its own
        history = state.tokens[:, :, : int(state.count)].flatten(0, 1)
        log = chain(processes, logits.log_softmax(-1, dtype=torch.float32), history)
        scored = Scored(log, log)
    else:
        scored = Scored(logits)
    sources, prefixes = state.logprob.shape
    value, parent, token = candidates(scored, state.logprob, config, len(state.ends))
    asks = not (token.is_cuda or torch.compiler.is_compiling())  # there it takes longer than work
    if asks and config.groups == 1:
        first, last = slice(0, config.width), config.width - 1
        # The best ones live on, unless one of them ends or cannot be.
        stops = (token[:, first, None] == state.ends).any() | state.over.any()
        if not bool(stops | (value[:, last] == -torch.inf).any()):
            return advance_living(state, value[:, first], parent[:, first], token[:, first], config)
    value = value.masked_fill(state.over[:, None], -torch.inf)
    grown = take(state.tokens, parent).index_copy(2, state.count[None], token[:, :, None])
    ended = (token[:, :, None] == state.ends).any(-1)
    length, pool = state.count + 1, state.pool
    if not asks or bool(ended.any()):
        # An end counts only among the best `width` of its group; the rest of the beam lives on.
        score = value / state.penalty.index_select(0, state.count[None])
        score = score.masked_fill(~(ended & ranked(value, config)), -torch.inf)
        ending = Pool(grown, length.expand(token.shape), value, score)
        pool = pool.add(ending, unique=config.groups == 1)
    live = value.masked_fill(ended, -torch.inf)
    kept = live_order(live, config)
    logprob = live.gather(1, kept)
    # Where fewer live, the best one again, as impossible: processes see words that are allowed.
    best = kept.gather(1, logprob.argmax(1, keepdim=True))
    kept = kept.where(logprob > -torch.inf, best)
    bound = logprob / state.largest[:, None]
    rows = torch.arange(sources, device=parent.device)[:, None] * prefixes
    still = state.over[:, None]
    return replace(
        state,
        column=token.gather(1, kept).reshape(-1, 1),
        tokens=torch.where(still[:, :, None], state.tokens, take(grown, kept)),
        logprob=torch.where(still, state.logprob, logprob),
        pool=pool,
        length=torch.where(state.over, state.length, length),
        over=state.over | settled(pool, bound, config.count) | (state.limit == length),
        count=length,
        parent=rows + parent.gather(1, kept),
    )


def advance_living(
    state: Beams, value: Tensor, parent: Tensor, token: Tensor, config: BeamConfig
) -> Beams:
    """`advance_beams` where the best continuations (A, width) all live: a few operations only."""
    length, prefixes = state.count + 1, state.logprob.shape[1]
    first = torch.arange(0, len(parent) * prefixes, prefixes)[:, None]
    over = settled(state.pool, value / state.largest[:, None], config.count)
    return replace(
        state,
        column=token.reshape(-1, 1),
        tokens=take(state.tokens, parent).index_copy_(2, state.count[None], token[:, :, None]),
        logprob=value,
        length=length.expand(len(token)),
        over=over | (state.limit == length),
        count=length,
        parent=first + parent,
    )


def beam(
    step: Step,
    start: Tensor,
    limit: Limit,
    eos: Collection[int],
    config: BeamConfig,
    processes: Sequence[Process] = (),
) -> list[list[Hypothesis]]:
    """For each source, its `count` best hypotheses of at most `limit` new tokens after `start`.

    start (A, T) holds one row per source. Beam 1 without penalty is greedy; a beam that never has
    to drop a prefix finds the same as `exhaustive`. A wider beam need not find a better score.
    Fewer than `count`, or none, when the processes leave no more.
    """
    advance = partial(advance_beams, config=config, processes=processes)
    return beam_at(Pace(step), start, limit, eos, config, advance)


def beam_at(
    pace: Pace,
    start: Tensor,
    limit: Limit,
    eos: Collection[int],
    config: BeamConfig,
    advance: Callable[[Beams, Tensor], Beams],
) -> list[list[Hypothesis]]:
    """The same at a pace of choice."""
    limits = limits_of(limit, len(start))
    most = max(limits, default=0)
    answers: list[list[Hypothesis]] = [[] for _ in limits]

    def leave(state: Beams, over: list[int]) -> None:
        for number, found in read(state, over, config):
            answers[number] = found

    state = begin(pace.begin(start), limits, eos, config, pace.columns(most))
    drive(pace, state, advance, most, leave)
    return answers


def candidates(
    scored: Scored, logprob: Tensor, config: BeamConfig, ends: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Best continuations (A, C) per group, best first: log-probability, parent prefix, token.

    Scores (A · w, V) of prefixes with log-probabilities (A, w); of each the best few are enough.
    """
    sources, prefixes = logprob.shape
    vocab, size = scored.logits.shape[-1], config.width // config.groups
    if config.groups == 1:
        found = scored.continuations(logprob, (1 + ends) * size)
        if found is not None:
            return found
    per_prefix = min((1 + ends) * size, vocab)  # at most `ends` of them end a prefix
    chosen: list[tuple[Tensor, Tensor, Tensor]] = []
    cost = torch.zeros(sources, 1, vocab if config.groups > 1 else 0, device=logprob.device)
    for group in range(config.groups):
        first = prefixes == 1  # every group starts from the one empty prefix
        own = slice(0, 1) if first else slice(group * size, (group + 1) * size)
        part = scored if config.groups == 1 or first else scored.part(prefixes, own)
        token = part.top(per_prefix)
        if group:  # what earlier groups chose costs something
            dear = part.logits.unflatten(0, (sources, -1)) - cost
            token = best_tokens(dear.flatten(0, 1), per_prefix)
        total = part.logprob(token).unflatten(0, (sources, -1)) + logprob[:, own, None]
        token = token.view_as(total)  # (A, w, C')
        order = total
        if group:
            order = total - cost.expand(-1, total.shape[1], -1).gather(-1, token)
        best = leading(order.flatten(1), (1 + ends) * size)
        value, word = total.flatten(1).gather(1, best), token.flatten(1).gather(1, best)
        chosen.append((value, best // per_prefix + (own.start or 0), word))
        if config.groups > 1:
            more = torch.full_like(value[:, None, :size], config.diversity)
            cost = cost.scatter_add(2, word[:, None, :size], more)
    value, parent, token = (torch.cat(part, 1) for part in zip(*chosen, strict=True))
    return pad_candidates(value, parent, token, config, ends)


def pad_candidates(
    value: Tensor, parent: Tensor, token: Tensor, config: BeamConfig, ends: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Fill up with impossible continuations, so that each group has as many as it can keep."""
    size = config.width // config.groups
    wanted, have = (1 + ends) * size, value.shape[1] // config.groups
    missing = wanted - have
    if not missing:
        return value, parent, token

    def fill(x: Tensor, with_: float) -> Tensor:
        grouped = x.view(len(x), config.groups, have)
        return torch.nn.functional.pad(grouped, (0, missing), value=with_).flatten(1)

    return fill(value, -torch.inf), fill(parent, 0), fill(token, 0)


def ranked(value: Tensor, config: BeamConfig) -> Tensor:
    """Whether a candidate is among the best `width / groups` of its group."""
    size, per_group = config.width // config.groups, value.shape[1] // config.groups
    rank = torch.arange(value.shape[1], device=value.device) % per_group
    return (rank < size) & (value > -torch.inf)


def live_order(live: Tensor, config: BeamConfig) -> Tensor:
    """Indices (A, W) of the best living candidates, group by group."""
    size, per_group = config.width // config.groups, live.shape[1] // config.groups
    best = leading(live.view(len(live), config.groups, per_group), size)
    return (best + torch.arange(config.groups, device=live.device)[:, None] * per_group).flatten(1)


def settled(pool: Pool, bound: Tensor, count: int) -> Tensor:
    """Sources (A,) whose answers cannot change any more.

    Log-probabilities only fall and the penalty only grows with the length, so no living prefix
    can ever score above `bound` (A, W), its log-probability over the penalty at the limit.
    """
    best = bound.amax(1)
    return (pool.score[:, count - 1] >= best) | (best == -torch.inf)


def read(state: Beams, over: list[int], config: BeamConfig) -> list[tuple[int, list[Hypothesis]]]:
    """Sources' answers with their numbers: finished ones first, then, if too few, what lived."""
    kept = torch.tensor(over, device=state.over.device)
    parts = [part[kept, : config.count].tolist() for part in state.pool.parts()]
    ended = list(zip(*parts, strict=True))
    live: list[tuple[list[list[int]], list[float]]] | None = None
    answers = []
    for n, (number, length) in enumerate(
        zip(state.number[kept].tolist(), state.length[kept].tolist(), strict=True)
    ):
        found: list[Hypothesis] = []
        for words, size, value, score in zip(*ended[n], strict=True):
            add_new(found, Hypothesis(words[:size], value, score, True))
        if len(found) < config.count:
            if live is None:  # seldom wanted, and larger than the rest
                tokens, values = state.tokens[kept].tolist(), state.logprob[kept].tolist()
                live = list(zip(tokens, values, strict=True))
            for words, value in sorted(zip(*live[n], strict=True), key=lambda pair: -pair[1]):
                score = value / config.penalty(length)
                add_new(found, Hypothesis(words[:length], value, score, False))
        answers.append((number, found[: config.count]))
    return answers


def add_new(found: list[Hypothesis], new: Hypothesis) -> None:
    """Add a possible hypothesis once; two groups of a diverse beam may come to the same words."""
    if new.score > -torch.inf and all(new.tokens != other.tokens for other in found):
        found.append(new)
