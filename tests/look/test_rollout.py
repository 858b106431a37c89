"""Closed forms of rollout."""

from __future__ import annotations

import pytest
import torch

from regard.look.attention_patterns import patterns
from regard.look.attribution import mix_residual, rollout
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


def test_rows_without_keys_keep_themselves():
    pattern = torch.zeros(1, 2, 3, 3)
    torch.testing.assert_close(rollout(mix_residual([pattern, pattern]))[0], torch.eye(3))


def test_on_a_model():
    kit = small_kit("llama")
    with torch.no_grad():
        found = list(patterns(kit.hooked, Batch(random_ids(6, 1)[None])).values())
    layers = mix_residual(found)
    assert rollout(layers).shape == (1, 6, 6)
    torch.testing.assert_close(rollout(layers).sum(-1), torch.ones(1, 6))
    assert rollout(layers)[0].triu(1).abs().max() == 0
