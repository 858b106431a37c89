"""Small folders with tokenizers, every parameter random, for the verbs that read texts."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import torch

from regard.tokens.trainers import train_tokenizer

CORPUS = [
    "the cat sat on the mat, and the dog sat on the log",
    "Paris is the capital of France; naïve café, déjà vu",
    "Hello world! How are you today? I'm fine, thanks.",
] * 9


def save_model(folder: Path, name: str, config: str, **sizes: object) -> None:
    import transformers

    generator = torch.Generator().manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    model.save_pretrained(folder)


@pytest.fixture(scope="session")
def writer(tmp_path_factory) -> Path:
    """A decoder; texts are byte-level BPE with nothing around them."""
    folder = tmp_path_factory.mktemp("writer")
    made = train_tokenizer(CORPUS, "bpe", 320, specials=("pad", "eos"))
    sizes = dict(n_embd=16, n_layer=2, n_head=2, vocab_size=made.size, n_positions=40)
    eos = made.specials["eos"]
    save_model(folder, "GPT2LMHeadModel", "GPT2Config", **sizes, bos_token_id=eos, eos_token_id=eos)
    made.save(folder)
    return folder


@pytest.fixture(scope="session")
def pair(tmp_path_factory) -> Path:
    """An encoder-decoder; texts end with eos, targets begin with pad."""
    folder = tmp_path_factory.mktemp("pair")
    made = train_tokenizer(CORPUS, "bpe", 300, specials=("pad", "eos"), wrap="eos")
    sizes = dict(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=made.size)
    ids = dict(eos_token_id=made.specials["eos"], pad_token_id=made.specials["pad"])
    start = dict(decoder_start_token_id=made.specials["pad"])
    save_model(folder, "T5ForConditionalGeneration", "T5Config", **sizes, **ids, **start)
    made.save(folder)
    return folder


@pytest.fixture(scope="session")
def masker(tmp_path_factory) -> Path:
    """A masked language model on word pieces."""
    folder = tmp_path_factory.mktemp("masker")
    roles = ("pad", "unk", "cls", "sep", "mask")
    made = train_tokenizer(CORPUS, "wordpiece", 200, specials=roles, wrap="cls-sep")
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=made.size)
    more = dict(intermediate_size=32, max_position_embeddings=40)
    save_model(folder, "BertForMaskedLM", "BertConfig", **sizes, **more)
    made.save(folder)
    return folder


@pytest.fixture
def stdin(monkeypatch):
    """Give the command these bytes."""

    def give(text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))
        monkeypatch.setattr(sys, "stdin", stream)

    return give
