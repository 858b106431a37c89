"""wav2vec 2.0 and HuBERT against transformers."""

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.errors import DataError
from tests.parity import compare
from tests.parity.compare import Case

SIZES = dict(
    hidden_size=12,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=3,
    conv_dim=(8, 6, 10),
    conv_stride=(5, 2, 2),
    conv_kernel=(10, 3, 2),
    num_conv_pos_embeddings=8,
    num_conv_pos_embedding_groups=4,
    vocab_size=9,
)
STABLE = dict(do_stable_layer_norm=True, feat_extract_norm="layer", conv_bias=True)
CASES = {
    "wav2vec2": Case("Wav2Vec2ForCTC", SIZES),
    "wav2vec2, norms before": Case("Wav2Vec2ForCTC", SIZES | STABLE),
    "odd reach, nothing masked": Case(
        "Wav2Vec2ForCTC", SIZES | dict(num_conv_pos_embeddings=5, mask_time_prob=0.0)
    ),
    "hubert": Case("HubertForCTC", SIZES),
    "hubert, norms before": Case("HubertForCTC", SIZES | STABLE),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request, open_pair):
    return open_pair(request.param)


def test_logits(pair):
    assert compare.gap(pair.ours, pair.theirs) <= compare.BAR


def test_a_wrong_table_fails(pair, monkeypatch):
    compare.check_control(pair, monkeypatch)


def test_round_trip(pair, tmp_path):
    compare.check_round_trip(pair, tmp_path)


def test_save(pair, tmp_path):
    compare.check_save(pair, tmp_path)


def test_strict_frames_are_those_of_each_clip_alone(pair):
    x = torch.randn(3, 1, 400, generator=torch.Generator().manual_seed(0))
    strict = pair.ours.logits(x, strict=True)
    assert torch.equal(strict, torch.cat([pair.ours.logits(row[None], strict=True) for row in x]))
    assert torch.allclose(strict, pair.ours.logits(x), atol=1e-5)


def test_names_of_normalised_weights_before_torch_2_1(open_pair):
    """As most folders on the Hub have them."""
    pair = open_pair(CASES["wav2vec2"])
    before, file = pair.ours.logits(x := torch.randn(1, 1, 400)), pair.folder / "model.safetensors"
    old = {"parametrizations.weight.original0": "weight_g"}
    old |= {"parametrizations.weight.original1": "weight_v"}
    tensors = load_file(file)
    for new, name in old.items():
        (full,) = (full for full in tensors if full.endswith(new))
        tensors[full.replace(new, name)] = tensors.pop(full)
    save_file(tensors, file, {"format": "pt"})
    assert torch.equal(regard.load(pair.folder).logits(x), before)


def test_too_short_and_other_shapes_are_refused(open_pair, tmp_path):
    kit = open_pair(CASES["wav2vec2"]).ours
    with pytest.raises(DataError, match="a twentieth"):
        kit.logits(torch.randn(1, 1, 29))
    assert kit.logits(torch.randn(1, 1, 30)).shape == (1, 1, 9)
    compare.edit_json(kit.path / "config.json", {"feat_proj_layer_norm": False})
    with pytest.raises(DataError, match="feat_proj_layer_norm"):
        regard.load(kit.path)
