"""Beam search: keep the `width` best prefixes of each source at each step (Wu 2016).

All on tensors. A source's prefixes are `width` neighbouring rows of the model; a source whose
answers can no longer change is dropped from the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decode.penalty import Penalty, length_penalty
from regard.decode.pool import Pool, take
from regard.decode.step import Hypothesis, Limit, Process, Step, chain, limits_of
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
    sources, device = len(start), start.device
    limits = limits_of(limit, sources)
    most = max(limits, default=0)
    last = torch.tensor(limits, device=device)
    largest = torch.tensor([config.penalty(n) for n in limits], device=device)
    ends = torch.tensor(sorted(eos), dtype=torch.long, device=device)
    tokens = start.new_zeros(sources, 1, most)  # one empty prefix per source
    logprob = torch.zeros(sources, 1, device=device)
    pool = Pool.empty(tokens, config.width)
    active = torch.arange(sources, device=device)
    answers: list[list[Hypothesis]] = [[] for _ in range(sources)]
    column = start
    for length in range(1, most + 1):
        logits = step(column).float()
        norm = logits.logsumexp(-1, keepdim=True)
        if processes:  # on log-probabilities of the model, so that what is left keeps its own
            history = tokens[:, :, : length - 1].flatten(0, 1)
            logits, norm = chain(processes, logits - norm, history), torch.zeros_like(norm)
        shape = (*logprob.shape, -1)
        value, parent, token = candidates(
            logits.view(shape), norm.view(shape), logprob, config, len(ends)
        )
        grown = take(tokens, parent)
        grown[:, :, length - 1] = token
        ended = torch.isin(token, ends)
        # An end counts only among the best `width` of its group; the rest of the beam lives on.
        ending = finished(grown, value, ended & ranked(value, config), length, config)
        pool = pool.add(ending, unique=config.groups == 1)
        live = value.masked_fill(ended, -torch.inf)
        kept = live_order(live, config)
        logprob = live.gather(1, kept)
        # Where fewer live, the best one again, as impossible: processes see words that are allowed.
        best = kept.gather(1, logprob.argmax(1, keepdim=True))
        kept = kept.where(logprob > -torch.inf, best)
        tokens, parent = take(grown, kept), parent.gather(1, kept)
        over = settled(pool, logprob / largest[:, None], config.count) | (last == length)
        for index in over.nonzero()[:, 0].tolist():
            answers[int(active[index])] = read(pool, tokens, logprob, index, length, config)
        if bool(over.all()):
            break
        rest = (~over).nonzero()[:, 0]
        prefixes = parent.new_tensor(column.shape[0] // len(active))  # rows per source so far
        step.select((rest[:, None] * prefixes + parent[rest]).flatten(), config.width)
        active, tokens, logprob, pool = active[rest], tokens[rest], logprob[rest], pool.rows(rest)
        last, largest = last[rest], largest[rest]
        column = tokens[:, :, length - 1].reshape(-1, 1)
    return answers


def candidates(
    logits: Tensor, norm: Tensor, logprob: Tensor, config: BeamConfig, ends: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Best continuations (A, C) per group, best first: log-probability, parent prefix, token.

    logits (A, W, V), and norm (A, W, 1) to subtract. Per prefix the best few by raw logit are
    enough, so the vocabulary is never normalised as a whole.
    """
    sources, prefixes, vocab = logits.shape
    size = config.width // config.groups
    per_prefix = min((1 + ends) * size, vocab)  # at most `ends` of them end a prefix
    chosen: list[tuple[Tensor, Tensor, Tensor]] = []
    used = torch.zeros(sources, vocab, device=logits.device)
    for group in range(config.groups):
        first = prefixes == 1  # every group starts from the one empty prefix
        own = slice(0, 1) if first else slice(group * size, (group + 1) * size)
        ranking = logits[:, own] - config.diversity * used[:, None]
        token = ranking.topk(per_prefix, -1).indices  # (A, w, C')
        total = logprob[:, own, None] + (logits[:, own] - norm[:, own]).gather(-1, token)
        order = total - config.diversity * used[:, None].expand_as(logits[:, own]).gather(-1, token)
        best = order.flatten(1).argsort(dim=1, descending=True, stable=True)[:, : (1 + ends) * size]
        value, word = total.flatten(1).gather(1, best), token.flatten(1).gather(1, best)
        chosen.append((value, best // per_prefix + (own.start or 0), word))
        if config.groups > 1:
            used = used.scatter_add(1, word[:, :size], torch.ones_like(value[:, :size]))
    value, parent, token = (torch.cat(part, 1) for part in zip(*chosen, strict=True))
    return pad_candidates(value, parent, token, config, ends)


def pad_candidates(
    value: Tensor, parent: Tensor, token: Tensor, config: BeamConfig, ends: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Fill up with impossible continuations, so that each group has as many as it can keep."""
    size = config.width // config.groups
    wanted, have = (1 + ends) * size, value.shape[1] // config.groups
    missing = wanted - have

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
    best = live.view(len(live), config.groups, per_group).topk(size, -1).indices
    return (best + torch.arange(config.groups, device=live.device)[:, None] * per_group).flatten(1)


def finished(
    tokens: Tensor, logprob: Tensor, ended: Tensor, length: int, config: BeamConfig
) -> Pool:
    """Candidates that ended here, as a pool; −inf where one did not."""
    score = (logprob / config.penalty(length)).masked_fill(~ended, -torch.inf)
    return Pool(tokens, torch.full_like(tokens[:, :, 0], length), logprob, score)


def settled(pool: Pool, bound: Tensor, count: int) -> Tensor:
    """Sources (A,) whose answers cannot change any more.

    Log-probabilities only fall and the penalty only grows with the length, so no living prefix
    can ever score above `bound` (A, W), its log-probability over the penalty at the limit.
    """
    best = bound.amax(1)
    return (pool.score[:, count - 1] >= best) | (best == -torch.inf)


def read(
    pool: Pool, tokens: Tensor, logprob: Tensor, index: int, length: int, config: BeamConfig
) -> list[Hypothesis]:
    """A source's answers: finished ones first, then, if too few, what was still alive."""
    found: list[Hypothesis] = []
    for n in range(config.width):
        words = pool.tokens[index, n, : int(pool.length[index, n])].tolist()
        add_new(found, words, float(pool.logprob[index, n]), float(pool.score[index, n]), True)
    for n in logprob[index].argsort(dim=0, descending=True, stable=True).tolist():
        value = float(logprob[index, n])
        if len(found) < config.count:
            words = tokens[index, n, :length].tolist()
            add_new(found, words, value, value / config.penalty(length), False)
    return found[: config.count]


def add_new(
    found: list[Hypothesis], words: list[int], logprob: float, score: float, finished: bool
) -> None:
    """Add a possible hypothesis once; two groups of a diverse beam may come to the same words."""
    if score > -torch.inf and all(words != other.tokens for other in found):
        found.append(Hypothesis(words, logprob, score, finished))
