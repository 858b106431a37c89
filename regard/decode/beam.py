"""Beam search: keep the `width` best prefixes of each source at each step (Wu 2016).

All on tensors. A source's prefixes are `width` neighbouring rows of the model; a source whose
answers can no longer change is dropped from the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decode.ranking import Scored, best_tokens, leading
from regard.decode.step import Hypothesis, Process, apply_processes
from regard.errors import UsageError

Penalty = Callable[[int], float]
"""What a log-probability is divided by, of a length that counts the end token."""


def length_penalty(kind: str = "gnmt", alpha: float = 0.6) -> Penalty:
    """none: 1; length: n^α; gnmt: ((5 + n) / 6)^α (Wu 2016, eq. 14), with α ≥ 0."""
    if not alpha >= 0:
        raise UsageError("beam search", f"alpha = {alpha}", "0 or more")
    kinds: dict[str, Penalty] = {
        "none": lambda n: 1.0,
        "length": lambda n: float(n) ** alpha,
        "gnmt": lambda n: ((5 + n) / 6) ** alpha,
    }
    if kind not in kinds:
        raise UsageError("beam search", f"length penalty {kind!r}", ", ".join(kinds))
    return kinds[kind]


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
            wrong = f"width = {self.width}, count = {self.count}"
            raise UsageError("beam search", wrong, "width ≥ 1 and 1 ≤ count ≤ width")
        if self.groups < 1 or self.width % self.groups:
            wrong = f"{self.groups} groups of a beam of {self.width}"
            raise UsageError("beam search", wrong, "groups that divide the width")


class Pool(NamedTuple):
    """The best finished hypotheses of each source, best first."""

    tokens: Tensor  # (A, W, limit); zeros after the end
    sums: Tensor  # (A, W, limit) log-probability up to each token
    length: Tensor  # (A, W)
    logprob: Tensor  # (A, W)
    score: Tensor  # (A, W); −inf where there is none

    @classmethod
    def empty(cls, tokens: Tensor, width: int) -> Pool:
        """Nothing yet, for as many sources and as long as `tokens` (A, …, limit)."""
        sources, nothing = len(tokens), -torch.inf
        return cls(
            tokens.new_zeros(sources, width, tokens.shape[-1]),
            torch.zeros(sources, width, tokens.shape[-1], device=tokens.device),
            tokens.new_zeros(sources, width),
            torch.full((sources, width), nothing, device=tokens.device),
            torch.full((sources, width), nothing, device=tokens.device),
        )

    def add(self, other: Pool, unique: bool = True) -> Pool:
        """The best `W` of both; each words once, unless they are known to differ (`unique`)."""
        joined = [torch.cat(pair, 1) for pair in zip(self, other, strict=True)]
        if not unique:
            joined[4] = joined[4].masked_fill(repeated(Pool(*joined)), -torch.inf)
        best = leading(joined[4], self.score.shape[1])
        return Pool(*(take(part, best) for part in joined))


def repeated(pool: Pool) -> Tensor:
    """Hypotheses (A, N) whose words an earlier one has."""
    tokens, _, length, _, score = pool
    same = (tokens[:, :, None] == tokens[:, None]).all(-1)  # (A, N, N)
    same &= (length[:, :, None] == length[:, None]) & (score > -torch.inf)[:, None]
    return same.tril(-1).any(-1)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Choose along the second dimension, whatever follows it: (A, N, …), (A, M) → (A, M, …)."""
    return x.gather(1, index.view(*index.shape, *[1] * (x.dim() - 2)).expand(-1, -1, *x.shape[2:]))


class Beams(NamedTuple):
    """The prefixes of each source, w of them: one at the start, or `width`."""

    number: Tensor  # (A,) of the source in its batch
    limit: Tensor  # (A,) tokens at most
    largest: Tensor  # (A,) penalty at the limit
    penalty: Tensor  # (most,) penalty of each length, 1 first
    ends: Tensor  # (E,) tokens that end a hypothesis
    column: Tensor  # (A · w, t) read next
    tokens: Tensor  # (A, w, most)
    sums: Tensor  # (A, w, most) log-probability up to each token
    logprob: Tensor  # (A, w)
    pool: Pool  # what has ended
    length: Tensor  # (A,) of the living prefixes
    over: Tensor  # (A,)
    taken: Tensor  # () steps
    parent: Tensor  # (A, w) row of the model that each prefix grew from

    def rows(self, kept: Tensor) -> Beams:
        """Only these sources."""
        column = self.column.unflatten(0, self.parent.shape)[kept].flatten(0, 1)
        pool = Pool(*(part[kept] for part in self.pool))
        names = ("number", "limit", "largest", "tokens", "sums", "logprob", "length", "over")
        rows = {name: getattr(self, name)[kept] for name in (*names, "parent")}
        return self._replace(column=column, pool=pool, **rows)


class BeamSearch:
    """For each source its `count` best hypotheses.

    Beam 1 without penalty is greedy; a beam that never has to drop a prefix finds what `exhaustive`
    finds. A wider beam need not find a better score. There are fewer than `count`, or none, where
    the processes leave no more.
    """

    watch = None

    def __init__(
        self, config: BeamConfig, eos: Collection[int] = (), processes: Sequence[Process] = ()
    ) -> None:
        self.config, self.eos, self.processes = config, eos, processes
        self.width = config.width
        key = (len(set(eos)), config.width, config.count, config.groups, config.diversity)
        self.key: Hashable | None = None if processes else key

    def begin(self, column: Tensor, limits: Sequence[int], columns: int) -> Beams:
        """An empty prefix per source, or `width`, of which each group has one that counts."""
        config, sources, device = self.config, len(limits), column.device
        prefixes = len(column) // sources if sources else 1
        tokens = column.new_zeros(sources, prefixes, columns)
        logprob = torch.full((sources, prefixes), -torch.inf, device=device)
        logprob[:, :: config.width // config.groups] = 0.0
        return Beams(
            torch.arange(sources, device=device),
            torch.tensor(limits, dtype=torch.long, device=device),
            torch.tensor([config.penalty(n) for n in limits], device=device),
            torch.tensor([config.penalty(n + 1) for n in range(columns)], device=device),
            torch.tensor(sorted(set(self.eos)), dtype=torch.long, device=device),
            column,
            tokens,
            logprob.new_zeros(tokens.shape),
            logprob,
            Pool.empty(tokens, config.width),
            column.new_zeros(sources),
            torch.zeros(sources, dtype=torch.bool, device=device),
            column.new_zeros(()),
            torch.arange(len(column), device=device).view(sources, prefixes),
        )

    def advance(self, state: Beams, logits: Tensor) -> Beams:
        """Grow each prefix by a token and keep the best; a source that is over stays as it is."""
        config = self.config
        if self.processes:  # on log-probabilities of the model, so that what is left keeps its own
            history = state.tokens[:, :, : int(state.taken)].flatten(0, 1)
            log = logits.log_softmax(-1, dtype=torch.float32)
            log = apply_processes(self.processes, log, history)
            scored = Scored(log, log)
        else:
            scored = Scored(logits)
        sources, prefixes = state.logprob.shape
        value, parent, token = candidates(scored, state.logprob, config, len(state.ends))
        asks = not (token.is_cuda or torch.compiler.is_compiling())  # where to ask costs nothing
        value = value.masked_fill(state.over[:, None], -torch.inf)
        grown = take(state.tokens, parent).index_copy(2, state.taken[None], token[:, :, None])
        sums = take(state.sums, parent).index_copy(2, state.taken[None], value[:, :, None])
        ended = (token[:, :, None] == state.ends).any(-1)
        length, pool = state.taken + 1, state.pool
        if not asks or bool(ended.any()):
            # An end counts only among the best `width` of its group; the rest of the beam lives on.
            score = value / state.penalty.index_select(0, state.taken[None])
            score = score.masked_fill(~(ended & ranked(value, config)), -torch.inf)
            ending = Pool(grown, sums, length.expand(token.shape), value, score)
            pool = pool.add(ending, unique=config.groups == 1)
        live = value.masked_fill(ended, -torch.inf)
        groups, size = config.groups, config.width // config.groups
        best = leading(live.view(sources, groups, -1), size)  # of each group
        offset = torch.arange(groups, device=live.device)[:, None] * (live.shape[1] // groups)
        kept = (best + offset).flatten(1)
        logprob = live.gather(1, kept)
        # Where fewer live, the best one again, as impossible: processes see words that are allowed.
        best = kept.gather(1, logprob.argmax(1, keepdim=True))
        kept = kept.where(logprob > -torch.inf, best)
        bound = logprob / state.largest[:, None]
        rows = torch.arange(sources, device=parent.device)[:, None] * prefixes
        still = state.over[:, None]
        return state._replace(
            column=token.gather(1, kept).reshape(-1, 1),
            tokens=torch.where(still[:, :, None], state.tokens, take(grown, kept)),
            sums=torch.where(still[:, :, None], state.sums, take(sums, kept)),
            logprob=torch.where(still, state.logprob, logprob),
            pool=pool,
            length=torch.where(state.over, state.length, length),
            over=state.over | settled(pool, bound, config.count) | (state.limit == length),
            taken=length,
            parent=rows + parent.gather(1, kept),
        )

    def read(self, state: Beams, over: list[int]) -> list[tuple[int, list[Hypothesis]]]:
        """Sources' answers with their numbers: finished ones, then, if too few, what lived."""
        config, kept = self.config, torch.tensor(over, device=state.over.device)
        best = [part[kept, : config.count].tolist() for part in state.pool]
        ended = list(zip(*best, strict=True))
        live: list[tuple[list[list[int]], list[list[float]], list[float]]] | None = None
        answers = []
        own = (state.number[kept].tolist(), state.length[kept].tolist())
        for n, (number, length) in enumerate(zip(*own, strict=True)):
            hypotheses: list[Hypothesis] = []
            for words, sums, size, value, score in zip(*ended[n], strict=True):
                each = differences(sums[:size])
                add_new(hypotheses, Hypothesis(words[:size], value, score, True, each))
            if len(hypotheses) < config.count:
                if live is None:  # seldom wanted, and larger than the rest
                    parts = (state.tokens, state.sums, state.logprob)
                    live = list(zip(*(part[kept].tolist() for part in parts), strict=True))
                for words, sums, value in sorted(zip(*live[n], strict=True), key=lambda p: -p[2]):
                    score, each = value / config.penalty(length), differences(sums[:length])
                    add_new(hypotheses, Hypothesis(words[:length], value, score, False, each))
            answers.append((number, hypotheses[: config.count]))
        return answers


def candidates(
    scored: Scored, logprob: Tensor, config: BeamConfig, ends: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Best continuations (A, C) per group, best first: log-probability, parent prefix, token.

    Scores (A · w, V) of prefixes with log-probabilities (A, w); of each the best few are enough.
    """
    sources, prefixes = logprob.shape
    groups, size = config.groups, config.width // config.groups
    count, vocab = (1 + ends) * size, scored.logits.shape[-1]  # at most `ends` of them end a prefix
    if groups == 1:
        best_all = scored.continuations(logprob, count)
        if best_all is not None:
            return best_all
        words = scored.top(min(count, vocab))
    else:
        words = torch.arange(vocab, device=logprob.device).expand(len(scored.logits), -1)
    total = scored.logprob(words).unflatten(0, (sources, -1)) + logprob[:, :, None]
    words, cost = words.view_as(total), torch.zeros_like(total[:, :1])  # (A, w, C'), (A, 1, C')
    chosen: list[tuple[Tensor, Tensor, Tensor]] = []
    for group in range(groups):  # each starts from the one empty prefix
        own = slice(group * size, (group + 1) * size) if prefixes > 1 else slice(0, 1)
        part = total[:, own]
        best = best_tokens((part - cost if group else part).flatten(1), count)
        value, word = part.flatten(1).gather(1, best), words[:, own].flatten(1).gather(1, best)
        chosen.append((value, best // total.shape[2] + own.start, word))
        if groups > 1:  # what earlier groups chose costs something
            more = torch.full_like(value[:, None, :size], config.diversity)
            cost = cost.scatter_add(2, word[:, None, :size], more)
    value, parent, token = (torch.cat(part, 1) for part in zip(*chosen, strict=True))
    missing = count - value.shape[1] // groups
    if not missing:
        return value, parent, token

    def fill(x: Tensor, with_: float) -> Tensor:  # up to as many as a group can keep
        grouped = x.unflatten(1, (groups, -1))
        return torch.nn.functional.pad(grouped, (0, missing), value=with_).flatten(1)

    return fill(value, -torch.inf), fill(parent, 0), fill(token, 0)


def ranked(value: Tensor, config: BeamConfig) -> Tensor:
    """Whether a candidate is among the best `width / groups` of its group."""
    size, per_group = config.width // config.groups, value.shape[1] // config.groups
    rank = torch.arange(value.shape[1], device=value.device) % per_group
    return (rank < size) & (value > -torch.inf)


def settled(pool: Pool, bound: Tensor, count: int) -> Tensor:
    """Sources (A,) whose answers cannot change any more.

    Log-probabilities only fall and the penalty only grows with the length, so no living prefix
    can ever score above `bound` (A, W), its log-probability over the penalty at the limit.
    """
    best = bound.amax(1)
    return (pool.score[:, count - 1] >= best) | (best == -torch.inf)


def differences(sums: Sequence[float]) -> list[float]:
    """What each place adds to a running sum."""
    return [after - before for before, after in zip([0.0, *sums], sums, strict=False)]


def add_new(listed: list[Hypothesis], new: Hypothesis) -> None:
    """Add a possible hypothesis once; two groups of a diverse beam may come to the same words."""
    if new.score > -torch.inf and all(new.tokens != other.tokens for other in listed):
        listed.append(new)
