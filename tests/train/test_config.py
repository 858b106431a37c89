"""TrainConfig and ShapeConfig: limits, and what a resumed run may change."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from regard.errors import UsageError
from regard.train.config import FREE, PictureConfig, PixelConfig, ShapeConfig, TrainConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"dropout": 1.0},
        {"smoothing": -0.1},
        {"log_every": 0},
        {"average": 0},
        {"workers": -1},
        {"beta2": 1.0},
        {"floor": 1.1},
        {"schedule": "cosin"},
        {"precision": "fp4"},
    ],
)
def test_values_outside_their_limits(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TrainConfig(**wrong)


def test_pictures_have_a_side_that_fits_into_memory():
    for kind in (PictureConfig, PixelConfig):
        assert kind(size=4096).size == 4096
        with pytest.raises(UsageError, match="size = 4097"):
            kind(size=4097)


def test_a_round_trip_and_known_free_fields():
    config = TrainConfig(steps=7, floor=1.0)
    assert TrainConfig(**asdict(config)) == config
    assert set(FREE) <= set(asdict(config))


def test_shapes_of_each_kind():
    assert ShapeConfig().resolve("lm").family == "llama"
    assert ShapeConfig(dim=64).resolve("mlm").hidden == 256
    config, family = ShapeConfig(dim=64, hidden=96).resolve("seq2seq").build(50, 2000)
    assert family == "MarianMTModel" and config.decoder.block.hidden == 96
    assert config.front.length == 2000
    assert ShapeConfig(dim=64, pre_norm=True).resolve("seq2seq").build(50, 64)[1] is None
    deep = ShapeConfig(dim=64, depth=6, decoder_depth=2).resolve("seq2seq").build(50, 64)[0]
    assert (deep.encoder.depth, deep.decoder.depth) == (6, 2)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("mlm", {"family": "gpt2"}),
        ("lm", {"pre_norm": True}),
        ("mlm", {"kv_heads": 2}),
        ("lm", {"decoder_depth": 2}),
    ],
)
def test_a_shape_that_no_such_model_has(kind, wrong):
    with pytest.raises(UsageError, match="choosing a shape"):
        ShapeConfig(**wrong).resolve(kind)
