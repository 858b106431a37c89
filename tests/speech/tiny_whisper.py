"""A tiny Whisper folder as transformers saves it: random, bytes as tokens, windows of 1 s."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperForConditionalGeneration

LENGTH = 50  # vectors of a window: 100 frames
PRINTABLE = "".join(map(chr, range(33, 127)))
LANGUAGES = ("en", "fr", "de")


def save_whisper(
    folder: Path, languages: tuple[str, ...] = LANGUAGES, times: float = 1.0, seed: int = 0
) -> Path:
    """Write a model whose 256 first tokens are bytes; without languages it knows English only.

    `times` is how large the vectors of time tokens are, beside those of bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = ["endoftext", "startoftranscript", *(languages or ("en",))]
    names += "translate transcribe startoflm startofprev nospeech notimestamps".split()
    names += [f"{0.02 * step:.2f}" for step in range(LENGTH + 1)]
    tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", normalized=False) for name in names])
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = dict.fromkeys(("bos_token", "eos_token", "pad_token"), "<|endoftext|>")
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    ids = {name: tokenizer.token_to_id(f"<|{name}|>") for name in names}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), ids["endoftext"])
    size = dict(d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2)
    size |= dict(decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32)
    size |= dict(num_mel_bins=8, max_source_positions=LENGTH, max_target_positions=40)
    start = dict(decoder_start_token_id=ids["startoftranscript"])
    config = WhisperConfig(vocab_size=tokenizer.get_vocab_size(), **size, **ends, **start)
    model = WhisperForConditionalGeneration(config)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.5)
        vectors = model.model.decoder.embed_tokens.weight
        vectors[ids["endoftext"] :] *= 0.1
        vectors[ids["notimestamps"] + 1 :] *= 10 * times
        model.model.decoder.embed_positions.weight *= 4  # so that texts vary
    odd = [n for n, letter in enumerate(letters) if letter not in "Ġ" + PRINTABLE]
    settings = dict(**ends, **start, is_multilingual=bool(languages), max_length=40)
    settings |= dict(no_timestamps_token_id=ids["notimestamps"], alignment_heads=[[0, 1], [1, 0]])
    settings |= dict(begin_suppress_tokens=[5, ids["endoftext"]], suppress_tokens=odd)
    if languages:
        settings["lang_to_id"] = {f"<|{name}|>": ids[name] for name in languages}
        settings["task_to_id"] = {name: ids[name] for name in ("transcribe", "translate")}
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def sweep(seconds: float, seed: int = 0) -> np.ndarray:
    """A made sound at 16 kHz: tones that rise and fall, and a little noise."""
    t, draw = np.arange(int(16000 * seconds)) / 16000, np.random.default_rng(seed)
    tone = np.sin(2 * np.pi * (200 + 150 * seed + 300 * np.sin(3 * t)) * t)
    return (0.4 * tone + 0.02 * draw.standard_normal(len(t))).astype(np.float32)
