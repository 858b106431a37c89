"""The number that is explained: of the right token, at the right column."""

from __future__ import annotations

import torch

from regard.look.goal import Goal, last_columns
from regard.model.batch import Batch


def test_columns_of_either_padding():
    mask = torch.tensor([[True, True, False], [False, True, True], [True, False, False]])
    assert last_columns(Batch(torch.zeros(3, 3).long(), mask=mask)).tolist() == [1, 2, 0]
    assert last_columns(Batch(torch.zeros(2, 4).long())).tolist() == [3, 3]


def test_a_logit_a_difference_and_a_logarithm():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, True, False], [True, True, True]])
    batch = Batch(torch.zeros(2, 3).long(), mask=mask)
    good, bad = torch.tensor([4, 0]), torch.tensor([1, 2])
    alone = torch.stack((logits[0, 1, 4], logits[1, 2, 0]))
    other = torch.stack((logits[0, 1, 1], logits[1, 2, 2]))
    torch.testing.assert_close(Goal(good)(logits, batch), alone)
    torch.testing.assert_close(Goal(good, bad)(logits, batch), alone - other)
    logs = Goal(good, bad, kind="logprob")(logits, batch)
    torch.testing.assert_close(logs, alone - other)  # what is left of both cancels
    there = Goal(good, at=torch.tensor([0, 0]))(logits, batch)
    torch.testing.assert_close(there, torch.stack((logits[0, 0, 4], logits[1, 0, 0])))
    classes = Goal(good)(logits[:, 0], batch)
    torch.testing.assert_close(classes, there)


def test_copies_of_one_row():
    goal = Goal(torch.tensor([3]), torch.tensor([1])).rows(4)
    assert goal.good.tolist() == [3] * 4 and goal.bad.tolist() == [1] * 4 and goal.at is None
