"""What `regard.info` and `regard.models` say."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.core.tap import taps
from regard.errors import UsageError
from regard.interop.description import tap_shape
from regard.interop.folder import FolderSource
from regard.interop.properties import PropertyTester
from regard.model.model import empty_model
from regard.model.presets import PRESETS, preset


def test_a_folder_without_reading_its_weights(folders, monkeypatch):
    monkeypatch.setattr(FolderSource, "tensor", None)
    info = regard.info(folders / "decoder")
    size = (folders / "decoder" / "model.safetensors").stat().st_size
    assert info.architecture == "GPT2LMHeadModel" and info.family == "gpt2"
    assert info.parameters == 16 * (50 + 40) + 2 * (12 * 16**2 + 13 * 16) + 32
    assert info.bytes_on_disk == size and info.bytes_float32 == 4 * info.parameters
    kind = dict(kind="text", vocab=50, context_length=40, positions="learned")
    assert info.input.to_dict() == kind
    wanted = dict(dim=16, depth=2, heads=2, kv_heads=2, head_dim=8, hidden=64, causal=True)
    assert wanted.items() <= info.decoder.to_dict().items()
    assert info.tokenizer is None and info.parity is None
    assert "encoder" not in info.to_dict() and "taps" not in info.to_dict()


@pytest.mark.parametrize("kind", ["encoder", "pair", "picture"])
def test_every_kind_prints(kind, folders):
    text = str(regard.info(folders / kind))
    assert "parameters" in text and "not measured" in text and "heads" in text


def test_a_preset_and_an_opened_model(folders):
    text = str(regard.info("gpt2"))
    assert "124,439,808" in text and "in float32                474.7 MiB" in text
    opened = regard.info(regard.load(folders / "decoder"))
    assert opened.to_dict() == regard.info(folders / "decoder").to_dict()
    built = regard.info(regard.build("llama-15m"))
    assert built.to_dict() == regard.info("llama-15m").to_dict()


def test_taps_are_listed_with_their_shapes(folders):
    info = regard.info(folders / "decoder", taps=True)
    assert info.taps["decoder.blocks.1.attn.pattern"] == ["B", "H", "T", "S"]
    assert info.taps["decoder.blocks.0.mlp.post"] == ["B", "T", "M"]
    assert info.taps["logits"] == ["B", "T", "V"] and "B, T, V" in str(info)


@pytest.mark.parametrize("kind", ["decoder", "encoder", "pair", "picture"])
def test_the_letters_are_the_shapes_that_taps_see(kind, folders):
    kit = regard.load(folders / kind)
    tester = PropertyTester(kit, 0)
    target = None if tester.target is None else tester.target[:, :6]
    _, seen = kit.run(tester.inputs, target, taps="*")
    stack = kit.model.config.last.block
    own = seen[next(name for name in seen if name.endswith("embed"))].shape[1]
    sizes = dict(B=3, T=own, S=own, D=16, H=2, G=2, K=8, M=stack.hidden)
    sizes["V"] = kit.model.config.head.size
    if target is not None:
        sizes |= dict(T=6, S=9)
    assert len(seen) == len(taps(kit.model))
    for name, x in seen.items():
        shape = dict(sizes)
        if target is not None and name.startswith("decoder.") and ".attn." in name:
            shape["S"] = 6  # its own sequence is what self-attention looks at
        assert x.shape == tuple(shape[letter] for letter in tap_shape(name, kit.model.config)), name


def test_every_preset_has_an_outline():
    for name in PRESETS:
        model = empty_model(preset(name))
        assert all(parameter.device == torch.device("meta") for parameter in model.parameters())


def test_models():
    catalogue = regard.models()
    assert {p.name: p.parameters for p in catalogue.presets}["gpt2"] == 124_439_808
    assert "GPT2LMHeadModel" in catalogue.architectures["gpt2"]
    assert "fr-en" in [model.name for model in catalogue.models]


def test_a_name_that_is_nearly_one():
    with pytest.raises(UsageError, match="did you mean gpt2"):
        regard.info("gpt-2")


def test_presets_stand_on_the_four_axes_of_the_survey():
    presets = {preset.name: preset for preset in regard.models().presets}
    llama, bert = presets["smollm2-135m"], presets["bert-base"]
    assert llama.module == "grouped-query, rotary positions, rms pre-norm, gated silu"
    assert (llama.architecture, llama.pretraining, llama.application) == (
        "decoder",
        "next token",
        "text",
    )
    assert bert.module == "multi-head, learned positions, layer post-norm, gelu"
    assert (bert.architecture, bert.pretraining) == ("encoder", "masked tokens")
    assert presets["whisper-tiny"].application == "speech to text"
    assert presets["t5-small"].architecture == "encoder-decoder"
