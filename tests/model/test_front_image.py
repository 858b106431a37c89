"""Image front: patches, the conv stem, positions in one and two dimensions (MISSION #49)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.core.position import sinusoidal
from regard.errors import DataError, UsageError
from regard.model.config import ImageConfig
from regard.model.fronts import ImageFront
from tests.properties.small_models import randomise


def build(height=8, width=12, patch=4, **options):
    front = ImageFront(ImageConfig(16, height, width, patch, **options)).eval()
    randomise(front)
    return front


PIXELS = torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))


def test_each_patch_is_one_linear_map_in_reading_order():
    front = build(cls=False)
    weight, bias = front.patches.weight.flatten(1), front.patches.bias
    made = front(PIXELS)
    assert made.x.shape == (2, 6, 16) and made.positions.tolist() == [list(range(6))]
    for row in range(2):
        for column in range(3):
            piece = PIXELS[:, :, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4].flatten(1)
            number = row * 3 + column
            expected = piece @ weight.T + bias + front.positions.weight[number]
            torch.testing.assert_close(made.x[:, number], expected, rtol=0, atol=1e-5)


def test_the_class_token_comes_first_with_its_own_position():
    front = build()
    made = front(PIXELS)
    assert made.x.shape == (2, 7, 16)
    first = (front.cls[0, 0] + front.positions.weight[0]).expand(2, 16)
    assert torch.equal(made.x[:, 0], first)


def test_two_dimensional_positions_are_waves_of_row_and_column():
    front = build(position="2d")
    assert front.positions is None
    made = front(PIXELS)
    with torch.no_grad():
        for part in front.patches.parameters():
            part.zero_()
    bare = front(PIXELS).x
    assert torch.equal(bare[:, 0], front.cls[0].expand(2, 16))  # the class token has none
    for number in range(6):
        row, column = divmod(number, 3)
        waves = torch.cat([sinusoidal(torch.tensor(n), 8) for n in (row, column)]).float()
        assert torch.equal(bare[0, 1 + number], waves)
    assert not torch.equal(made.x, bare)


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_conv_stem_halves_down_to_one_value_per_patch(patch):
    front = build(8, 16, patch, stem="conv")
    convolutions = [part for part in front.patches if isinstance(part, nn.Conv2d)]
    assert [c.stride[0] for c in convolutions] == [2] * (patch.bit_length() - 1) + [1]
    assert convolutions[-1].out_channels == 16
    made = front(torch.randn(1, 3, 8, 16))
    assert made.x.shape == (1, 1 + (8 // patch) * (16 // patch), 16)


def test_conv_stem_keeps_places():
    """A change far from a patch does not reach it."""
    front = build(16, 16, 4, stem="conv", cls=False)
    pixels = torch.randn(1, 3, 16, 16)
    other = pixels.clone()
    other[..., 12:, 12:] += 1
    differs = (front(pixels).x != front(other).x).any(-1)[0].view(4, 4)
    assert differs[3, 3] and not differs[:2, :2].any()


def test_refusals():
    with pytest.raises(UsageError, match=r"8 × 10 pixels, patches of 4[\s\S]*multiples"):
        build(8, 10)
    with pytest.raises(UsageError, match=r"patch = 6[\s\S]*power of two"):
        build(12, 12, 6, stem="conv")
    with pytest.raises(DataError, match=r"\(1, 3, 8, 8\)[\s\S]*\(batch, 3, 8, 12\)"):
        build()(torch.zeros(1, 3, 8, 8))
    with pytest.raises(UsageError, match="did you mean conv"):
        ImageConfig(16, 8, 8, 4, stem="cnov")
    with pytest.raises(UsageError, match="position = '3d'"):
        ImageConfig(16, 8, 8, 4, position="3d")
