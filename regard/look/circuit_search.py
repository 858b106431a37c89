"""Circuits: the few heads and MLPs that do a task, with a certificate (Wang 2022; Conmy 2023).

A circuit is what is left when all other parts hold the values of corrupted prompts. It is found on
one half of the prompts and judged on the other:

- faithfulness: how much of the task the circuit does alone, by three kinds of ablation
- completeness: circuit and model suffer alike when the same parts are taken from both
- minimality: what each part of it adds
- and how random circuits of the same size do

Edges between its parts are scored to first order (edge attribution patching).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.ambient import Progress, note, progress
from regard.core.attention import Attention
from regard.core.block import Block
from regard.core.norm import RMSNorm
from regard.core.position import rotate
from regard.core.stack import Stack
from regard.errors import DataError, UsageError
from regard.look import patching, results
from regard.look.edits import patch
from regard.look.hooks import HookedModel
from regard.look.logit_lens import stream_parts
from regard.look.results import Ablation, CircuitEdge, Estimate, Site
from regard.model.batch import Batch

MIN_PAIRS = 4  # two to search on, two to judge by


@dataclass(frozen=True)
class CircuitConfig:
    """How a circuit is looked for and judged."""

    kind: Ablation = "resample"
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
        if not 0 < self.keep < 1:
            raise UsageError("finding a circuit", f"keep {self.keep}", "between 0 and 1")


# Search -----------------------------------------------------------------------------------------


def find_circuit(
    hooked: HookedModel,
    pairs: patching.Pairs,
    config: CircuitConfig | None = None,
    *,
    edges: int = 0,
    model: str = "",
    prompts: str = "",
) -> results.Circuit:
    """Look for a circuit on one half of the pairs, drawn at random, judge it on the other.

    With its largest edges where they are asked for; `model` and `prompts` are named in the result.
    """
    config = config or CircuitConfig()
    count = len(pairs.clean.ids)
    if count < MIN_PAIRS:
        expected = f"{MIN_PAIRS} or more: half judge what half find"
        raise DataError("finding a circuit", f"{count} pairs of prompts", expected)
    sites = [*patching.head_sites(hooked), *(patching.mlp_sites(hooked) if config.mlps else [])]
    if not sites:
        raise UsageError("finding a circuit", "a model without heads or MLPs", "a Transformer")
    if pairs.templates is not None and int(pairs.templates.bincount().min()) < MIN_PAIRS:
        note("some templates, or lengths, have fewer than 4 pairs: their means are of few")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(config.seed))
    with progress("finding a circuit") as say:
        task = AblationTask(hooked, pairs.take(order[::2]), sites, config.kind)
        effects = torch.zeros(0)  # what each part alone takes when it is ablated, as a share
        for part in (~torch.eye(len(sites), dtype=torch.bool)).split(32):
            say(f"{len(effects)} of {len(sites)} parts tried")
            effects = torch.cat((effects, 1 - task.shares(part)))
        kept = prune(task, effects, config.keep, say)
        say("certificate")
        certificate, lost = certify(hooked, pairs.take(order[1::2]), sites, kept, config)
        named = dict(zip(sites, effects.tolist(), strict=True))
        node = results.CircuitNode
        nodes = [node(**vars(s), effect=named[s], adds=loss) for s, loss in lost.items()]
        say("edges")
        largest: list[CircuitEdge] = []
        try:
            every = edge_scores(hooked, pairs) if edges else []
            largest = edges_within(hooked, every, list(lost))[:edges]
        except UsageError as error:  # a model whose edges are not scored
            note(f"no edges: {error.found}")
    about = model, prompts, config.seed, config.kind, config.keep, len(sites)
    return results.Circuit(*about, nodes, certificate, named, largest)


class AblationTask:
    """Pairs, parts and a kind of ablation: how well any set of parts does alone."""

    def __init__(
        self, hooked: HookedModel, pairs: patching.Pairs, sites: Sequence[Site], kind: Ablation
    ) -> None:
        self.hooked, self.pairs, self.sites = hooked, pairs, list(sites)
        self.values = patching.ablation_values(hooked, sites, kind, pairs.corrupt, pairs.templates)
        self.model = patching.clean_and_corrupt(hooked, pairs)[0]  # (B,)
        self.empty = self.goals(torch.zeros(1, len(self.sites), dtype=torch.bool))[0]
        self.gap = float((self.model - self.empty).mean())
        if abs(self.gap) < 1e-6 * max(1.0, float(self.model.abs().max())):
            problem = f"the goal is {float(self.model.mean()):.4g} with and without all parts"
            raise DataError("finding a circuit", problem, "a task that the model does")

    def goals(self, kept: Tensor) -> Tensor:
        """The goal (sets, B) of circuits, kept (sets, N)."""
        clean, goal = self.pairs.clean, self.pairs.goal
        return patching.measure_sets(self.hooked, clean, goal, self.sites, ~kept, self.values)

    def shares(self, kept: Tensor) -> Tensor:
        """Faithfulness (sets,) of circuits."""
        return (self.goals(kept).mean(1) - self.empty.mean()) / self.gap


def prune(task: AblationTask, effects: Tensor, keep: float, say: Progress) -> Tensor:
    """The parts that must stay (N,): from the least effect on, groups that are not missed go.

    A group that is missed is halved. What may be missed grows with the parts gone through, so
    that the first do not spend it all; at last each part that is left is tried alone.
    """
    order = effects.abs().argsort()
    kept = torch.ones(len(order), dtype=torch.bool)
    waiting, done = [order], 0
    while waiting:
        group = waiting.pop()
        say(f"{int(kept.sum())} of {len(kept)} parts left")
        tried = kept.index_fill(0, group, False)
        allowed = (1 - keep) * (done + len(group)) / len(order)
        if abs(float(task.shares(tried[None])) - 1) <= allowed:
            kept, done = tried, done + len(group)
        elif len(group) == 1:
            done += 1
        else:
            half = len(group) // 2
            waiting += [group[half:], group[:half]]
    for part in order[kept[order]]:
        tried = kept.index_fill(0, part, False)
        if abs(float(task.shares(tried[None])) - 1) <= 1 - keep:
            kept = tried
    return kept


# Certificate ------------------------------------------------------------------------------------


def certify(
    hooked: HookedModel,
    pairs: patching.Pairs,
    sites: Sequence[Site],
    kept: Tensor,
    config: CircuitConfig,
) -> tuple[results.Certificate, dict[Site, Estimate]]:
    """Judge a circuit, kept (N,), on pairs that it was not found on; what it loses without each."""
    dice = torch.Generator().manual_seed(config.seed)
    tasks = {kind: AblationTask(hooked, pairs, sites, kind) for kind in patching.ABLATIONS}
    task = tasks[config.kind]
    count = len(task.model)
    resamples = torch.randint(count, (config.resamples, count), generator=dice)

    def estimate(task: AblationTask, goals: Tensor) -> Estimate:
        """The mean of goals (B,) as a share of the model's score."""
        shares = goals[resamples].mean(1) / (task.model - task.empty)[resamples].mean(1)
        return Estimate(float(goals.mean() / task.gap), *middle(shares))

    faithfulness: dict[str, Estimate] = {
        kind: estimate(each, each.goals(kept[None])[0] - each.empty) for kind, each in tasks.items()
    }
    others = torch.zeros(config.draws, len(kept), dtype=torch.bool)  # circuits of the same size
    for row in others:
        row[torch.randperm(len(kept), generator=dice)[: int(kept.sum())]] = True
    random = task.shares(others)
    near = abs(faithfulness[config.kind].value - 1)  # too much is as wrong as too little
    away = (torch.rand(config.draws, len(kept), generator=dice) < 0.5) & kept
    gaps = (task.shares(kept & ~away) - task.shares(~away)).abs()  # without the same half of it
    nodes = kept.nonzero()[:, 0]
    without = kept.repeat(len(nodes), 1)
    without[torch.arange(len(nodes)), nodes] = False
    whole = task.goals(kept[None])[0]
    lost = whole - task.goals(without) if len(nodes) else whole[:0]
    certificate = results.Certificate(
        count,
        float(task.model.mean()),
        float(task.empty.mean()),
        faithfulness,
        results.Completeness(float(gaps.mean()), float(gaps.max())),
        Estimate(float(random.mean()), *middle(random)),
        float(((random - 1).abs() <= near).float().mean()),
    )
    return certificate, {task.sites[n]: estimate(task, x) for n, x in zip(nodes, lost, strict=True)}


def middle(values: Tensor) -> tuple[float, float]:
    """Between what 95 of 100 values lie."""
    low, high = torch.quantile(values.double(), torch.tensor([0.025, 0.975]).double()).tolist()
    return low, high


# Edges ------------------------------------------------------------------------------------------

WRITTEN = ("attn.z", "mlp.out")
READ = ("resid_pre", "resid_mid", "attn.q", "attn.k", "attn.v")


class EdgeEnd(NamedTuple):
    """One end of edges."""

    site: Site
    depth: int
    """Only parts of a smaller depth speak to it: 2 for each block, attention before MLP."""
    x: Tensor
    """(B, T, D): what it writes, or the gradient at what it reads."""


def edge_scores(hooked: HookedModel, pairs: patching.Pairs, steps: int = 5) -> list[CircuitEdge]:
    """Every edge of a decoder or encoder, to first order, largest first.

    What a part writes differs between clean and corrupted runs; what a later part does with it is
    the gradient of the goal at that part's own input: their product is the score (edge attribution
    patching, Syed 2023). Where attention is saturated it has no gradient, so gradients are averaged
    on the way from clean to corrupted embeddings (EAP-IG, Hanna 2024); one step is that of clean
    prompts alone.
    """
    name, stack = single_stack(hooked)
    embed, *_, last = patching.stream_taps(name, stack)
    blocks = [f"{name}.blocks.{n}." for n in range(len(stack.blocks))]
    outputs = [embed, *(block + tap for block in blocks for tap in WRITTEN)]
    inputs = [*(block + tap for block in blocks for tap in READ), last]
    with torch.no_grad():
        logits, other = hooked.run(pairs.corrupt, outputs)
        corrupt = pairs.goal(logits, pairs.corrupt)
        logits, own = hooked.run(pairs.clean, outputs)
        gap = patching.mean_gap(pairs.goal(logits, pairs.clean), corrupt)
    change = {tap: other[tap] - own[tap] for tap in outputs}
    rotation = rotary_angles(hooked, stack, pairs.clean)
    receivers: dict[Site, EdgeEnd] = {}
    for step in range(steps):
        share = 0.0 if steps == 1 else (step + 0.5) / steps  # of the way from clean to corrupted
        edits = {embed: patch(own[embed] + share * change[embed])}
        _, seen, gradients = patching.goal_gradients(hooked, pairs.clean, pairs.goal, inputs, edits)
        for end in reading_ends(name, stack, seen, gradients, rotation):
            before = receivers[end.site].x if end.site in receivers else 0
            receivers[end.site] = end._replace(x=before + end.x / steps)
    senders = list(writing_ends(hooked, change))
    edges = [
        CircuitEdge(part.site, reader.site, float((part.x * reader.x).sum() / -gap / len(corrupt)))
        for reader in receivers.values()
        for part in senders
        if part.depth < reader.depth
    ]
    return sorted(edges, key=lambda edge: -abs(edge.score))


def edges_within(
    hooked: HookedModel, edges: Sequence[CircuitEdge], nodes: Sequence[Site]
) -> list[CircuitEdge]:
    """Edges between parts of a circuit, and from the embedding and to the end of the stream.

    A head's q belongs to it alone, k and v to all heads that share them.
    """

    def inside(site: Site) -> bool:
        owner, _, place = site.tap.rpartition(".")
        if place in ("embed", "resid_post"):
            return True
        if place not in ("q", "k", "v") or site.head is None:
            return site in nodes
        attention = cast(Attention, hooked.model.get_submodule(owner))
        shared = 1 if place == "q" else attention.heads // attention.groups
        heads = range(site.head * shared, (site.head + 1) * shared)
        return any(Site(f"{owner}.z", head) in nodes for head in heads)

    return [edge for edge in edges if inside(edge.sender) and inside(edge.receiver)]


def single_stack(hooked: HookedModel) -> tuple[str, Stack]:
    """The one stack of a model with its name; edges of two are not scored."""
    name, stack = patching.last_stack(hooked.model, "scoring edges")
    if hooked.model.encoder is not None and hooked.model.decoder is not None:
        raise UsageError("scoring edges", "a model that is no single stack", "a decoder or encoder")
    if stack.config.block.norm_at != "pre":
        raise UsageError("scoring edges", "norms after the sums", "a model with pre-norm blocks")
    return name, stack


def rotary_angles(hooked: HookedModel, stack: Stack, batch: Batch) -> tuple[Tensor, Tensor] | None:
    """What rotary positions turn queries and keys by."""
    if stack.rotary is None:
        return None
    sequence = hooked.model.embed(hooked.model.reader, batch.written)
    return cast("tuple[Tensor, Tensor]", stack.rotary(sequence.positions, sequence.x))


def writing_ends(hooked: HookedModel, change: dict[str, Tensor]) -> Iterator[EdgeEnd]:
    """What the embedding, each head and each MLP write, as the difference of the two runs."""
    taps = {"embed": "", "head": ".z", "mlp": ".out"}  # a bias is the same in both
    for parts, x in stream_parts(hooked, change):
        for part, written in zip(parts, x.unbind(2), strict=True):
            if part.kind in taps:
                depth = -1 if part.block is None else 2 * part.block + (part.kind == "mlp")
                yield EdgeEnd(Site(part.layer + taps[part.kind], part.head), depth, written)


def reading_ends(
    name: str,
    stack: Stack,
    own: dict[str, Tensor],
    gradients: dict[str, Tensor],
    rotation: tuple[Tensor, Tensor] | None,
) -> Iterator[EdgeEnd]:
    """The goal's gradient at what each head's q, k and v, each MLP and the output head read."""
    last = patching.stream_taps(name, stack)[-1]
    after = [f"{name}.blocks.{n}.resid_pre" for n in range(1, len(stack.blocks))] + [last]
    for n, module in enumerate(stack.blocks):
        block, at = cast(Block, module), f"{name}.blocks.{n}"
        for kind in ("q", "k", "v"):
            tap = f"{at}.attn.{kind}"
            each = pull_back(block.attn, kind, own[f"{at}.resid_pre"], gradients[tap], rotation)
            for head in range(each.shape[2]):
                yield EdgeEnd(Site(tap, head), 2 * n, each[:, :, head])
        through = gradients[f"{at}.resid_mid"] - gradients[after[n]]  # not by the residual
        yield EdgeEnd(Site(f"{at}.mlp.out"), 2 * n + 1, through)
    yield EdgeEnd(Site(last), 2 * len(stack.blocks), gradients[last])


def pull_back(
    attn: Attention, kind: str, x: Tensor, gradient: Tensor, rotation: tuple[Tensor, Tensor] | None
) -> Tensor:
    """A gradient at q, k or v (B, T, H, K) as that at a stream of each head's own (B, T, H, D)."""
    linear: nn.Linear = getattr(attn, kind)
    norm: RMSNorm | None = {"q": attn.q_norm, "k": attn.k_norm}.get(kind)
    heads = gradient.shape[2]
    with torch.enable_grad():
        each = x.unsqueeze(2).expand(-1, -1, heads, -1).detach().requires_grad_()
        weight = linear.weight.unflatten(0, (heads, -1))  # (H, K, D)
        out = torch.einsum("bthd,hkd->bthk", attn.norm(each), weight)
        if linear.bias is not None:
            out = out + linear.bias.unflatten(0, (heads, -1))
        out = out if norm is None else norm(out)
        if rotation is not None and kind != "v":
            out = rotate(out, rotation)
        (pulled,) = torch.autograd.grad(out, each, gradient)
    return pulled
