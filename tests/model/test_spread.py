"""Positions spread over more than a sequence needs (Ruoss et al. 2023)."""

from __future__ import annotations

import pytest
import torch

from regard.core.config import BlockConfig, StackConfig
from regard.errors import DataError
from regard.model.batch import Batch
from regard.model.config import HeadConfig, ModelConfig, TextConfig
from regard.model.fronts import TextFront
from regard.model.model import Model

FRONT = TextConfig(16, 9, position="sinusoidal", spread=64)


def test_training_draws_them_in_order_and_each_row_its_own() -> None:
    front = TextFront(FRONT).train()
    torch.manual_seed(0)
    drawn = front(torch.zeros(50, 10, dtype=torch.long), torch.ones(50, 10).bool()).positions
    assert bool((drawn.diff(dim=1) > 0).all()) and 0 <= int(drawn.min()) and int(drawn.max()) < 64
    assert len({tuple(row) for row in drawn.tolist()}) > 40
    # The smallest of 10 out of 64 has the mean 65 / 11 - 1.
    assert abs(float(drawn[:, 0].float().mean()) - 4.9) < 2


def test_afterwards_they_are_even_and_padding_changes_nothing() -> None:
    front = TextFront(FRONT).eval()
    ids = torch.zeros(1, 8, dtype=torch.long)
    assert front(ids).positions.tolist() == [[0, 8, 16, 24, 32, 40, 48, 56]]
    block = BlockConfig(16, 2, 32)
    model = Model.fresh(ModelConfig(FRONT, HeadConfig(3), StackConfig(block, 2, "relative")))
    ids = torch.randint(0, 9, (1, 6))
    alone = model(Batch(ids))
    padded = torch.cat((torch.zeros(1, 3, dtype=torch.long), ids, torch.zeros(1, 4).long()), 1)
    mask = torch.tensor([[False] * 3 + [True] * 6 + [False] * 4])
    torch.testing.assert_close(model(Batch(padded, mask=mask))[:, 3:9], alone)


def test_more_tokens_than_positions_are_refused() -> None:
    with pytest.raises(DataError, match="65 tokens"):
        TextFront(FRONT)(torch.zeros(1, 65, dtype=torch.long))
