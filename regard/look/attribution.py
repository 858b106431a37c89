"""Which input tokens an answer comes from: gradient × input, integrated gradients, attention.

Integrated gradients (Sundararajan 2017) go along the straight line from a baseline x' to the
input x: IG_i = (x_i − x'_i) ∫ ∂F(x' + a (x − x'))/∂x_i da, by the midpoint rule. They sum to
F(x) − F(x'); what is missing tells whether the steps were enough. Here x are the vectors that the
first block reads; the baseline has the same positions.

How faithful scores are is measured by deletion and insertion curves (Petsiuk 2018). LIME and SHAP
have files of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data import statistics
from regard.errors import RegardWarning, UsageError
from regard.look.masked_input import MaskedInput, SetFunction, run_in_chunks
from regard.look.patching import goal_columns
from regard.look.results import GradientScores
from regard.look.rollout import flow, mix_residual, rollout

TOLERANCE = 0.05  # of F(x) − F(x'): more is missing → more steps
MAX_STEPS = 1600  # that are taken without being asked for

Function = Callable[[Tensor], Tensor]
"""Inputs (R, …) → one number each (R,), with gradients."""


# Gradients --------------------------------------------------------------------------------------


def integrate(
    function: Function,
    x: Tensor,
    base: Tensor,
    steps: int = 50,
    limit: int = MAX_STEPS,
    rows: int = 16,
) -> GradientScores:
    """Integrated gradients of one input x from a baseline, both without batch dimension.

    Steps are doubled, up to `limit`, while more than 5 % of the difference is missing.
    """
    if steps < 1:
        raise UsageError("integrating gradients", f"{steps} steps", "1 or more")
    with torch.no_grad():
        ends = run_in_chunks(torch.stack((x, base)), rows, function).double().cpu()
    value, baseline_value = ends.tolist()

    def sum_gradients(at: Tensor) -> Tensor:
        inputs = base + at.view([-1, *[1] * x.dim()]) * (x - base)
        return gradients_of(function, inputs).sum(0, keepdim=True)

    while True:
        midpoints = ((torch.arange(steps, dtype=torch.float64) + 0.5) / steps).to(x)
        total = run_in_chunks(midpoints, rows, sum_gradients).sum(0)
        scores = (x - base) * total / steps
        error = completeness_error(scores, value, baseline_value)
        if not error > TOLERANCE or 2 * steps > limit:  # NaN is not worth more steps
            break
        steps *= 2
    if error > TOLERANCE:
        warnings.warn(
            f"[completeness] after {steps} steps the scores still miss {error:.1%} of the "
            "difference between input and baseline: do not trust them, or take another baseline.",
            RegardWarning,
            stacklevel=2,
        )
    return GradientScores(scores, value, baseline_value, error, steps)


def gradients_of(function: Function, inputs: Tensor) -> Tensor:
    """The gradient of each row of a function at its input, (R, …)."""
    with torch.enable_grad():
        inputs = inputs.detach().requires_grad_()
        with torch.backends.cudnn.flags(enabled=False):  # its recurrent kernels: training only
            values = function(inputs)
        (gradients,) = torch.autograd.grad(values.sum(), inputs)
    return gradients


def completeness_error(scores: Tensor, value: float, baseline_value: float) -> float:
    """How much of value − baseline value the sum of scores misses, relative to it."""
    difference = value - baseline_value
    rounding = 1e-6 * (abs(value) + abs(baseline_value)) + 1e-30  # is no error
    missing = abs(float(scores.cpu().double().sum()) - difference)
    return missing / max(abs(difference), rounding)


def integrated_gradients(
    masked: MaskedInput, steps: int = 50, limit: int = MAX_STEPS
) -> GradientScores:
    """What each token gives to the goal on the way from the baseline to the input."""
    x, base = masked.vectors
    path = integrate(masked.goal_at, x, base, steps, limit, masked.chunk_rows)
    return sum_by_token(masked, path)


def gradient_times_input(masked: MaskedInput) -> GradientScores:
    """The gradient at the input times (input − baseline): as if the goal were linear."""
    x, base = masked.vectors
    with torch.no_grad():
        value, baseline_value = masked.goal_at(torch.stack((x, base))).tolist()
    scores = gradients_of(masked.goal_at, x[None])[0] * (x - base)
    error = completeness_error(scores, value, baseline_value)
    return sum_by_token(masked, GradientScores(scores, value, baseline_value, error, 1))


def sum_by_token(masked: MaskedInput, result: GradientScores) -> GradientScores:
    """Scores (S, D) of vectors as sums (M,) over their width, of each player."""
    scores = result.scores.cpu().double().sum(-1)
    return replace(result, scores=scores[masked.columns])


# Attention --------------------------------------------------------------------------------------


@torch.no_grad()
def attention_row(masked: MaskedInput) -> Tensor:
    """(M,): how much the goal's place attends to each token, the mean over heads and layers.

    Of an encoder-decoder, how much it attends to the source.
    """
    model = masked.hooked.model
    at = int(goal_columns(model, masked.batch, masked.goal)[0])
    patterns = read_patterns(masked, "attn" if model.config.target is None else "cross")
    rows = [pattern[0, :, at].mean(0) for pattern in patterns]  # (H, T, S) → (S,)
    return torch.stack(rows).mean(0).cpu().double()[masked.columns]


def attention_rollout(masked: MaskedInput) -> Tensor:
    """(M,): how much of each token attention has carried to the goal's place through all layers."""
    layers, at = layers_to_goal(masked)
    return rollout(layers)[0, at].cpu().double()[masked.columns]


def attention_flow(masked: MaskedInput) -> Tensor:
    """(M,): how much of each token attention could have carried there at most."""
    layers, at = layers_to_goal(masked)
    return flow(layers, at)[0].cpu().double()[masked.columns]


@torch.no_grad()
def layers_to_goal(masked: MaskedInput) -> tuple[list[Tensor], int]:
    """The layers (1, S, S) from the input up, and where in the last of them the goal's place is.

    In an encoder-decoder the goal's cross-attention is a last layer above the encoder's.
    """
    model = masked.hooked.model
    stack = "decoder" if model.encoder is None else "encoder"
    layers = mix_residual(read_patterns(masked, "attn", stack))
    if model.config.target is None:
        return layers, int(goal_columns(model, masked.batch, masked.goal)[0])
    whole = replace(masked, players=None)
    top = torch.zeros_like(layers[0])
    top[:, 0, whole.columns] = attention_row(whole).to(top)
    return [*layers, top], 0


def read_patterns(masked: MaskedInput, part: str, stack: str = "") -> list[Tensor]:
    """The patterns (1, H, T, S) of all attentions of a part, attn or cross."""
    place = f".{part}.pattern"
    names = [n for n in masked.hooked.taps if n.startswith(stack) and n.endswith(place)]
    if not names:
        found = f"a model without {stack}{place}"
        raise UsageError("explaining by attention", found, "one with attention")
    return list(masked.hooked.run(masked.batch, names)[1].values())


# Faithfulness -----------------------------------------------------------------------------------


class Curves(NamedTuple):
    """A goal while tokens are taken away, and while they are put in, the highest scores first."""

    deletion: Tensor
    """(M + 1,): the goal with 0 … M tokens absent."""
    insertion: Tensor
    """(M + 1,): the goal with 0 … M tokens there."""
    deletion_area: float
    """Mean height of the curve, from 0 where no token is there to ±1; small is faithful."""
    insertion_area: float
    """Mean height of the other curve; large is faithful."""


def deletion_and_insertion(goal: SetFunction, scores: Tensor) -> Curves:
    """Curves in the order of scores (M,): a faithful method makes them fall, or rise, at once."""
    count = len(scores)
    rank = scores.argsort(descending=True, stable=True).argsort()  # 0 is the highest
    steps = torch.arange(count + 1)[:, None]
    goals = goal(torch.cat((rank >= steps, rank < steps))).double()
    deletion, insertion = goals[: count + 1], goals[count + 1 :]
    none, whole = insertion[0], deletion[0]
    scale = float((whole - none).abs()) or float("nan")  # no difference, no area
    areas = [float(torch.trapezoid((c - none) / scale)) / count for c in (deletion, insertion)]
    return Curves(deletion, insertion, *areas)


def random_areas(
    goal: SetFunction, count: int, orders: int = 10, seed: int = 0
) -> tuple[float, float]:
    """The mean areas of random orders: what a method without any idea reaches."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        deletion_and_insertion(goal, torch.rand(count, generator=generator)) for _ in range(orders)
    ]
    deletion = sum(curves.deletion_area for curves in drawn) / orders
    return deletion, sum(curves.insertion_area for curves in drawn) / orders


def spearman(a: Tensor, b: Tensor) -> float:
    """Rank correlation of two methods' scores; NaN where one has no order."""
    if a.shape != b.shape:
        raise UsageError("comparing scores", f"{len(a)} and {len(b)}", "as many of each")
    if any(bool((x == x[0]).all()) for x in (a, b)):
        return float("nan")
    return statistics.spearman(a.tolist(), b.tolist())
