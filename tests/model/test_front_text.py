"""Text front: token, position and segment embeddings (MISSION #42, #48, #49)."""

from __future__ import annotations

import pytest
import torch

from regard.core.position import sinusoidal
from regard.errors import DataError
from regard.model.config import TextConfig
from regard.model.fronts import TextFront
from tests.properties.small_models import randomise, small_kit

IDS = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])


def build(**options):
    front = TextFront(TextConfig(8, 12, **options)).eval()
    randomise(front)
    return front


def test_tokens_alone():
    front = build()
    made = front(IDS)
    assert torch.equal(made.x, front.tokens.weight[IDS])
    assert made.positions.tolist() == [[0, 1, 2, 3]] and made.real is None


def test_scale():
    front = build(scale=True)
    assert torch.equal(front(IDS).x, front.tokens.weight[IDS] * 8**0.5)


@pytest.mark.parametrize("offset", [0, 2])
def test_learned_positions(offset):
    front = build(position="learned", length=8, offset=offset)
    expected = front.tokens.weight[IDS] + front.positions.weight[offset : offset + 4]
    assert torch.equal(front(IDS).x, expected)


@pytest.mark.parametrize("position", ["sinusoidal", "halves"])
def test_waves(position):
    front = build(position=position)
    waves = sinusoidal(torch.arange(4), 8, halves=position == "halves").float()
    assert torch.equal(front(IDS).x, front.tokens.weight[IDS] + waves)


def test_segments_are_zero_unless_given():
    front = build(segments=2)
    segments = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0]])
    assert torch.equal(front(IDS).x, front.tokens.weight[IDS] + front.segments.weight[0])
    expected = front.tokens.weight[IDS] + front.segments.weight[segments]
    assert torch.equal(front(IDS, segment=segments).x, expected)


def test_the_norm_is_on_the_sum():
    front = build(norm="layer", position="learned", length=8, segments=2)
    plain = front.tokens.weight[IDS] + front.segments.weight[0] + front.positions.weight[:4]
    torch.testing.assert_close(front(IDS).x, front.norm(plain))


def test_positions_skip_padding_and_restart_with_documents():
    front = build(position="learned", length=8)
    real = torch.tensor([[False, False, True, True], [True, True, True, False]])
    made = front(IDS, real)
    assert made.positions[0, 2:].tolist() == [0, 1] and made.positions[1, :3].tolist() == [0, 1, 2]
    documents = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    assert front(IDS, None, documents).positions.tolist() == [[0, 1, 0, 1], [0, 0, 1, 2]]


def test_past_a_learned_table_the_limit_and_the_alternatives_are_named():
    front = build(position="learned", length=6, offset=2)
    front(IDS)
    with pytest.raises(DataError) as failure:
        front(torch.zeros(1, 5, dtype=torch.long))
    message = str(failure.value)
    assert "a sequence of 5 tokens" in message and "at most 4" in message
    for other in ("rotary", "relative", "ALiBi", "sinusoidal"):
        assert other in message


def test_padding_does_not_count_towards_the_limit():
    front = build(position="learned", length=4)
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
    front = build(dropout=1.0)
    assert (front.train()(IDS).x == 0).all() and (front.eval()(IDS).x != 0).any()
