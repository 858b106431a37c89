"""Llama, Mistral, Qwen 2 and Qwen 3 against transformers."""

import pytest
import torch
import transformers

import regard
from regard.core.config import RotaryScaling
from regard.interop.families import ARCHITECTURES, bind
from regard.interop.table import read_config
from regard.model import presets
from tests.parity import compare
from tests.parity.compare import Case

BASE = dict(num_hidden_layers=2, max_position_embeddings=64, vocab_size=17)
NARROW = dict(hidden_size=24, intermediate_size=20, num_attention_heads=6, **BASE)
# Wavelengths of 6 to 400,000 tokens around a length of 16: some kept, some blended, some stretched.
LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
WIDE_HEADS = NARROW | dict(num_key_value_heads=2, head_dim=12)
STRETCHED = WIDE_HEADS | dict(rope_parameters=dict(rope_theta=500.0, **LLAMA3))
CASES = {
    "llama": Case("LlamaForCausalLM", NARROW),
    "llama classes": Case(
        "LlamaForSequenceClassification", NARROW | dict(num_labels=3, pad_token_id=0)
    ),
    "qwen tags": Case(
        "Qwen3ForTokenClassification",
        NARROW | dict(num_labels=4, num_key_value_heads=2, head_dim=10),
    ),
    "llama grouped": Case(
        "LlamaForCausalLM", NARROW | dict(num_key_value_heads=3, tie_word_embeddings=True)
    ),
    "llama multi-query, biases": Case(
        "LlamaForCausalLM",
        NARROW | dict(num_key_value_heads=1, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-2),
    ),
    "llama 3 heads, gelu, other base": Case(
        "LlamaForCausalLM",
        NARROW
        | dict(
            hidden_size=18,
            num_attention_heads=3,
            num_key_value_heads=3,
            hidden_act="gelu",
            rope_parameters=dict(rope_type="default", rope_theta=300.0),
        ),
    ),
    "llama other base, old": Case(
        "LlamaForCausalLM",
        NARROW | dict(rope_parameters=dict(rope_type="default", rope_theta=300.0)),
        edit=dict(rope_parameters=None, rope_theta=300.0),
    ),
    "llama 3": Case("LlamaForCausalLM", STRETCHED),
    "llama 3, old": Case(
        "LlamaForCausalLM",
        STRETCHED,
        edit=dict(rope_parameters=None, rope_theta=500.0, rope_scaling=LLAMA3),
    ),
    "llama body": Case("LlamaModel", NARROW | dict(num_key_value_heads=2)),
    "mistral window": Case(
        "MistralForCausalLM", NARROW | dict(num_key_value_heads=2, sliding_window=4)
    ),
    "mistral no window": Case(
        "MistralForCausalLM",
        NARROW | dict(num_key_value_heads=6, sliding_window=None, tie_word_embeddings=True),
    ),
    "qwen2": Case("Qwen2ForCausalLM", NARROW | dict(num_key_value_heads=2)),
    "qwen2 tied": Case(
        "Qwen2ForCausalLM", NARROW | dict(num_key_value_heads=1, tie_word_embeddings=True)
    ),
    "qwen3": Case("Qwen3ForCausalLM", NARROW | dict(num_key_value_heads=2, head_dim=10)),
    "qwen3 tied, biases": Case(
        "Qwen3ForCausalLM",
        NARROW
        | dict(num_key_value_heads=6, head_dim=4, attention_bias=True, tie_word_embeddings=True),
    ),
}
FEW = ["llama grouped", "llama 3", "mistral window", "qwen2", "qwen3"]


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request, open_pair):
    return open_pair(request.param)


@pytest.fixture(params=FEW)
def one(request, open_pair):
    return open_pair(CASES[request.param])


@pytest.mark.parametrize("padding", compare.PADDING)
def test_logits(pair, padding):
    compare.check_text(pair, padding)


def test_a_wrong_table_fails(one, monkeypatch):
    compare.check_control(one, monkeypatch)


def test_round_trip(pair, tmp_path):
    compare.check_round_trip(pair, tmp_path)


def test_save(pair, tmp_path):
    compare.check_save(pair, tmp_path)


def test_shards(one, tmp_path):
    compare.check_shards(one, tmp_path)


def test_settings_reach_the_model(open_pair):
    # Each is tied to a difference in the logits by the tests above; these are the numbers.
    window = open_pair(CASES["mistral window"]).ours.model.config.decoder.block.window
    assert window == 4
    for name in ("llama 3", "llama 3, old"):
        stack = open_pair(CASES[name]).ours.model.config.decoder
        assert (stack.rotary_base, stack.rotary_scaling) == (500.0, RotaryScaling(8, 1, 4, 16))


def test_stretching_and_window_show_in_the_logits(open_pair, tmp_path):
    # Without them the same weights give other logits, so the parity above is not empty.
    for name, edit in (
        ("llama 3", dict(rope_parameters=dict(rope_type="default", rope_theta=500.0))),
        ("mistral window", dict(sliding_window=None)),
        ("llama other base, old", dict(rope_theta=10000.0)),
    ):
        pair = open_pair(CASES[name])
        tensors = compare.read_tensors(pair.folder)
        without = regard.load(compare.copy_with(pair, tmp_path / name, tensors, **edit))
        assert compare.gap(without, pair.theirs) > compare.FAR, name


@pytest.mark.parametrize("rotary", [(1e4, None), (500.0, RotaryScaling(8.0, 1.0, 4.0, 16))])
def test_born(tmp_path, rotary):
    config = presets.llama(24, 2, 6, 2, 20, 17, 64, rotary)
    compare.check_born(config, "LlamaForCausalLM", tmp_path)


@pytest.mark.parametrize("name", ["mistral window", "mistral no window", "qwen2", "qwen3"])
def test_born_relatives(open_pair, tmp_path, name):
    # A config.json made from our config alone, for the relatives that have no preset.
    pair = open_pair(CASES[name])
    compare.check_born(pair.ours.model.config, pair.case.architecture, tmp_path)


def test_a_stored_copy_of_the_tied_head(open_pair, tmp_path):
    names = {"lm_head.weight": "model.embed_tokens.weight"}
    compare.check_duplicates(open_pair(CASES["llama grouped"]), tmp_path, names)


def test_old_rotary_buffers_are_ignored(open_pair, tmp_path):
    pair = open_pair(CASES["llama grouped"])
    held = compare.read_tensors(pair.folder)
    old = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(2)}
    ours = regard.load(compare.copy_with(pair, tmp_path / "in", held | old))
    ours.save(tmp_path / "out")
    compare.assert_same_tensors(compare.read_tensors(tmp_path / "out"), held)
    assert compare.gap(ours, pair.theirs) <= compare.BAR


@pytest.mark.parametrize("name", [n for n in ARCHITECTURES if n.endswith("ForCausalLM")])
def test_what_a_missing_key_means(name):
    # As in transformers: its default config and a config.json with nothing but sizes agree.
    theirs = getattr(transformers, name).config_class().to_dict()
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    kept = (*sizes, "intermediate_size", "vocab_size", "max_position_embeddings")
    few = read_config(bind(name), {key: theirs[key] for key in kept})
    full = read_config(bind(name), theirs)
    assert few.decoder.block.width == full.decoder.block.width
    assert few.decoder.block.window == full.decoder.block.window
    assert (few.front, few.head) == (full.front, full.head)
    for key in ("eps", "act", "bias", "qk_norm", "groups"):
        assert getattr(few.decoder.block, key) == getattr(full.decoder.block, key)
    assert few.decoder.rotary_base == full.decoder.rotary_base
