"""Small models of a few tokens, each a `Step` with its whole history in plain lists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from regard.decode.beam import BeamConfig, BeamSearch
from regard.decode.constraints import LexicalSearch
from regard.decode.loop import Loop
from regard.decode.sampling import Ends, SampleConfig, Sampling
from regard.decode.step import Hypothesis, Limit, Process


class Toy:
    """Next-token logits are any function of the new tokens so far and of the row's first token."""

    def __init__(self, rule: Callable[[list[int], int], Tensor], begin: int = 1) -> None:
        self.rule, self.begin = rule, begin
        self.rows: list[list[int]] | None = None
        self.asked: list[int] = []
        """Rows of each call."""

    def __call__(self, ids: Tensor) -> Tensor:
        old = self.rows if self.rows is not None else [[] for _ in ids]
        self.rows = [[*row, *new] for row, new in zip(old, ids.tolist(), strict=True)]
        self.asked.append(len(ids))
        return torch.stack([self.rule(row[self.begin :], row[0]) for row in self.rows])

    def select(self, rows: Tensor, group: int = 1) -> None:
        assert self.rows is not None and len(rows) % group == 0
        self.rows = [list(self.rows[row]) for row in rows.tolist()]


def hashed(vocab: int, seed: int, scale: float = 1.5) -> Callable[[list[int], int], Tensor]:
    """Random logits that depend on the last two tokens, the length and the first token."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(vocab + 1, vocab + 1, vocab, generator=generator) * scale
    wave = torch.arange(vocab) + 1.0

    def rule(tokens: list[int], first: int) -> Tensor:
        before = [vocab, vocab, *tokens][-2:]
        return table[before[0], before[1]] + 0.3 * torch.sin(wave * (len(tokens) + 1) + first)

    return rule


def scored(rule: Callable[[list[int], int], Tensor], tokens: list[int], first: int = 0) -> float:
    """The log-probability of tokens, one after the other in float64."""
    total = 0.0
    for n, token in enumerate(tokens):
        total += float(rule(tokens[:n], first).double().log_softmax(-1)[token])
    return total


def table_rule(rows: dict[tuple[int, ...], list[float]]) -> Callable[[list[int], int], Tensor]:
    """Probabilities after each prefix, by hand."""
    return lambda tokens, first: torch.tensor(rows[tuple(tokens)]).log()


def generate(
    step: Toy,
    start: Tensor,
    limit: Limit,
    config: SampleConfig | None = None,
    ends: Ends | None = None,
    processes: Sequence[Process] = (),
) -> list[Hypothesis]:
    """One hypothesis per row, greedy or drawn."""
    found = Loop(step).run(Sampling(config, ends, processes), start, limit)
    return [hypothesis for (hypothesis,) in found]


def beam(
    step: Toy,
    start: Tensor,
    limit: Limit,
    eos: Collection[int],
    config: BeamConfig,
    processes: Sequence[Process] = (),
) -> list[list[Hypothesis]]:
    """The best hypotheses of each source."""
    return Loop(step).run(BeamSearch(config, eos, processes), start, limit)


def lexical_beam(
    step: Toy,
    start: Tensor,
    limit: int,
    eos: Collection[int],
    config: BeamConfig,
    phrases: Sequence[Sequence[int]],
    processes: Sequence[Process] = (),
    joins: Callable[[int, int], bool] = lambda last, token: False,
) -> list[Hypothesis]:
    """The best hypotheses of one source that hold every phrase."""
    search = LexicalSearch(config, eos, phrases, joins, processes)
    return Loop(step).run(search, start, limit)[0]
