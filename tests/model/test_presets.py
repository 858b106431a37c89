"""Presets: known parameter counts, and every line builds; on the meta device, without memory."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UsageError
from regard.model.config import HeadConfig
from regard.model.model import Model
from regard.model.presets import PRESETS, architecture, preset


def parameters(config):
    with torch.device("meta"):
        model = Model(config)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("smollm2-135m", 134_515_008),
        ("llama3.2-1b", 1_235_814_400),
        ("vit-b16", 86_567_656),
        ("vit-l16", 304_326_632),
    ],
)
def test_counts_as_published(name, count):
    assert parameters(preset(name)) == count


@pytest.mark.parametrize(
    ("name", "millions"), [("transformer-base", 63.08), ("transformer-big", 214.2)]
)
def test_counts_of_2017(name, millions):
    """Tied embeddings and biases; the bias of the scores (one per token) is Marian's addition."""
    config = preset(name)
    count = parameters(config) - config.head.size
    assert round(count / 1e6, 2 if millions < 100 else 1) == millions


def test_bert_encoder_with_pooler():
    """The published 109,482,240 has a pooler in place of the masked-language head."""
    import dataclasses

    config = preset("bert-base")
    pooler = HeadConfig(take="first", transform="tanh")
    assert parameters(dataclasses.replace(config, head=pooler)) == 109_482_240


@pytest.mark.parametrize("name", PRESETS)
def test_every_line_builds_and_runs_through_a_dict(name):
    config = preset(name)
    assert parameters(config) > 1e6
    assert type(config).from_dict(config.to_dict()) == config
    assert architecture(name) is None or architecture(name).endswith(
        ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "Generation", "MTModel", "Classification")
    )


def test_an_unknown_preset_gets_the_nearest():
    with pytest.raises(UsageError, match=r"'gpt-2'[\s\S]*did you mean gpt2"):
        preset("gpt-2")
