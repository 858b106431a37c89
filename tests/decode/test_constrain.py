"""Constraints as processes on logits."""

from __future__ import annotations

import math

import pytest
import torch

from regard.decode.constraints import at_least, ban, begin_with, no_repeat, prefix_constraint
from regard.errors import UsageError

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]])
NOTHING = torch.zeros(2, 0, dtype=torch.long)


def closed(process, history):
    """Ids that may not come next, of each row; what may keeps its logit."""
    found = process(LOGITS, history)
    shut = found == -math.inf
    assert torch.equal(found[~shut], LOGITS[~shut])
    return [row.nonzero()[:, 0].tolist() for row in shut]


def test_ban():
    assert closed(ban({3, 1}), NOTHING) == [[1, 3], [1, 3]]
    assert closed(ban(()), NOTHING) == [[], []]


def test_at_least():
    process = at_least(2, {0})
    assert closed(process, NOTHING) == [[0], [0]]
    assert closed(process, torch.tensor([[1], [2]])) == [[0], [0]]
    assert closed(process, torch.tensor([[1, 1], [2, 2]])) == [[], []]


def test_begin_with():
    process = begin_with([2, 0])
    assert closed(process, NOTHING) == [[0, 1, 3]] * 2
    assert closed(process, torch.tensor([[2], [2]])) == [[1, 2, 3]] * 2
    assert closed(process, torch.tensor([[2, 0], [2, 0]])) == [[], []]


def test_no_repeat():
    history = torch.tensor([[1, 2, 1], [3, 3, 3]])
    assert closed(no_repeat(1), history) == [[1, 2], [3]]
    assert closed(no_repeat(2), history) == [[2], [3]]
    assert closed(no_repeat(3), history) == [[], [3]]
    assert closed(no_repeat(4), history) == [[], []]
    assert closed(no_repeat(1), NOTHING) == [[], []]
    longer = torch.tensor([[1, 2, 3, 1, 2], [0, 1, 0, 2, 0]])
    assert closed(no_repeat(3), longer) == [[3], []]
    assert closed(no_repeat(2), longer) == [[3], [1, 2]]
    with pytest.raises(UsageError, match="1 or more"):
        no_repeat(0)


def test_prefix_constraint():
    process = prefix_constraint(lambda tokens: {len(tokens), sum(tokens) % 4})
    assert closed(process, NOTHING) == [[1, 2, 3]] * 2
    assert closed(process, torch.tensor([[1, 2], [2, 2]])) == [[0, 1], [1, 3]]
