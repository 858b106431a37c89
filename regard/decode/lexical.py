"""Lexical constraints: beam search for answers that hold given words (Hokamp and Liu 2017).

Prefixes that hold as many tokens of the words compete with each other only, so those that have
begun an unlikely word are not pushed out by those that have not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decode.beam import BeamConfig
from regard.decode.step import Hypothesis, Process, Step, chain
from regard.errors import UsageError

Phrase = tuple[int, ...]
Joins = Callable[[int, int], bool]
"""Whether a token goes on with the word of the token before it."""


class Prefix(NamedTuple):
    """A living prefix and the row of the step that it grew from."""

    tokens: tuple[int, ...]
    logprob: float
    parent: int


def lexical_beam(
    step: Step,
    start: Tensor,
    limit: int,
    eos: Collection[int],
    config: BeamConfig,
    phrases: Sequence[Sequence[int]],
    processes: Sequence[Process] = (),
    joins: Joins | None = None,
) -> list[Hypothesis]:
    """The best hypotheses of one source, start (1, T), that hold every phrase, best first.

    `width` prefixes are kept for each number of phrase tokens that a prefix holds. A phrase after
    which its last word goes on does not count.
    """
    wanted, joins = [tuple(phrase) for phrase in phrases], joins or never
    check(start, limit, eos, wanted)
    live, done = [Prefix((), 0.0, 0)], list[Hypothesis]()
    column, whole = start, sum(map(len, wanted))
    for length in range(1, limit + 1):
        log = step(column).float().log_softmax(-1)
        history = torch.tensor([p.tokens for p in live], dtype=torch.long, device=start.device)
        log = chain(processes, log, history.view(len(live), length - 1))
        banks: dict[int, list[Prefix]] = defaultdict(list)
        for prefix in expand(live, log, config.width, wanted, joins):
            held = sum(held_tokens(prefix.tokens, phrase, joins) for phrase in wanted)
            if prefix.tokens[-1] not in eos:
                banks[held].append(prefix)
            elif held == whole:
                score = prefix.logprob / config.penalty(length)
                done.append(Hypothesis(list(prefix.tokens), prefix.logprob, score, True))
        live = [p for held in sorted(banks) for p in best(banks[held])[: config.width]]
        done = sorted(done, key=lambda h: -h.score)[: config.count]
        bound = max((p.logprob for p in live), default=-torch.inf) / config.penalty(limit)
        if not live or length == limit or (len(done) == config.count and done[-1].score >= bound):
            break
        rows = torch.tensor([p.parent for p in live], device=start.device)
        step.select(rows, len(live))  # all of one source
        column = start.new_tensor([[p.tokens[-1]] for p in live])
    rest = [p for p in best(live) if all(holds(p.tokens, phrase, joins) for phrase in wanted)]
    for p in rest[: config.count - len(done)]:
        score = p.logprob / config.penalty(len(p.tokens))
        done.append(Hypothesis(list(p.tokens), p.logprob, score, False))
    return done


def check(start: Tensor, limit: int, eos: Collection[int], wanted: Sequence[Phrase]) -> None:
    """The phrases must be possible."""
    if len(start) != 1:
        raise UsageError("constrained search", f"{len(start)} sources", "one at a time")
    if any(not phrase or set(phrase) & set(eos) for phrase in wanted):
        raise UsageError("constrained search", "an empty phrase, or one with an end", "words")
    needed = max(1, sum(map(len, wanted)))
    if limit < needed:
        raise UsageError("constrained search", f"at most {limit} new tokens", f"{needed} or more")


def expand(
    live: Sequence[Prefix], log: Tensor, width: int, wanted: Sequence[Phrase], joins: Joins
) -> list[Prefix]:
    """Each prefix with its likeliest tokens, and with those that go on with a missing phrase."""
    top = log.topk(min(2 * width, log.shape[-1]), -1).indices.tolist()
    found = []
    for row, (prefix, likely) in enumerate(zip(live, top, strict=True)):
        missing = [phrase for phrase in wanted if not holds(prefix.tokens, phrase, joins)]
        going = [phrase[held_tokens(prefix.tokens, phrase, joins)] for phrase in missing]
        for token in dict.fromkeys([*likely, *going, *(phrase[0] for phrase in missing)]):
            value = prefix.logprob + float(log[row, token])
            if value > -torch.inf:
                found.append(Prefix((*prefix.tokens, token), value, row))
    return found


def best(prefixes: Sequence[Prefix]) -> list[Prefix]:
    """Likeliest first; of equals the lowest tokens."""
    return sorted(prefixes, key=lambda p: (-p.logprob, p.tokens))


def never(last: int, token: int) -> bool:
    """No token goes on with a word: phrases are compared as tokens only."""
    return False


def holds(tokens: Phrase, phrase: Phrase, joins: Joins = never) -> bool:
    """Whether the phrase stands in the tokens, its last word whole as far as they go."""
    size = len(phrase)
    return any(
        tokens[n : n + size] == phrase
        and (n + size == len(tokens) or not joins(phrase[-1], tokens[n + size]))
        for n in range(len(tokens) - size + 1)
    )


def held_tokens(tokens: Phrase, phrase: Phrase, joins: Joins = never) -> int:
    """How much of a phrase is there: all of it, or what the tokens end with."""
    if holds(tokens, phrase, joins):
        return len(phrase)
    sizes = range(min(len(phrase) - 1, len(tokens)), 0, -1)
    return next((n for n in sizes if tokens[-n:] == phrase[:n]), 0)
