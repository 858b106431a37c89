"""Exhaustive search: score all K^N sequences. The oracle of every other search."""

from __future__ import annotations

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
    answers = list[Hypothesis]()
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]  # tokens, their log-probability
    for length in range(1, limit + 1):
        prefixes = torch.tensor([tokens for tokens, _ in live], dtype=torch.long)
        table = log_probs(prefixes.view(len(live), length - 1)).double().tolist()
        grown = [
            ((*tokens, token), value + more)
            for (tokens, value), row in zip(live, table, strict=True)
            for token, more in enumerate(row)
        ]
        live = [each for each in grown if each[0][-1] not in eos]
        for tokens, value in grown:
            ended = tokens[-1] in eos
            if ended or length == limit:
                answers.append(Hypothesis([*tokens], value, value / penalty(length), ended))
        if not live:
            break
    answers.sort(key=lambda h: (not h.finished, -h.score, h.tokens))
    return answers[:count]
