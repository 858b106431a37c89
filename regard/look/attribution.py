"""Which input tokens a goal comes from: gradient × input, integrated gradients, attention.

Integrated gradients (Sundararajan 2017) go along the straight line from a baseline x' to the
input x: IG_i = (x_i − x'_i) ∫ ∂F(x' + a (x − x'))/∂x_i da, by the midpoint rule. They sum to
F(x) − F(x'); what is missing tells whether the steps were enough. Here x are the vectors that the
first block reads; the baseline has the same positions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import RegardWarning, UsageError
from regard.look.goal import goal_columns
from regard.look.inputs import Watch, chunk_rows, in_chunks, value_at
from regard.look.rollout import mixed, multiply, pour
from regard.look.subsets import Tokens

TOLERANCE = 0.05  # of F(x) − F(x'): more is missing → more steps
LIMIT = 1600  # steps at most that are taken without being asked for

Function = Callable[[Tensor], Tensor]
"""Inputs (R, …) → one number each (R,), with gradients."""


class Attribution(NamedTuple):
    """What each token gives to a goal."""

    scores: Tensor
    """(M,): of each token, in float64; of any function, as its input."""
    value: float
    """The goal of the input."""
    baseline_value: float
    """The goal of the baseline."""
    error: float
    """|sum of scores − (value − baseline value)|, relative to |value − baseline value|."""
    steps: int
    """Points of the path; 1 for gradient × input."""


def integrate(
    function: Function,
    x: Tensor,
    base: Tensor,
    steps: int = 50,
    limit: int = LIMIT,
    rows: int = 16,
    watch: Watch | None = None,
) -> Attribution:
    """Integrated gradients of one input x from a baseline, both without batch dimension.

    Steps are doubled, up to `limit`, while more than 5 % of the difference is missing.
    """
    if steps < 1:
        raise UsageError("integrating gradients", f"{steps} steps", "1 or more")
    with torch.no_grad():
        ends = in_chunks(torch.stack((x, base)), rows, function).double().cpu()
    value, baseline_value = ends.tolist()
    while True:
        scores = midpoints(function, x, base, steps, rows, watch)
        error = missing(float(scores.cpu().double().sum()), value, baseline_value)
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
    return Attribution(scores, value, baseline_value, error, steps)


def midpoints(
    function: Function, x: Tensor, base: Tensor, steps: int, rows: int, watch: Watch | None
) -> Tensor:
    """(x − x') times the mean gradient at the middles of `steps` equal parts of the path."""
    shape = [-1, *[1] * x.dim()]
    at = ((torch.arange(steps, dtype=torch.float64) + 0.5) / steps).to(x)

    def part(some: Tensor) -> Tensor:
        inputs = base + some.view(shape) * (x - base)
        return slopes(function, inputs).sum(0, keepdim=True)

    total = in_chunks(at, rows, part, watch).sum(0)
    return (x - base) * total / steps


def slopes(function: Function, inputs: Tensor) -> Tensor:
    """The gradient of each row of a function at its input, (R, …)."""
    with torch.enable_grad():
        inputs = inputs.detach().requires_grad_()
        with torch.backends.cudnn.flags(enabled=False):  # its recurrent kernels: training only
            values = function(inputs)
        (made,) = torch.autograd.grad(values.sum(), inputs)
    return made


def missing(total: float, value: float, baseline_value: float) -> float:
    """How much of value − baseline value a sum of scores misses, relative to it."""
    difference = value - baseline_value
    least = 1e-6 * (abs(value) + abs(baseline_value)) + 1e-30  # rounding is no error
    return abs(total - difference) / max(abs(difference), least)


def integrated_gradients(tokens: Tokens, steps: int = 50, limit: int = LIMIT) -> Attribution:
    """What each token gives to the goal on the way from the baseline to the input."""
    x, base = tokens.vectors
    rows = chunk_rows(tokens.batch, tokens.rows)
    return by_token(tokens, integrate(of(tokens), x, base, steps, limit, rows, tokens.watch))


def gradient_times_input(tokens: Tokens) -> Attribution:
    """The gradient at the input times (input − baseline): as if the goal were linear."""
    x, base = tokens.vectors
    function = of(tokens)
    with torch.no_grad():
        value, before = function(torch.stack((x, base))).tolist()
    scores = slopes(function, x[None])[0] * (x - base)
    error = missing(float(scores.cpu().double().sum()), value, before)
    return by_token(tokens, Attribution(scores, value, before, error, 1))


def of(tokens: Tokens) -> Function:
    """The goal as a function of the input's vectors."""
    return lambda vectors: value_at(tokens.board, tokens.batch, tokens.goal, vectors)


def by_token(tokens: Tokens, found: Attribution) -> Attribution:
    """Scores (S, D) of vectors as sums over their width, of each player."""
    scores = found.scores.cpu().double().sum(-1)
    return found._replace(scores=scores[tokens.columns])


@torch.no_grad()
def attention_row(tokens: Tokens) -> Tensor:
    """(M,): how much the goal's place attends to each token, the mean over heads and layers.

    Of an encoder-decoder, how much it attends to the source.
    """
    pair = tokens.board.model.config.target is not None
    at = int(goal_columns(tokens.board.model, tokens.batch, tokens.goal)[0])
    found = patterns_of(tokens, "cross" if pair else "attn")
    rows = [pattern[0, :, at].mean(0) for pattern in found]  # (H, T, S) → (S,)
    return torch.stack(rows).mean(0).cpu().double()[tokens.columns]


def attention_rollout(tokens: Tokens) -> Tensor:
    """(M,): how much of each token attention has carried to the goal's place through all layers."""
    layers, at = layers_below(tokens)
    return multiply(layers)[0, at].cpu().double()[tokens.columns]


def attention_flow(tokens: Tokens) -> Tensor:
    """(M,): how much of each token it could have carried there."""
    layers, at = layers_below(tokens)
    return pour(layers, at, tokens.watch)[0].cpu().double()[tokens.columns]


@torch.no_grad()
def layers_below(tokens: Tokens) -> tuple[list[Tensor], int]:
    """The layers (1, S, S) that read the input, and where in the last of them the goal's place is.

    That of an encoder-decoder looks down on its encoder: its row is a layer of its own.
    """
    model = tokens.board.model
    layers = mixed(patterns_of(tokens, "attn", "decoder" if model.encoder is None else "encoder"))
    if model.config.target is None:
        return layers, int(goal_columns(model, tokens.batch, tokens.goal)[0])
    whole = replace(tokens, players=None)
    top = torch.zeros_like(layers[0])
    top[:, 0, whole.columns] = attention_row(whole).to(top)
    return [*layers, top], 0


def patterns_of(tokens: Tokens, part: str, stack: str = "") -> list[Tensor]:
    """The patterns (1, H, T, S) of all attentions of a part, attn or cross."""
    place = f".{part}.pattern"
    names = [n for n in tokens.board.taps if n.startswith(stack) and n.endswith(place)]
    if not names:
        found = f"a model without {stack}{place}"
        raise UsageError("explaining by attention", found, "one with attention")
    return list(tokens.board.run(tokens.batch, names)[1].values())
