"""GPT-2 against transformers."""

import pytest
import torch

import regard
from regard.interop.weights import export_tensors
from regard.model import presets
from tests.parity import compare
from tests.parity.compare import Case

SIZES = dict(n_layer=2, n_positions=16, bos_token_id=0, eos_token_id=0)
CASES = {
    "3 heads": Case("GPT2LMHeadModel", dict(n_embd=12, n_head=3, vocab_size=11, **SIZES)),
    "untied": Case(
        "GPT2LMHeadModel",
        dict(n_embd=20, n_head=5, vocab_size=19, n_inner=28, tie_word_embeddings=False, **SIZES),
    ),
    "relu, large eps": Case(
        "GPT2LMHeadModel",
        dict(
            n_embd=14,
            n_head=7,
            vocab_size=13,
            activation_function="relu",
            layer_norm_epsilon=1e-2,
            **SIZES,
        ),
    ),
    "body": Case(
        "GPT2Model",
        dict(n_embd=10, n_head=1, vocab_size=9, activation_function="gelu", **SIZES),
    ),
    "colours": Case(
        "ImageGPTForCausalImageModeling",
        dict(n_embd=12, n_head=3, vocab_size=11, n_layer=2, n_positions=16),
    ),
    "body of colours": Case(
        "ImageGPTModel", dict(n_embd=8, n_head=2, vocab_size=9, n_layer=2, n_positions=16)
    ),
    "classes": Case(
        "GPT2ForSequenceClassification",
        dict(n_embd=12, n_head=3, vocab_size=11, num_labels=3, pad_token_id=0, **SIZES),
    ),
    "tags": Case(
        "GPT2ForTokenClassification",
        dict(n_embd=12, n_head=3, vocab_size=11, num_labels=4, **SIZES),
    ),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def pair(request, open_pair):
    return open_pair(request.param)


@pytest.fixture
def first(open_pair):
    return open_pair(CASES["3 heads"])


@pytest.mark.parametrize("padding", compare.PADDING)
def test_logits(pair, padding):
    compare.check_text(pair, padding)


def test_a_wrong_table_fails(pair, monkeypatch):
    compare.check_control(pair, monkeypatch)


def test_round_trip(pair, tmp_path):
    compare.check_round_trip(pair, tmp_path)


def test_save(pair, tmp_path):
    compare.check_save(pair, tmp_path)


def test_born(tmp_path):
    compare.check_born(presets.gpt2(12, 2, 3, vocab=11, length=16), "GPT2LMHeadModel", tmp_path)


def test_shards(pair, tmp_path):
    compare.check_shards(pair, tmp_path)


def test_a_stored_copy_of_the_tied_head(first, tmp_path):
    compare.check_duplicates(first, tmp_path, {"lm_head.weight": "transformer.wte.weight"})


def test_names_without_prefix(first, tmp_path):
    # The first GPT-2 file: no "transformer." and two buffers in each layer.
    held = compare.read_tensors(first.folder)
    bare = {name.removeprefix("transformer."): tensor for name, tensor in held.items()}
    buffers = {
        f"h.{i}.attn.{name}": tensor
        for i in range(2)
        for name, tensor in (
            ("bias", torch.ones(1, 1, 16, 16).tril()),
            ("masked_bias", torch.tensor(-1e4)),
        )
    }
    for number, more in enumerate(({}, buffers)):
        folder = compare.copy_with(first, tmp_path / f"in{number}", bare | more)
        ours = regard.load(folder)
        assert compare.gap(ours, first.theirs) <= compare.BAR
        compare.assert_same_tensors(dict(export_tensors(ours.model, ours.binding)), bare)
        ours.save(tmp_path / f"out{number}")
        compare.assert_same_tensors(compare.read_tensors(tmp_path / f"out{number}"), bare)
        theirs = compare.open_quietly("GPT2LMHeadModel", tmp_path / f"out{number}")
        assert compare.gap(ours, theirs) <= compare.BAR
