"""SHAP: each token's fair share of a goal, its Shapley value (Shapley 1953; Lundberg 2017).

phi_i is what token i adds, on average over all orders in which tokens may come in. Up to 15 tokens
all 2^M subsets are run; beyond that orders are drawn, each with its reverse (antithetic, which
lowers the variance), and the spread of the pairs gives intervals.
"""

from __future__ import annotations

import math

import torch

from regard.errors import UsageError
from regard.look.masked_input import SetFunction
from regard.look.results import MethodScores

EXACT = 15  # tokens at most whose subsets are all run
NORMAL = 1.959963984540054  # 97.5 % of a normal distribution lie below


def shapley_values(
    goal: SetFunction, count: int, samples: int | None = None, seed: int = 0
) -> MethodScores:
    """Shapley values of `count` tokens: exact up to 15, else of drawn orders (100 unless given)."""
    if count <= EXACT and samples is None:
        return exact_shapley(goal, count)
    return sampled_shapley(goal, count, 100 if samples is None else samples, seed)


def exact_shapley(goal: SetFunction, count: int) -> MethodScores:
    """From all subsets: Σ_S |S|! (M − |S| − 1)! / M! (v(S + i) − v(S))."""
    numbers = torch.arange(1 << count)
    kept = (numbers[:, None] >> torch.arange(count)) & 1 == 1  # (2^M, M)
    values, sizes = goal(kept).double(), kept.sum(1)
    scores = torch.empty_like(values[:count])
    weights = scores.new_tensor([1 / (count * math.comb(count - 1, n)) for n in range(count)])
    for i in range(count):
        without = numbers[~kept[:, i]]
        added = values[without + (1 << i)] - values[without]
        scores[i] = weights[sizes[without]] @ added
    ends = float(values[-1]), float(values[0])
    return MethodScores(scores, *ends, interval=torch.zeros_like(scores), orders=0)


def sampled_shapley(goal: SetFunction, count: int, orders: int, seed: int = 0) -> MethodScores:
    """From `orders` drawn orders, half of them the reverse of the others."""
    if orders < 4 or count < 1:
        problem = f"{orders} orders of {count} tokens"
        raise UsageError("computing Shapley values", problem, "4 orders and 1 token or more")
    pairs = (orders + 1) // 2
    ahead = torch.rand(pairs, count, generator=torch.Generator().manual_seed(seed)).argsort(1)
    order = torch.stack((ahead, ahead.flip(1)), 1).flatten(0, 1)  # (2 P, M), a pair side by side
    comes = order.argsort(1)  # when each token comes in
    kept = comes[:, None] < torch.arange(1, count)[:, None]  # (2 P, M − 1, M), after each but last
    ends = torch.stack((torch.ones(count), torch.zeros(count))).bool()
    values = goal(torch.cat((ends, kept.flatten(0, 1)))).double()
    whole, none = values[:2].tolist()
    between = values[2:].view(2 * pairs, count - 1)
    steps = torch.cat((values[1].expand(2 * pairs, 1), between, values[0].expand(2 * pairs, 1)), 1)
    added = steps.diff(dim=1).gather(1, comes)  # (2 P, M), by token
    each = added.unflatten(0, (pairs, 2)).mean(1)  # (P, M): independent draws
    interval = student(pairs - 1) * (each.std(0) / pairs**0.5)
    return MethodScores(each.mean(0), whole, none, interval=interval, orders=2 * pairs)


def student(freedom: int) -> float:
    """97.5 % of Student's t (Cornish–Fisher expansion; Abramowitz and Stegun 26.7.5)."""
    if freedom < 3:
        return {1: 12.7062, 2: 4.3027}[freedom]
    z, n = NORMAL, float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4
