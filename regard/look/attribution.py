"""Which input tokens a goal comes from: gradient × input, integrated gradients, attention.

Integrated gradients (Sundararajan 2017) go along the straight line from a baseline x' to the
input x: IG_i = (x_i − x'_i) ∫ ∂F(x' + a (x − x'))/∂x_i da, by the midpoint rule. They sum to
F(x) − F(x'); what is missing tells whether the steps were enough. Here x are the vectors that the
first block reads; the baseline has the same positions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import RegardWarning, UsageError
from regard.look.capture import Board
from regard.look.goal import Goal
from regard.look.inputs import (
    Baseline,
    Watch,
    baseline_vectors,
    check_one_row,
    chunk_rows,
    goal_column,
    in_chunks,
    own_vectors,
    real_tokens,
    value_at,
)
from regard.model.batch import Batch

TOLERANCE = 0.05  # of F(x) − F(x'): more is missing → more steps
LIMIT = 1600  # steps at most that are taken without being asked for

Function = Callable[[Tensor], Tensor]
"""Inputs (R, …) → one number each (R,), with gradients."""


class Attribution(NamedTuple):
    """What each token gives to a goal."""

    scores: Tensor
    """(S,): of each token of the input, in float64; 0 at padding. Of any function: as its input."""
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
        if not values.requires_grad:
            raise UsageError(
                "explaining by gradients",
                "a model that computes without them (int8 or bf16 weights, packed)",
                "float32",
                "load it with precision='fp32', or explain by lime or shap",
            )
        (made,) = torch.autograd.grad(values.sum(), inputs)
    return made


def missing(total: float, value: float, baseline_value: float) -> float:
    """How much of value − baseline value a sum of scores misses, relative to it."""
    difference = value - baseline_value
    least = 1e-6 * (abs(value) + abs(baseline_value)) + 1e-30  # rounding is no error
    return abs(total - difference) / max(abs(difference), least)


def integrated_gradients(
    board: Board,
    batch: Batch,
    goal: Goal,
    baseline: Baseline = "zero",
    steps: int = 50,
    limit: int = LIMIT,
    rows: int | None = None,
    watch: Watch | None = None,
) -> Attribution:
    """What each token of one row gives to the goal, compared with a baseline."""
    function, x, base = as_function(board, batch, goal, baseline)
    found = integrate(function, x, base, steps, limit, chunk_rows(batch, rows), watch)
    return by_token(board, batch, found)


def gradient_times_input(
    board: Board, batch: Batch, goal: Goal, baseline: Baseline = "zero"
) -> Attribution:
    """The gradient at the input times (input − baseline): a straight line for the function."""
    function, x, base = as_function(board, batch, goal, baseline)
    with torch.no_grad():
        value, before = function(torch.stack((x, base))).tolist()
    scores = slopes(function, x[None])[0] * (x - base)
    error = missing(float(scores.cpu().double().sum()), value, before)
    return by_token(board, batch, Attribution(scores, value, before, error, 1))


def as_function(
    board: Board, batch: Batch, goal: Goal, baseline: Baseline
) -> tuple[Function, Tensor, Tensor]:
    """The goal as a function of the input's vectors, these (S, D), and the baseline's."""
    check_one_row(batch)
    x, base = own_vectors(board, batch), baseline_vectors(board, batch, baseline)
    return lambda vectors: value_at(board, batch, goal, vectors), x[0], base[0].to(x)


def by_token(board: Board, batch: Batch, found: Attribution) -> Attribution:
    """Sums over the width of the vectors (S, D); padding gives nothing."""
    scores = found.scores.cpu().double().sum(-1)
    real = real_tokens(board, batch)
    scores = scores if real is None else scores * real[0].cpu()
    return found._replace(scores=scores)


@torch.no_grad()
def attention_row(board: Board, batch: Batch, goal: Goal) -> Tensor:
    """(S,): how much the goal's place attends to each token, the mean over heads and layers.

    Of an encoder-decoder, how much it attends to the source.
    """
    check_one_row(batch)
    part = "cross" if board.model.config.target is not None else "attn"
    names = [name for name in board.taps if name.endswith(f"{part}.pattern")]
    if not names:
        found = f"a model without {part}.pattern"
        raise UsageError("explaining by attention", found, "one with attention")
    seen = board.run(batch, names)[1]
    at = goal_column(board, batch, goal)
    rows = [pattern[0, :, at].mean(0) for pattern in seen.values()]  # (H, T, S) → (S,)
    return torch.stack(rows).mean(0).cpu().double()
