"""What tests of every room share: the command line in this process, its stdin, small folders."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest


@pytest.fixture
def run_regard(capsys):
    """The command line in this process: (exit code, stdout, stderr)."""
    from regard.cli.main import main

    def call(*arguments):
        code = main([str(word) for word in arguments])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return call


@pytest.fixture
def give_stdin(monkeypatch):
    """Let stdin hold these bytes."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))

    return give


def make_folder(folder, name, config_name, **sizes):
    """A folder as transformers saves it, every parameter random, norms and biases too."""
    import torch
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config_name)(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """One folder per kind of model; copy one before writing into it."""
    base = tmp_path_factory.mktemp("folders")
    make_folder(
        base / "decoder",
        "GPT2LMHeadModel",
        "GPT2Config",
        **dict(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=40),
        **dict(bos_token_id=1, eos_token_id=1),
    )
    make_folder(
        base / "encoder",
        "BertForMaskedLM",
        "BertConfig",
        **dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=50),
        **dict(intermediate_size=32, max_position_embeddings=40),
    )
    make_folder(
        base / "pair",
        "T5ForConditionalGeneration",
        "T5Config",
        **dict(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=50),
        **dict(decoder_start_token_id=0),
    )
    make_folder(
        base / "picture",
        "ViTForImageClassification",
        "ViTConfig",
        **dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32),
        **dict(image_size=8, patch_size=4, num_labels=5),
    )
    return base


@pytest.fixture
def decoder(folders, tmp_path):
    """A decoder's folder that a test may change."""
    return Path(shutil.copytree(folders / "decoder", tmp_path / "decoder"))
