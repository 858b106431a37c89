"""Patching: put activations of one run into another, and see what it does to an answer.

- `patch_sites`: activation patching, each site alone (Meng 2022; Wang 2022)
- `patch_paths`: path patching, what a head does through certain receivers alone (Wang 2022)
- `measure_effects`: any of these over all heads, MLPs or positions
- `ablation_values` and `measure_sets`: ablation of any sets of sites, many in one forward pass
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from regard.ambient import progress
from regard.core.attention import Attention
from regard.core.stack import Stack
from regard.errors import DataError, UsageError, check_known
from regard.look.edits import HEAD, Edit, Edits, patch, zero
from regard.look.hooks import HookedModel
from regard.look.results import Ablation, Over, PatchEffects, Site, SiteEffect
from regard.look.tap_names import find_taps
from regard.model.batch import Batch, tile_rows
from regard.model.model import Model

DOING = "patching activations"
ROWS = 256  # of one forward pass
ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)

Values = Mapping[str, Tensor]
"""Tap → what stands there instead, broadcastable to the activation of the batch."""


# Goals: the metric that is explained ------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """One number a row: the logit of an answer, the logit difference of two, or any metric."""

    good: Tensor
    """(B,): id of the token, or number of the class, that is asked for."""
    bad: Tensor | None = None
    """(B,): what it is compared with; None where it stands alone."""
    at: Tensor | None = None
    """(B,): column that predicts it; None is the last real one."""
    kind: Literal["logit", "logprob"] = "logit"
    metric: Callable[..., Tensor] | None = None
    """A function of the logits (B, V) there, or of them and this goal → one number a row (B,)."""

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Scores (B, T, V) or (B, classes) → one number a row (B,)."""
        rows = torch.arange(len(logits), device=logits.device)
        if logits.dim() == 3:
            at = last_columns(batch) if self.at is None else self.at
            logits = logits[rows, at.to(logits.device)]  # (B, V)
        if self.metric is not None:
            several = len(inspect.signature(self.metric).parameters) > 1
            values = self.metric(logits, self) if several else self.metric(logits)
            shape = getattr(values, "shape", type(values).__name__)
            if shape != rows.shape:
                expected = f"a tensor of one number a row, {tuple(rows.shape)}"
                gives = tuple(shape) if isinstance(shape, torch.Size) else shape
                raise UsageError("measuring a goal", f"a metric that gives {gives}", expected)
            return values
        if self.kind == "logprob":
            logits = logits.log_softmax(-1)
        good = logits[rows, self.good.to(logits.device)]
        return good if self.bad is None else good - logits[rows, self.bad.to(logits.device)]

    def rows(self, count: int) -> Goal:
        """The goal of `count` copies of its rows."""
        return self.each(lambda x: x.repeat(count))

    def each(self, change: Callable[[Tensor], Tensor]) -> Goal:
        """The goal with all its tensors changed in the same way."""
        bad, at = (None if x is None else change(x) for x in (self.bad, self.at))
        return replace(self, good=change(self.good), bad=bad, at=at)


def last_columns(batch: Batch) -> Tensor:
    """The column (B,) of each row's last real token, whichever side is padded."""
    width = batch.ids.shape[1]
    if batch.mask is None:
        return torch.full((len(batch.ids),), width - 1)
    columns = torch.arange(width, device=batch.mask.device)
    return torch.where(batch.mask, columns, -1).amax(1)


def goal_columns(model: Model, batch: Batch, goal: Goal) -> Tensor:
    """The column (B,) whose vector becomes the goal's scores."""
    if model.head.config.take not in ("all", "last"):
        rows = len(batch.ids)
        return torch.zeros(rows).long() if batch.mask is None else batch.mask.int().argmax(-1)
    return last_columns(batch) if goal.at is None else goal.at


class Pairs(NamedTuple):
    """Prompts with corrupted twins, token by token of the same length, and what is asked."""

    clean: Batch
    corrupt: Batch
    goal: Goal
    templates: Tensor | None = None
    """(B,): which of them are alike, position by position; None: all."""

    def take(self, rows: Tensor) -> Pairs:
        """Some of the pairs."""
        clean, corrupt = (batch.each(lambda x: x[rows]) for batch in (self.clean, self.corrupt))
        templates = None if self.templates is None else self.templates[rows]
        return Pairs(clean, corrupt, self.goal.each(lambda x: x[rows]), templates)


# Sites: what is patched -------------------------------------------------------------------------


def head_sites(hooked: HookedModel) -> list[Site]:
    """Every attention head of a model, in its order."""
    return [
        Site(f"{path}.z", head)
        for path, module in hooked.model.named_modules()
        if isinstance(module, Attention)
        for head in range(module.heads)
    ]


def mlp_sites(hooked: HookedModel) -> list[Site]:
    """Every MLP of a model."""
    return [Site(name) for name in hooked.taps if name.endswith(".mlp.out")]


def taps_of(sites: Sequence[Site]) -> list[str]:
    """The taps of sites, each once."""
    return list(dict.fromkeys(site.tap for site in sites))


def site_masks(sites: Sequence[Site], chosen: Tensor, like: Values) -> dict[str, Tensor]:
    """For sets of sites, chosen (sets, N): what each set replaces at each tap (sets, T, H, 1)."""
    masks: dict[str, Tensor] = {}
    long = {site.tap for site in sites if site.position is not None}
    for column, site in zip(chosen.T, sites, strict=True):
        if not column.any():
            continue
        if site.tap not in masks:
            _, length, *rest = like[site.tap].shape
            has_heads = HEAD.get(site.tap.rpartition(".")[2]) == 2
            shape = [rest[0], *[1] * (len(rest) - 1)] if has_heads else [1] * len(rest)
            size = len(chosen), length if site.tap in long else 1, *shape
            masks[site.tap] = torch.zeros(size, dtype=torch.bool)
        where = slice(None) if site.position is None else site.position
        heads = slice(None) if site.head is None else site.head
        masks[site.tap][column, where, heads] = True
    return masks


@torch.no_grad()
def measure_sets(
    hooked: HookedModel,
    batch: Batch,
    goal: Goal,
    sites: Sequence[Site],
    chosen: Tensor,
    values: Values,
    rows: int = ROWS,
    run: Callable[[Batch, dict[str, Edit]], Tensor] | None = None,
) -> Tensor:
    """The goal (sets, B) when the sites of each set, chosen (sets, N), hold other values.

    One forward pass tries many sets: the batch is repeated, each copy with masks of its own.
    `run` gives the logits of such a batch with its edits; without it the model runs as it is.
    """
    goals, count = [], len(batch.ids)
    for part in chosen.split(max(1, rows // count)):
        sets = len(part)
        edits = {}
        for tap, mask in site_masks(sites, part, values).items():
            value = tile_rows(values[tap], sets) if len(values[tap]) > 1 else values[tap]
            edits[tap] = patch(value, mask=mask.repeat_interleave(count, 0))
        tiled = batch.tile(sets)
        logits = hooked.run(tiled, (), edits)[0] if run is None else run(tiled, edits)
        goals.append(goal.rows(sets)(logits, tiled).view(sets, count).cpu())
    return torch.cat(goals)


@torch.no_grad()
def ablation_values(
    hooked: HookedModel,
    sites: Sequence[Site],
    kind: Ablation,
    reference: Batch,
    templates: Tensor | None = None,
) -> Values:
    """What an ablation puts at each tap; each kind asks another question (Wang 2022; Chan 2022).

    `zero` takes a part away; `mean` takes what is particular to a prompt: the mean over reference
    prompts of its template, at each position; `resample` takes what a prompt and its corrupted
    twin, the same row of `reference`, do not share.
    """
    check_known(kind, ABLATIONS, "ablating")
    _, seen = hooked.run(reference, taps_of(sites))
    if kind == "resample":
        return seen
    if kind == "zero":
        return {tap: torch.zeros_like(x[:1]) for tap, x in seen.items()}
    return {tap: template_mean(x, tap, reference, templates) for tap, x in seen.items()}


def template_mean(x: Tensor, tap: str, batch: Batch, templates: Tensor | None = None) -> Tensor:
    """The mean over the rows of a batch (1, T, …), or of each row's template (B, T, …).

    `templates` (B,) numbers them: positions mean the same only within one. Padding is left out.
    """
    source = batch.target is not None and tap.startswith("encoder.")
    real = batch.source_mask if source else batch.mask
    weight = x.new_ones(x.shape[:2]) if real is None else real.to(x)  # (B, T)
    alike = x.new_ones(1, len(x))
    if templates is not None:
        alike = (templates[:, None] == templates).to(x)  # (B, B), also to its device
    total = torch.einsum("ab,bt,bt...->at...", alike, weight, x)
    return total / (alike @ weight).clamp_min(1).view(*total.shape[:2], *[1] * (x.dim() - 2))


# Activation patching ----------------------------------------------------------------------------


class Effects(NamedTuple):
    """What each site does to the goal."""

    effect: Tensor
    """(N, B): 0 is the run that was patched, 1 the run that the values are from."""
    clean: Tensor
    """(B,): the goal of the clean run."""
    corrupt: Tensor
    """(B,): and of the corrupted one."""

    @property
    def mean(self) -> Tensor:
        """(N,): over pairs."""
        return self.effect.mean(1)


@torch.no_grad()
def clean_and_corrupt(hooked: HookedModel, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """The goal (B,) of the clean and of the corrupted run."""
    clean, _ = hooked.run(pairs.clean)
    corrupt, _ = hooked.run(pairs.corrupt)
    return pairs.goal(clean, pairs.clean).cpu(), pairs.goal(corrupt, pairs.corrupt).cpu()


def mean_gap(clean: Tensor, corrupt: Tensor) -> Tensor:
    """By how much the goal differs on average; refuses pairs that do not differ."""
    gap = (clean - corrupt).mean()
    if gap.abs() < 1e-6 * max(1.0, float(clean.abs().max())):
        problem = f"the goal is {float(clean.mean()):.4g} in clean and corrupted prompts alike"
        raise UsageError("patching", problem, "pairs whose goals differ")
    return gap


def patch_sites(
    hooked: HookedModel, pairs: Pairs, sites: Sequence[Site], rows: int = ROWS
) -> Effects:
    """Patch each site alone: put clean values into corrupted runs.

    Effects are shares of the difference that the corruption makes.
    """
    if not sites:  # a recurrent model has no heads and no MLPs; its states are taps like others
        expected, fix = "heads or MLPs of a Transformer", "--over stream patches the states"
        raise UsageError(DOING, "a model without places to patch", expected, fix)
    clean, corrupt = clean_and_corrupt(hooked, pairs)
    gap = mean_gap(clean, corrupt)
    with torch.no_grad():
        _, values = hooked.run(pairs.clean, taps_of(sites))
    each = torch.eye(len(sites), dtype=torch.bool)
    goals = measure_sets(hooked, pairs.corrupt, pairs.goal, sites, each, values, rows)
    return Effects((goals - corrupt) / gap, clean, corrupt)


def goal_gradients(
    hooked: HookedModel, batch: Batch, goal: Goal, taps: Sequence[str], edits: Edits | None = None
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """The goal (B,), activations, and the goal's gradient at each of them."""
    with torch.enable_grad():
        logits, seen = hooked.run(batch, taps, edits)
        value = goal(logits, batch)
        if not all(x.requires_grad for x in seen.values()):
            expected = "parameters that have them"
            raise UsageError("attributing", "weights without gradients", expected)
        gradients = torch.autograd.grad(
            value.sum(), [seen[tap] for tap in taps], allow_unused=True, materialize_grads=True
        )
    activations = {tap: x.detach() for tap, x in seen.items()}
    return value.detach(), activations, dict(zip(taps, gradients, strict=True))


# Path patching ----------------------------------------------------------------------------------


def last_stack(model: Model, doing: str) -> tuple[str, Stack]:
    """The stack that feeds the output head, and its name."""
    name = "encoder" if model.decoder is None else "decoder"
    stack = model.encoder if model.decoder is None else model.decoder
    if not isinstance(stack, Stack):
        problem = "a recurrent model, which has no stream that its layers add to"
        raise UsageError(doing, problem, "a Transformer")
    return name, stack


def stream_taps(name: str, stack: Stack) -> list[str]:
    """The residual stream of a stack: its embedding, and what stands after each block."""
    return [f"{name}.embed", *(f"{name}.blocks.{n}.resid_post" for n in range(len(stack.blocks)))]


def last_stream(hooked: HookedModel) -> str:
    """The tap at the end of the residual stream: what all parts write into."""
    return stream_taps(*last_stack(hooked.model, "patching paths"))[-1]


def send_along_paths(
    hooked: HookedModel,
    batch: Batch,
    frozen: Values,
    sent: Mapping[str, Edit],
    receivers: Sequence[Site],
) -> Tensor:
    """Logits of a run in which only the receivers hear what the senders' edits change.

    First all other heads are frozen and what arrives at the receivers is recorded; then a plain
    run gets those recorded values. Without receivers the end of the stream is the receiver.
    """
    edits = {tap: [patch(value)] for tap, value in frozen.items()}
    for tap, edit in sent.items():
        edits.setdefault(tap, []).append(edit)
    logits, heard = hooked.run(batch, taps_of(receivers), edits)
    if receivers:
        masks = site_masks(receivers, torch.ones(1, len(receivers), dtype=torch.bool), heard)
        logits, _ = hooked.run(batch, (), {t: patch(heard[t], mask=m) for t, m in masks.items()})
    return logits


@torch.no_grad()
def patch_paths(
    hooked: HookedModel,
    pairs: Pairs,
    senders: Sequence[Site],
    receivers: Sequence[Site] = (),
    freeze_mlps: bool = False,
    rows: int = ROWS,
) -> Effects:
    """Send corrupted values of each sender to the receivers alone, in clean runs.

    Receivers are heads at `q`, `k` or `v`; none is the end of the stream, the direct effect.
    Effects are shares of the difference that the corruption makes: 1 is all of it.
    """
    clean, corrupt = clean_and_corrupt(hooked, pairs)
    gap = mean_gap(clean, corrupt)
    if not receivers:
        last_stream(hooked)  # says so where there is none
    held = taps_of([*head_sites(hooked), *(mlp_sites(hooked) if freeze_mlps else [])])
    _, old = hooked.run(pairs.clean, held)
    _, new = hooked.run(pairs.corrupt, taps_of(senders))

    def run(batch: Batch, sent: dict[str, Edit]) -> Tensor:
        sets = len(batch.ids) // len(clean)
        frozen = {tap: tile_rows(old[tap], sets) for tap in held}
        return send_along_paths(hooked, batch, frozen, sent, receivers)

    each = torch.eye(len(senders), dtype=torch.bool)
    goals = measure_sets(hooked, pairs.clean, pairs.goal, senders, each, new, rows, run)
    return Effects((goals - clean) / -gap, clean, corrupt)


# One call for all ways --------------------------------------------------------------------------


def measure_effects(
    hooked: HookedModel,
    pairs: Pairs,
    over: Over = "heads",
    *,
    to: Sequence[str] = (),
    top: int = 15,
) -> PatchEffects:
    """Patch every head, MLP or position alone, or paths from heads."""
    sites = find_sites(hooked, over, pairs)
    if to and over != "heads":
        raise UsageError(DOING, f"paths from {over}", "paths from heads")
    with progress("patching") as say:
        say(f"{len(sites)} places, {len(pairs.clean.ids)} pairs")
        if to:
            effects = patch_paths(hooked, pairs, sites, find_receivers(hooked, to))
        else:
            effects = patch_sites(hooked, pairs, sites)
    count = effects.effect.shape[1]
    errors = [None if count < 2 else float(row.std()) / count**0.5 for row in effects.effect]
    return PatchEffects(
        count,
        float(effects.clean.mean()),
        float(effects.corrupt.mean()),
        "paths" if to else "patching",
        "noise" if to else "denoise",
        [
            SiteEffect(**vars(site), effect=mean, standard_error=error)
            for site, mean, error in zip(sites, effects.mean.tolist(), errors, strict=True)
        ],
        over,
        " ".join(to) or None,
        top,
    )


def find_sites(hooked: HookedModel, over: Over, pairs: Pairs) -> list[Site]:
    """Every head, every MLP, or the stream before each block at each position."""
    clean = pairs.clean
    if over != "stream":
        return head_sites(hooked) if over == "heads" else mlp_sites(hooked)
    masks = (clean.mask, clean.source_mask)
    if any(mask is not None and not bool(mask.all()) for mask in masks):
        raise DataError(DOING, "prompts of different lengths", "one length, for the stream")
    return [
        Site(tap, None, n)
        for tap in hooked.taps
        if tap.endswith((".resid_pre", ".state")) and ".back." not in tap  # read backwards
        for n in range((clean.inputs if tap.startswith("encoder.") else clean.ids).shape[1])
    ]


def find_receivers(hooked: HookedModel, names: Sequence[str]) -> list[Site]:
    """Taps with their heads, such as `*.9.attn.q:3`; `end` is none, the end of the stream."""
    if "end" in names:
        if len(names) > 1:
            expected, fix = "`end` alone, or taps alone", "run it once for each"
            raise UsageError(DOING, f"receivers {' '.join(names)}", expected, fix)
        return []
    receivers = []
    for name in names:
        pattern, _, head = name.partition(":")
        if head and not head.isdecimal():
            raise UsageError(DOING, f"head {head!r} in {name!r}", "TAP:HEAD, such as *.9.attn.q:3")
        for tap in find_taps(pattern, hooked.taps):
            receivers.append(Site(tap, int(head) if head else None))
            if head:
                hooked.place({tap: zero(head=int(head))})  # says which heads there are
    return receivers
