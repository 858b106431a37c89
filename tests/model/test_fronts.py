"""Fronts: text, positions that are spread, pictures, sound."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.core.config import BlockConfig, StackConfig
from regard.core.position import sinusoidal
from regard.errors import DataError, UsageError
from regard.model.batch import Batch
from regard.model.config import AudioConfig, HeadConfig, ImageConfig, ModelConfig, TextConfig
from regard.model.fronts import AudioFront, ImageFront, TextFront, resize_positions
from regard.model.model import Model
from tests.properties.small_models import randomise, small_kit

IDS = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])


def build_text(**options):
    front = TextFront(TextConfig(8, 12, **options)).eval()
    randomise(front)
    return front


def test_tokens_alone():
    front = build_text()
    made = front(IDS)
    assert torch.equal(made.x, front.tokens.weight[IDS])
    assert made.positions.tolist() == [[0, 1, 2, 3]] and made.real is None


def test_scale():
    front = build_text(scale=True)
    assert torch.equal(front(IDS).x, front.tokens.weight[IDS] * 8**0.5)


@pytest.mark.parametrize("offset", [0, 2])
def test_learned_positions(offset):
    front = build_text(position="learned", length=8, offset=offset)
    expected = front.tokens.weight[IDS] + front.positions.weight[offset : offset + 4]
    assert torch.equal(front(IDS).x, expected)


@pytest.mark.parametrize("position", ["sinusoidal", "halves"])
def test_waves(position):
    front = build_text(position=position)
    waves = sinusoidal(torch.arange(4), 8, halves=position == "halves").float()
    assert torch.equal(front(IDS).x, front.tokens.weight[IDS] + waves)


def test_segments_are_zero_unless_given():
    front = build_text(segments=2)
    segments = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0]])
    assert torch.equal(front(IDS).x, front.tokens.weight[IDS] + front.segments.weight[0])
    expected = front.tokens.weight[IDS] + front.segments.weight[segments]
    assert torch.equal(front(IDS, segment=segments).x, expected)


def test_the_norm_is_on_the_sum():
    front = build_text(norm="layer", position="learned", length=8, segments=2)
    plain = front.tokens.weight[IDS] + front.segments.weight[0] + front.positions.weight[:4]
    torch.testing.assert_close(front(IDS).x, front.norm(plain))


def test_positions_skip_padding_and_restart_with_documents():
    front = build_text(position="learned", length=8)
    real = torch.tensor([[False, False, True, True], [True, True, True, False]])
    made = front(IDS, real)
    assert made.positions[0, 2:].tolist() == [0, 1] and made.positions[1, :3].tolist() == [0, 1, 2]
    documents = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    assert front(IDS, None, documents).positions.tolist() == [[0, 1, 0, 1], [0, 0, 1, 2]]


def test_past_a_learned_table_the_limit_and_the_alternatives_are_named():
    front = build_text(position="learned", length=6, offset=2)
    front(IDS)
    with pytest.raises(DataError) as failure:
        front(torch.zeros(1, 5, dtype=torch.long))
    message = str(failure.value)
    assert "a sequence of 5 tokens" in message and "at most 4" in message
    for other in ("rotary", "relative", "ALiBi", "sinusoidal"):
        assert other in message


def test_padding_does_not_count_towards_the_limit():
    front = build_text(position="learned", length=4)
    real = torch.tensor([[False, False, True, True, True, True]])
    assert front(torch.zeros(1, 6, dtype=torch.long), real).x.shape == (1, 6, 8)
    packed = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    assert front(torch.zeros(1, 7, dtype=torch.long), None, packed).x.shape == (1, 7, 8)


def test_the_limit_holds_across_calls_with_a_cache():
    kit = small_kit("gpt2")  # 96 positions
    cache = kit.cache(1, 200)
    kit.logits(torch.zeros(1, 96, dtype=torch.long), cache=cache)
    with pytest.raises(DataError, match="97 tokens"):
        kit.logits(torch.zeros(1, 1, dtype=torch.long), cache=cache)


def test_dropout_acts_in_training_only():
    front = build_text(dropout=1.0)
    assert (front.train()(IDS).x == 0).all() and (front.eval()(IDS).x != 0).any()


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


def build_image(height=8, width=12, patch=4, **options):
    front = ImageFront(ImageConfig(16, height, width, patch, **options)).eval()
    randomise(front)
    return front


PIXELS = torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))


def test_each_patch_is_one_linear_map_in_reading_order():
    front = build_image(cls=False)
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
    front = build_image()
    made = front(PIXELS)
    assert made.x.shape == (2, 7, 16)
    first = (front.cls[0, 0] + front.positions.weight[0]).expand(2, 16)
    assert torch.equal(made.x[:, 0], first)


def test_two_dimensional_positions_are_waves_of_row_and_column():
    front = build_image(position="2d")
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


def classes_of(position, pool):
    """A classifier of pictures of 12 × 8 pixels in six patches."""
    front = ImageConfig(8, 12, 8, 4, position=position, cls=pool == "first")
    stack = StackConfig(BlockConfig(8, 2, 16), 2)
    model = Model(ModelConfig(front, HeadConfig(5, pool), encoder=stack)).eval()
    randomise(model)
    return model


@pytest.mark.parametrize("pool", ["first", "mean"])
@torch.no_grad()
def test_without_positions_the_order_of_patches_is_nothing(pool):
    pixels = torch.randn(2, 3, 12, 8)
    moved = torch.cat((pixels[:, :, 4:, 4:], pixels[:, :, 4:, :4]), 3)
    moved = torch.cat((moved, pixels[:, :, :4].flip(-1).flip(-1)), 2)  # patches in another order
    for position, same in (("none", True), ("learned", False), ("2d", False)):
        model = classes_of(position, pool)
        assert torch.allclose(model(Batch(pixels)), model(Batch(moved)), atol=1e-5) == same


@torch.no_grad()
def test_patches_that_move_with_their_positions_give_the_same_class():
    model, pixels = classes_of("learned", "first"), torch.randn(2, 3, 12, 8)
    scores = model(Batch(pixels))
    moved = torch.cat((pixels[:, :, 8:], pixels[:, :, :8]), 2)  # the last row of patches first
    table = model.front.positions.weight
    table.copy_(table[[0, 5, 6, 1, 2, 3, 4]])
    assert torch.allclose(model(Batch(moved)), scores, atol=1e-5)


def test_positions_are_resized_over_the_grid_and_tokens_keep_theirs():
    table = torch.randn(2 + 12, 8)
    assert torch.equal(resize_positions(table, (3, 4), (3, 4)), table)
    large = resize_positions(table, (3, 4), (6, 7))
    assert large.shape == (2 + 42, 8) and torch.equal(large[:2], table[:2])
    vit = pytest.importorskip("transformers.models.vit.modeling_vit")
    from transformers import ViTConfig

    theirs = vit.ViTEmbeddings(ViTConfig(hidden_size=8, image_size=12, patch_size=4))
    theirs.position_embeddings.data = table[None, :10].clone()
    expected = theirs.interpolate_pos_encoding(torch.zeros(1, 43, 8), 24, 28)
    assert torch.allclose(resize_positions(table[:10], (3, 3), (6, 7)), expected[0], atol=1e-6)


def test_a_distillation_token_comes_second():
    front = ImageFront(ImageConfig(8, 8, 8, 4, distilled=True)).eval()
    randomise(front)
    made = front(torch.zeros(1, 3, 8, 8)).x - front.positions.weight
    assert made.shape == (1, 6, 8)
    assert torch.allclose(made[0, 0], front.cls[0, 0]) and torch.allclose(
        made[0, 1], front.distillation[0, 0]
    )


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_conv_stem_halves_down_to_one_value_per_patch(patch):
    front = build_image(8, 16, patch, stem="conv")
    convolutions = [part for part in front.patches if isinstance(part, nn.Conv2d)]
    assert [c.stride[0] for c in convolutions] == [1, 2] * (patch.bit_length() - 1) + [1]
    assert convolutions[-1].out_channels == 16
    made = front(torch.randn(1, 3, 8, 16))
    assert made.x.shape == (1, 1 + (8 // patch) * (16 // patch), 16)


def test_conv_stem_keeps_places():
    """A change far from a patch does not reach it."""
    front = build_image(16, 16, 4, stem="conv", cls=False)
    pixels = torch.randn(1, 3, 16, 16)
    other = pixels.clone()
    other[..., 12:, 12:] += 1
    differs = (front(pixels).x != front(other).x).any(-1)[0].view(4, 4)
    assert differs[3, 3] and not differs[:2, :2].any()


def test_refusals():
    with pytest.raises(UsageError, match=r"8 × 10 pixels, patches of 4[\s\S]*multiples"):
        build_image(8, 10)
    with pytest.raises(UsageError, match=r"patch = 6[\s\S]*power of two"):
        build_image(12, 12, 6, stem="conv")
    with pytest.raises(DataError, match=r"\(1, 3, 8, 8\)[\s\S]*\(batch, 3, 8, 12\)"):
        build_image()(torch.zeros(1, 3, 8, 8))
    with pytest.raises(UsageError, match="did you mean conv"):
        ImageConfig(16, 8, 8, 4, stem="cnov")
    with pytest.raises(UsageError, match="position = '3d'"):
        ImageConfig(16, 8, 8, 4, position="3d")


def build_audio(length=10):
    front = AudioFront(AudioConfig(16, 5, length)).eval()
    randomise(front)
    return front


@pytest.mark.parametrize("frames", [20, 13, 1])
def test_convolutions_by_hand(frames):
    front = build_audio()
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
        build_audio()(torch.zeros(shape))
