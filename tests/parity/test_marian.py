"""Marian against transformers, and the Transformer of 2017 that is saved as one."""

import json

import pytest
import torch

import regard
from regard.kit import Kit
from regard.model import presets
from regard.model.model import Model
from tests.parity import compare
from tests.parity.compare import Case

SIZES = dict(
    d_model=12,
    encoder_layers=2,
    decoder_layers=1,
    encoder_attention_heads=3,
    decoder_attention_heads=2,
    encoder_ffn_dim=20,
    decoder_ffn_dim=28,
    vocab_size=17,
    max_position_embeddings=16,
    pad_token_id=0,
    eos_token_id=1,
    decoder_start_token_id=0,
)
OPUS = dict(activation_function="swish", scale_embedding=True)
CASES = {
    "opus": Case("MarianMTModel", SIZES | OPUS),
    "relu, 1 and 3 layers": Case(
        "MarianMTModel",
        SIZES | dict(activation_function="relu", encoder_layers=1, decoder_layers=3),
    ),
    "two vocabularies": Case(
        "MarianMTModel",
        SIZES | OPUS | dict(decoder_vocab_size=19, share_encoder_decoder_embeddings=False),
    ),
    "odd half width": Case(
        "MarianMTModel", SIZES | dict(d_model=10, encoder_attention_heads=5)
    ),  # 5 sines, 5 cosines
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request, open_pair):
    return open_pair(request.param)


@pytest.mark.parametrize("target", compare.PADDING)
@pytest.mark.parametrize("source", compare.PADDING)
def test_logits(pair, source, target):
    compare.check_pairs(pair, source, target, columns=True)


def test_a_wrong_table_fails(pair, monkeypatch):
    compare.check_control(pair, monkeypatch)


def test_round_trip(pair, tmp_path):
    compare.check_round_trip(pair, tmp_path)


def test_save(pair, tmp_path):
    compare.check_save(pair, tmp_path)


def test_shards(pair, tmp_path):
    compare.check_shards(pair, tmp_path)


def test_stored_copies_and_fixed_tables(open_pair, tmp_path):
    # The published files hold the shared matrix four times and both tables of sines.
    pair = open_pair(CASES["opus"])
    names = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    copies = {f"{name}.weight": "model.shared.weight" for name in names}
    compare.check_duplicates(pair, tmp_path, copies)
    held = compare.read_tensors(pair.folder)
    state = pair.theirs.state_dict()
    tables = {n: t for n, t in state.items() if n.endswith("embed_positions.weight")}
    assert len(tables) == 2 and not set(tables) & set(held)
    ours = regard.load(compare.copy_with(pair, tmp_path / "tables", held | tables))
    assert compare.gap(ours, pair.theirs) <= compare.BAR


def test_born(tmp_path):
    compare.check_born(presets.transformer(12, 2, 3, vocab=17), "MarianMTModel", tmp_path)


def test_a_shape_no_family_holds_is_saved_as_our_own(tmp_path):
    ours = Kit(Model.fresh(presets.transformer(12, 2, 3, vocab=17, pre=True)))
    compare.randomise(ours.model)
    ours.save(tmp_path)
    held = json.loads((tmp_path / "config.json").read_text())
    assert held["model_type"] == "regard"
    again = regard.load(tmp_path)
    assert again.binding is None and again.model.config == ours.model.config
    compare.assert_same_tensors(again.model.state_dict(), ours.model.state_dict())
    source, target = torch.randint(17, (2, 2, 7))
    assert torch.equal(again.logits(source, target), ours.logits(source, target))
