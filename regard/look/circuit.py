"""Circuits: the few heads and MLPs that do a task, with a certificate (Wang 2022; Conmy 2023).

A circuit is what is left when all other parts hold the values of corrupted prompts. It is found on
one half of the prompts and judged on the other:

- faithfulness: how much of the task the circuit does alone, by three kinds of ablation
- completeness: circuit and model suffer alike when the same parts are taken from both
- minimality: what each part of it adds
- and how random circuits of the same size do
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError, UsageError, check_known
from regard.look.ablate import KINDS, Kind, fill
from regard.look.goal import Goal
from regard.look.hooks import Board
from regard.look.patching import Pairs, ends
from regard.look.sites import Site, head_sites, measure, mlp_sites

LEAST = 4  # pairs: two to search on, two to judge by
Progress = Callable[[str], None]


@dataclass(frozen=True)
class CircuitConfig:
    """How a circuit is looked for and judged."""

    kind: Kind = "resample"
    """What stands in place of parts outside the circuit while it is looked for."""
    keep: float = 0.9
    """Share of the task that the circuit must do: within 1 − keep of the model, either way."""
    mlps: bool = True
    """MLPs are parts too; else they stay alive."""
    draws: int = 100
    """Random circuits, and subsets for completeness."""
    resamples: int = 1000
    """Of the pairs, for intervals."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_known(self.kind, KINDS, "finding a circuit")
        if not 0 < self.keep < 1:
            raise UsageError("finding a circuit", f"keep {self.keep}", "between 0 and 1")


class Share(NamedTuple):
    """A share of the model's score, with the interval that holds 95 of 100 resamples of pairs."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Certificate:
    """What a circuit is worth, on pairs that it was not found on."""

    pairs: int
    model: float
    """Mean goal of the whole model."""
    empty: float
    """Mean goal when every part is ablated."""
    faithfulness: dict[str, Share]
    """By kind of ablation: (goal of the circuit − empty) / (model − empty)."""
    completeness: tuple[float, float]
    """Mean and largest |circuit without K − model without K| over random subsets K."""
    minimality: dict[Site, Share]
    """What the circuit loses without each part."""
    random: Share
    """Faithfulness of random circuits of the same size: mean and the middle 95 %."""
    beaten: float
    """Share of them that are as faithful as the circuit, or more."""


@dataclass(frozen=True)
class Circuit:
    """Parts of a model that do a task."""

    nodes: list[Site]
    sites: list[Site]
    """All parts that were considered."""
    effects: dict[Site, float] = field(repr=False)
    """What each part does when it alone is ablated, as a share of the model's score."""
    certificate: Certificate


def find_circuit(
    board: Board,
    pairs: Pairs,
    config: CircuitConfig | None = None,
    progress: Progress = lambda text: None,
) -> Circuit:
    """Look for a circuit on one half of the pairs, drawn at random, judge it on the other."""
    config = config or CircuitConfig()
    count = len(pairs.clean.ids)
    if count < LEAST:
        found = f"{count} pairs of prompts"
        raise DataError("finding a circuit", found, f"{LEAST} or more: half judge what half find")
    sites = [*head_sites(board), *(mlp_sites(board) if config.mlps else [])]
    if not sites:
        raise UsageError("finding a circuit", "a model without heads or MLPs", "a Transformer")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(config.seed))
    search = Task(board, take(pairs, order[::2]), sites, config.kind)
    effects = single_effects(search, progress)
    kept = prune(search, effects, config.keep, progress)
    progress("certificate")
    judged = take(pairs, order[1::2])
    certificate = certify(board, judged, sites, kept, config)
    nodes = [site for site, keep in zip(sites, kept.tolist(), strict=True) if keep]
    named = dict(zip(sites, effects.tolist(), strict=True))
    return Circuit(nodes, sites, named, certificate)


class Task:
    """Pairs, parts and a kind of ablation: how well any set of parts does alone."""

    def __init__(self, board: Board, pairs: Pairs, sites: Sequence[Site], kind: Kind) -> None:
        self.board, self.pairs, self.sites = board, pairs, list(sites)
        self.fills = fill(board, sites, kind, pairs.corrupt, pairs.templates)
        self.model = ends(board, pairs)[0]  # (B,)
        self.empty = self.goals(torch.zeros(1, len(self.sites), dtype=torch.bool))[0]
        self.gap = float((self.model - self.empty).mean())
        if abs(self.gap) < 1e-6 * max(1.0, float(self.model.abs().max())):
            found = f"the goal is {float(self.model.mean()):.4g} with and without all parts"
            raise DataError("finding a circuit", found, "a task that the model does")

    def goals(self, kept: Tensor) -> Tensor:
        """The goal (sets, B) of circuits, kept (sets, N)."""
        return measure(self.board, self.pairs.clean, self.pairs.goal, self.sites, ~kept, self.fills)

    def shares(self, kept: Tensor) -> Tensor:
        """Faithfulness (sets,) of circuits."""
        return (self.goals(kept).mean(1) - self.empty.mean()) / self.gap


def take(pairs: Pairs, rows: Tensor) -> Pairs:
    """Some of the pairs."""
    clean, corrupt = (batch.each(lambda x: x[rows]) for batch in (pairs.clean, pairs.corrupt))
    goal = pairs.goal
    given = (goal.bad, goal.at, pairs.templates)
    bad, at, templates = (None if x is None else x[rows] for x in given)
    return Pairs(clean, corrupt, Goal(goal.good[rows], bad, at, goal.kind), templates)


def single_effects(task: Task, progress: Progress) -> Tensor:
    """What each part alone takes from the model's score when it is ablated (N,), as a share."""
    alone = ~torch.eye(len(task.sites), dtype=torch.bool)
    found = torch.zeros(0)
    for part in alone.split(32):
        progress(f"{len(found)} of {len(task.sites)} parts tried")
        found = torch.cat((found, 1 - task.shares(part)))
    return found


def prune(task: Task, effects: Tensor, keep: float, progress: Progress) -> Tensor:
    """The parts that must stay (N,): from the least effect on, groups that are not missed go.

    A group that is missed is halved. What may be missed grows with the parts gone through, so
    that the first do not spend it all; at last each part that is left is tried alone.
    """
    order = effects.abs().argsort()
    kept = torch.ones(len(order), dtype=torch.bool)
    waiting, done = [order], 0
    while waiting:
        group = waiting.pop()
        progress(f"{int(kept.sum())} of {len(kept)} parts left")
        tried = kept.clone()
        tried[group] = False
        allowed = (1 - keep) * (done + len(group)) / len(order)
        if abs(float(task.shares(tried[None])) - 1) <= allowed:
            kept, done = tried, done + len(group)
        elif len(group) == 1:
            done += 1
        else:
            half = len(group) // 2
            waiting += [group[half:], group[:half]]
    for part in order[kept[order]]:
        tried = kept.clone()
        tried[part] = False
        if abs(float(task.shares(tried[None])) - 1) <= 1 - keep:
            kept = tried
    return kept


# Certificate ------------------------------------------------------------------------------------


def certify(
    board: Board, pairs: Pairs, sites: Sequence[Site], kept: Tensor, config: CircuitConfig
) -> Certificate:
    """Judge a circuit, kept (N,), on pairs that it was not found on."""
    dice = torch.Generator().manual_seed(config.seed)
    tasks = {kind: Task(board, pairs, sites, kind) for kind in KINDS}
    task = tasks[config.kind]
    drawn = torch.randint(len(task.model), (config.resamples, len(task.model)), generator=dice)
    faithful: dict[str, Share] = {
        kind: share_of(t, t.goals(kept[None])[0], drawn) for kind, t in tasks.items()
    }
    others = random_sets(kept, config.draws, dice)
    random = task.shares(others)
    near = abs(faithful[config.kind].value - 1)  # to the model: too much is as wrong as too little
    return Certificate(
        len(task.model),
        float(task.model.mean()),
        float(task.empty.mean()),
        faithful,
        completeness(task, kept, config.draws, dice),
        minimality(task, kept, drawn),
        Share(float(random.mean()), *middle(random)),
        float(((random - 1).abs() <= near).float().mean()),
    )


def share_of(task: Task, goals: Tensor, drawn: Tensor) -> Share:
    """Faithfulness of a circuit's goals (B,), with an interval over resampled pairs."""
    gap = (task.model - task.empty)[drawn].mean(1)
    shares = (goals - task.empty)[drawn].mean(1) / gap
    value = float((goals.mean() - task.empty.mean()) / task.gap)
    return Share(value, *middle(shares))


def middle(values: Tensor) -> tuple[float, float]:
    """Between what 95 of 100 values lie."""
    low, high = torch.quantile(values.double(), torch.tensor([0.025, 0.975]).double()).tolist()
    return low, high


def random_sets(kept: Tensor, count: int, dice: torch.Generator) -> Tensor:
    """Sets (count, N) of as many parts as a circuit has."""
    made = torch.zeros(count, len(kept), dtype=torch.bool)
    for row in made:
        row[torch.randperm(len(kept), generator=dice)[: int(kept.sum())]] = True
    return made


def completeness(
    task: Task, kept: Tensor, count: int, dice: torch.Generator
) -> tuple[float, float]:
    """How differently circuit and model do without the same random half of the circuit."""
    away = (torch.rand(count, len(kept), generator=dice) < 0.5) & kept
    gone = (task.shares(kept & ~away) - task.shares(~away)).abs()
    return float(gone.mean()), float(gone.max())


def minimality(task: Task, kept: Tensor, drawn: Tensor) -> dict[Site, Share]:
    """What the circuit loses without each of its parts, of the model's score."""
    numbers = kept.nonzero()[:, 0].tolist()
    if not numbers:
        return {}
    without = kept.repeat(len(numbers), 1)
    without[torch.arange(len(numbers)), numbers] = False
    goals, whole = task.goals(without), task.goals(kept[None])[0]
    gap = (task.model - task.empty)[drawn].mean(1)
    found = {}
    for number, goal in zip(numbers, goals, strict=True):
        lost = whole - goal
        shares = lost[drawn].mean(1) / gap
        found[task.sites[number]] = Share(float(lost.mean() / task.gap), *middle(shares))
    return found
