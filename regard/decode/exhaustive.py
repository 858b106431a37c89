"""Exhaustive search: score all K^N sequences. The oracle of every other search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection

import torch
from torch import Tensor

from regard.decode.beam import Penalty, length_penalty
from regard.decode.step import Hypothesis
from regard.errors import UsageError

MOST = 2_000_000

LogProbs = Callable[[Tensor], Tensor]
"""Prefixes (N, t), t ≥ 0 new tokens → log-probabilities (N, V) of the next one."""


def exhaustive(
    log_probs: LogProbs,
    vocab: int,
    limit: int,
    eos: Collection[int],
    count: int = 1,
    penalty: Penalty | None = None,
) -> list[Hypothesis]:
    """The exact `count` best sequences that end, or reach `limit` tokens, best first.

    Ended ones come before unended ones, as in `beam`.
    """
    if vocab**limit > MOST:
        sequences = f"{vocab}^{limit} = {vocab**limit:,} sequences"
        raise UsageError("exhaustive search", sequences, f"at most {MOST:,}", "use beam search")
    penalty = length_penalty() if penalty is None else penalty
    answers: list[Hypothesis] = []
    live: dict[tuple[int, ...], float] = {(): 0.0}
    for length in range(1, limit + 1):
        prefixes = torch.tensor(list(live), dtype=torch.long).view(len(live), length - 1)
        table = log_probs(prefixes).double().tolist()
        grown: dict[tuple[int, ...], float] = {}
        for (prefix, value), row in zip(live.items(), table, strict=True):
            for token, logp in enumerate(row):
                grown[(*prefix, token)] = value + logp
        ended = {tokens: value for tokens, value in grown.items() if tokens[-1] in eos}
        live = {tokens: value for tokens, value in grown.items() if tokens[-1] not in eos}
        last = live if length == limit else {}
        for tokens, value in itertools.chain(ended.items(), last.items()):
            answers.append(
                Hypothesis(list(tokens), value, value / penalty(length), tokens[-1] in eos)
            )
        if not live:
            break
    answers.sort(key=lambda h: (not h.finished, -h.score, h.tokens))
    return answers[:count]
