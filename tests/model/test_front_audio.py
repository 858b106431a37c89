"""Audio front: two convolutions over log-mel, half as many tokens as frames."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.errors import DataError
from regard.model.config import AudioConfig
from regard.model.fronts import AudioFront
from tests.properties.small_models import randomise


def build(length=10):
    front = AudioFront(AudioConfig(16, 5, length)).eval()
    randomise(front)
    return front


@pytest.mark.parametrize("frames", [20, 13, 1])
def test_convolutions_by_hand(frames):
    front = build()
    mel = torch.randn(2, 5, frames, generator=torch.Generator().manual_seed(0))
    first = F.gelu(F.conv1d(F.pad(mel, (1, 1)), front.conv1.weight, front.conv1.bias))
    second = F.conv1d(F.pad(first, (1, 1)), front.conv2.weight, front.conv2.bias, stride=2)
    tokens = -(-frames // 2)
    expected = F.gelu(second).transpose(1, 2) + front.positions.weight[:tokens]
    made = front(mel)
    assert made.positions.tolist() == [list(range(tokens))]
    torch.testing.assert_close(made.x, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 4, 20), (1, 5, 21), (5, 20)])
def test_another_shape_is_refused(shape):
    with pytest.raises(DataError, match=r"\(batch, 5, at most 20\)"):
        build()(torch.zeros(shape))
