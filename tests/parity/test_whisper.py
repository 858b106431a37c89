"""Whisper against transformers."""

import pytest
import torch

from regard.model import presets
from tests.parity import compare
from tests.parity.compare import Case

FAMILY = "WhisperForConditionalGeneration"
SIZES = dict(
    d_model=12,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=3,
    decoder_attention_heads=2,
    encoder_ffn_dim=20,
    decoder_ffn_dim=28,
    vocab_size=17,
    max_source_positions=10,
    max_target_positions=12,
    num_mel_bins=5,
    pad_token_id=0,
    bos_token_id=0,
    eos_token_id=0,
    decoder_start_token_id=1,
    begin_suppress_tokens=None,
)
CASES = {
    "gelu": Case(FAMILY, SIZES),
    "relu, 1 and 3 layers": Case(
        FAMILY, SIZES | dict(activation_function="relu", encoder_layers=1, decoder_layers=3)
    ),
    # transformers reads scale_embedding and computes nothing with it
    "scale_embedding, 5 heads": Case(
        FAMILY, SIZES | dict(scale_embedding=True, d_model=20, encoder_attention_heads=5)
    ),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request, open_pair):
    return open_pair(request.param)


@pytest.mark.parametrize("padding", compare.PADDING)
def test_logits(pair, padding):
    targets = compare.texts(pair, padding == "none", "target")
    target, mask = compare.lay(targets, padding)
    mel = torch.randn(3, 5, 20, generator=torch.Generator().manual_seed(2))
    ours = pair.ours.logits(mel, target, mask=mask)
    more = {}
    if mask is not None:
        places = compare.places(mask)
        more = dict(decoder_attention_mask=mask.long(), decoder_position_ids=places)
    theirs = compare.run(pair, input_features=mel, decoder_input_ids=target, **more)
    alone = [
        compare.run(pair, input_features=mel[n : n + 1], decoder_input_ids=torch.tensor([t]))[0]
        for n, t in enumerate(targets)
    ]
    found = torch.cat([our[m] for our, m in compare.each(ours, mask)])
    compare.assert_close(found, torch.cat(alone))
    real = torch.ones_like(target, dtype=torch.bool) if mask is None else mask
    compare.assert_close(ours[real], theirs[real])


def test_a_wrong_table_fails(pair, monkeypatch):
    compare.check_control(pair, monkeypatch)


def test_round_trip(pair, tmp_path):
    compare.check_round_trip(pair, tmp_path)


def test_save(pair, tmp_path):
    compare.check_save(pair, tmp_path)


def test_shards(pair, tmp_path):
    compare.check_shards(pair, tmp_path)


def test_a_stored_copy_of_the_tied_head(open_pair, tmp_path):
    copies = {"proj_out.weight": "model.decoder.embed_tokens.weight"}
    compare.check_duplicates(open_pair(CASES["gelu"]), tmp_path, copies)


def test_born(tmp_path):
    config = presets.whisper(12, 2, 3, vocab=17, mels=5, seconds=1)
    compare.check_born(config, FAMILY, tmp_path)
