"""ViT, DeiT and AST against transformers."""

import shutil
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import DataError
from regard.model import presets
from tests.parity import compare
from tests.parity.compare import Case

SIZES = dict(
    hidden_size=12,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=3,
    image_size=8,
    patch_size=4,
)
SOUND = {name: size for name, size in SIZES.items() if name != "image_size"}
SOUND |= dict(num_mel_bins=12, max_length=21, frequency_stride=3, time_stride=3, num_labels=5)
CASES = {
    "classes": Case("ViTForImageClassification", SIZES | dict(num_labels=5)),
    "no biases on q, k and v": Case(
        "ViTForImageClassification",
        SIZES | dict(qkv_bias=False, num_labels=3, layer_norm_eps=1e-2, hidden_act="gelu_new"),
    ),
    "1 channel, 5 heads, patches of 3": Case(
        "ViTForImageClassification",
        SIZES
        | dict(
            hidden_size=20,
            num_attention_heads=5,
            num_channels=1,
            image_size=9,
            patch_size=3,
            num_labels=2,
        ),
    ),
    "wide pictures": Case("ViTForImageClassification", SIZES | dict(image_size=[8, 12])),
    "distillation token": Case("DeiTForImageClassification", SIZES | dict(num_labels=5)),
    "distilled body": Case("DeiTModel", SIZES),
    "sound": Case("ASTForAudioClassification", SOUND),
    "sound, no biases, side by side": Case(
        "ASTForAudioClassification",
        SOUND | dict(qkv_bias=False, frequency_stride=4, time_stride=4, layer_norm_eps=1e-2),
    ),
    "body": Case("ViTModel", SIZES),
    "body, relu pooler": Case("ViTModel", SIZES | dict(pooler_act="relu", hidden_act="relu")),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request, open_pair):
    return open_pair(request.param)


def test_logits(pair):
    assert compare.gap(pair.ours, pair.theirs) <= compare.BAR


@pytest.mark.parametrize("name", ["body", "distilled body", "body, relu pooler"])
def test_vectors_below_the_pooler(open_pair, name):
    pair = open_pair(CASES[name])
    named, given = compare.inputs_of(pair.ours)
    with torch.no_grad():
        theirs = pair.theirs(**named).last_hidden_state
        ours = pair.ours.model.hidden(pair.ours.batch(*given))
    compare.assert_close(ours, theirs)


def test_a_wrong_table_fails(pair, monkeypatch):
    compare.check_control(pair, monkeypatch)


def test_round_trip(pair, tmp_path):
    compare.check_round_trip(pair, tmp_path)


def test_save(pair, tmp_path):
    compare.check_save(pair, tmp_path)


def test_shards(pair, tmp_path):
    compare.check_shards(pair, tmp_path)


@pytest.mark.parametrize("side", [8, 12])
def test_born(tmp_path, side):
    config = presets.vit(12, 2, 3, patch=4, side=side, classes=5)
    compare.check_born(config, "ViTForImageClassification", tmp_path)


def test_other_strides_are_refused(open_pair, tmp_path):
    folder = open_pair(CASES["sound"]).folder
    compare.edit_json(
        Path(shutil.copytree(folder, tmp_path / "x")) / "config.json", {"time_stride": 2}
    )
    with pytest.raises(DataError, match="strides 3 and 2"):
        regard.load(tmp_path / "x")


def test_a_new_model_of_wide_pictures_is_refused(open_pair, tmp_path):
    # Only a folder that was loaded keeps two sides; a new one must be saved as regard's own.
    config = open_pair(CASES["wide pictures"]).ours.model.config
    with pytest.raises(DataError, match="a shape this family cannot hold"):
        compare.check_born(config, "ViTForImageClassification", tmp_path)
    assert not list(tmp_path.iterdir())
