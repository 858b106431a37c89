"""T5, versions 1 and 1.1, against transformers."""

import json
from dataclasses import replace

import pytest
import torch

import regard
from regard.kit import Kit
from regard.model import presets
from tests.parity import compare
from tests.parity.compare import Case, Pair

SIZES = dict(num_layers=2, d_model=12, d_kv=4, d_ff=20, vocab_size=17, num_heads=3)
SMALL_BUCKETS = dict(relative_attention_num_buckets=8, relative_attention_max_distance=6)
GATED = SIZES | dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
CASES = {
    "v1": Case("T5ForConditionalGeneration", SIZES),
    "v1, small buckets, 1 and 2 layers": Case(
        "T5ForConditionalGeneration",
        SIZES | SMALL_BUCKETS | dict(num_layers=1, num_decoder_layers=2, d_kv=6, num_heads=5),
    ),
    # tie_word_embeddings=False means "do not scale" to this class and ties all the same
    "v1.1": Case("T5ForConditionalGeneration", GATED | SMALL_BUCKETS),
    "gated silu, large eps": Case(
        "T5ForConditionalGeneration",
        SIZES | dict(feed_forward_proj="gated-silu", layer_norm_epsilon=1e-2),
    ),
    "gelu": Case("T5ForConditionalGeneration", SIZES | dict(feed_forward_proj="gelu", d_model=10)),
}
NOT_TIED = "both are present in the checkpoints with different values, so we will NOT tie"
FAMILY = "T5ForConditionalGeneration"


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request, open_pair):
    return open_pair(request.param)


@pytest.fixture(scope="module", params=["scaled", "unscaled", "old v1.1"])
def untied(request, open_pair, tmp_path_factory):
    """A file with an output matrix of its own, as all published v1.1 checkpoints have."""
    tied = open_pair(CASES["v1" if request.param == "scaled" else "v1.1"])
    held = compare.read_tensors(tied.folder)
    head = torch.randn(17, 12, generator=torch.Generator().manual_seed(5))
    folder = tmp_path_factory.mktemp("untied")
    # Version 4 of transformers wrote tie_word_embeddings = false and no scale_decoder_outputs.
    old = dict(scale_decoder_outputs=None, tie_word_embeddings=False)
    edits = old if request.param == "old v1.1" else {}
    compare.copy_with(tied, folder, held | {"lm_head.weight": head}, **edits)
    theirs = compare.open_quietly(FAMILY, folder, (NOT_TIED,))
    assert torch.equal(theirs.lm_head.weight, head)
    assert theirs.config.scale_decoder_outputs == (request.param == "scaled")
    return Pair(tied.case, folder, theirs, regard.load(folder))


@pytest.mark.parametrize("target", compare.PADDING)
@pytest.mark.parametrize("source", compare.PADDING)
def test_logits(pair, source, target):
    compare.check_pairs(pair, source, target, columns=False)


@pytest.mark.parametrize("padding", compare.PADDING)
def test_untied_logits(untied, padding):
    assert not untied.ours.model.config.head.tied
    compare.check_pairs(untied, padding, padding, columns=False)


def test_a_wrong_table_fails(pair, monkeypatch):
    compare.check_control(pair, monkeypatch)


def test_round_trip(pair, tmp_path):
    compare.check_round_trip(pair, tmp_path)


def test_save(pair, tmp_path):
    compare.check_save(pair, tmp_path)


def test_untied_round_trip_and_save(untied, tmp_path):
    compare.check_round_trip(untied, tmp_path)
    # transformers 5.22 ties every T5 in its config, so it says so of each untied file, its own
    # too; it then computes with the file's matrix.
    compare.check_save(untied, tmp_path / "out", (NOT_TIED,))


def test_shards(pair, tmp_path):
    compare.check_shards(pair, tmp_path)


def test_born(tmp_path):
    compare.check_born(presets.t5(12, 2, 3, 20, head_dim=4, vocab=17), FAMILY, tmp_path)


@pytest.mark.parametrize("scale", [None, 12**-0.5])
def test_born_untied(tmp_path, scale):
    config = presets.t5(12, 2, 3, 20, head_dim=4, vocab=17)
    config = replace(config, head=replace(config.head, tied=False, scale=scale))
    compare.check_born(config, FAMILY, tmp_path, (NOT_TIED,))


def test_stored_copies_of_the_embeddings(open_pair, tmp_path):
    copies = dict.fromkeys(
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), "shared.weight"
    )
    compare.check_duplicates(open_pair(CASES["v1"]), tmp_path, copies)
    copies["lm_head.weight"] = "shared.weight"
    compare.check_duplicates(open_pair(CASES["v1"]), tmp_path, copies)


def test_the_scale_matters(open_pair, tmp_path):
    pair = open_pair(CASES["v1"])
    held = compare.read_tensors(pair.folder)
    folder = compare.copy_with(pair, tmp_path, held, scale_decoder_outputs=False)
    assert json.loads((folder / "config.json").read_text())["scale_decoder_outputs"] is False
    ours: Kit = regard.load(folder)
    assert compare.gap(ours, pair.theirs) > compare.FAR
