"""Closed forms of rollout and flow, and flow against linear programming."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.look.attention_patterns import patterns
from regard.look.rollout import UNITS, flow, mix_residual, rollout
from regard.model.batch import Batch
from tests.properties.small_models import random_ids, small_kit


def random_patterns(layers, size, heads=3, rows=2, causal=True):
    generator = torch.Generator().manual_seed(layers * size)
    scores = 2 * torch.randn(layers, rows, heads, size, size, generator=generator)
    if causal:
        scores = scores.masked_fill(torch.ones(size, size).triu(1).bool(), -torch.inf)
    return list(scores.softmax(-1))


def test_one_layer():
    (pattern,) = random_patterns(1, 5)
    wanted = 0.5 * pattern.mean(1) + 0.5 * torch.eye(5)
    torch.testing.assert_close(rollout(mix_residual([pattern])), wanted)
    for query in (0, 2, 4):  # one layer: a single pipe
        torch.testing.assert_close(flow(mix_residual([pattern]), query), wanted[:, query])


@pytest.mark.parametrize("layers", [1, 3, 6])
def test_even_attention(layers):
    n = 7
    found = rollout(mix_residual([torch.full((1, 2, n, n), 1 / n)] * layers))[0]
    corner = 2.0**-layers + (1 - 2.0**-layers) / n
    torch.testing.assert_close(found.diagonal(), torch.full((n,), corner))
    torch.testing.assert_close(found.sum(-1), torch.ones(n))
    torch.testing.assert_close(found[0, 1:], torch.full((n - 1,), (1 - corner) / (n - 1)))


def test_order_of_the_layers():
    """Token 2 looks at 1 in the last layer, which looked at 0 in the first."""
    first, last = torch.eye(3)[None, None].clone(), torch.eye(3)[None, None].clone()
    first[0, 0, 1], last[0, 0, 2] = torch.eye(3)[0], torch.eye(3)[1]
    for layers, wanted in (([first, last], [1, 0, 0]), ([last, first], [0, 1, 0])):
        mixed = mix_residual(layers, residual=0)
        assert rollout(mixed)[0, 2].tolist() == wanted
        assert flow(mixed, 2)[0].tolist() == wanted


def test_rows_without_keys_keep_themselves():
    pattern = torch.zeros(1, 2, 3, 3)
    torch.testing.assert_close(rollout(mix_residual([pattern, pattern]))[0], torch.eye(3))


def by_linear_programming(capacities, source, sink):
    """The same maximum flow: what leaves the source, kept in every node between."""
    from scipy.optimize import linprog

    levels, size, _ = capacities.shape
    edges = [(n, i, j) for n in range(levels) for i in range(size) for j in range(size)]
    keep = np.zeros(((levels + 1) * size, len(edges)))
    for e, (n, i, j) in enumerate(edges):
        keep[n * size + i, e] -= 1
        keep[(n + 1) * size + j, e] += 1
    ends = [source, levels * size + sink]
    inner = [row for row in range(len(keep)) if row not in ends]
    limits = [(0, capacities[edge]) for edge in edges]
    done = linprog(-keep[ends[1]], A_eq=keep[inner], b_eq=np.zeros(len(inner)), bounds=limits)
    return -done.fun


@pytest.mark.parametrize(("layers", "size", "causal"), [(2, 4, False), (3, 5, True), (4, 6, False)])
def test_flow_is_the_maximum(layers, size, causal):
    mixed = mix_residual([p.double() for p in random_patterns(layers, size, causal=causal)])
    capacities = torch.stack(mixed[::-1], 1).numpy()
    for query in (-1, 1):
        found = flow(mixed, query)
        for row in range(2):
            for sink in range(size):
                wanted = by_linear_programming(capacities[row], query % size, sink)
                assert float(found[row, sink]) == pytest.approx(wanted, abs=1e-6)
                assert found[row, sink] >= rollout(mixed)[row, query, sink] - 1e-6


def test_capacities_are_units():
    """Rows of whole units: a flow is then exact."""
    layers = [torch.tensor([[[3.0, 1.0], [2.0, 2.0]]]) / 4, torch.tensor([[[1.0, 3.0]] * 2]) / 4]
    assert (flow(layers, 0)[0] * UNITS).tolist() == [3 * UNITS / 4] * 2  # 1/4 + 1/2, twice


def test_on_a_model():
    kit = small_kit("llama")
    with torch.no_grad():
        found = list(patterns(kit.hooked, Batch(random_ids(6, 1)[None])).values())
    layers = mix_residual(found)
    assert rollout(layers).shape == (1, 6, 6) and flow(layers).shape == (1, 6)
    torch.testing.assert_close(rollout(layers).sum(-1), torch.ones(1, 6))
    assert rollout(layers)[0].triu(1).abs().max() == 0
