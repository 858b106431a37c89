"""Turn an OpenAI Whisper .pt file into a Hugging Face folder: whisper_pt.py tiny.en.pt FOLDER.

The only place in the repository that opens a pickle, and only with weights_only=True, which
builds tensors and plain containers and refuses everything else. The .pt file has no tokenizer.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError, RegardError
from regard.interop.folder import write_folder

# (pattern in OpenAI's name, its part in Hugging Face's name), applied in this order
NAMES = [
    (r"\.blocks\.", ".layers."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn\.", ".self_attn."),
    (r"\.query\.", ".q_proj."),
    (r"\.key\.", ".k_proj."),
    (r"\.value\.", ".v_proj."),
    (r"\.out\.", ".out_proj."),
    (r"\.(ln|ln_post)\.", ".layer_norm."),
    (r"\.token_embedding\.", ".embed_tokens."),
    (r"\.positional_embedding$", ".embed_positions.weight"),
]
MULTILINGUAL = 51865  # vocabulary from which a checkpoint knows languages (whisper/model.py)
DIMS = (
    "n_mels n_vocab n_audio_ctx n_audio_state n_audio_head n_audio_layer "
    "n_text_ctx n_text_state n_text_head n_text_layer"
).split()


def hf_name(name: str) -> str:
    """Translate one tensor name."""
    for pattern, part in NAMES:
        name = re.sub(pattern, part, name)
    return "model." + name


def special_tokens(vocab: int) -> dict[str, int]:
    """Number the special tokens: they follow the text tokens (whisper/tokenizer.py)."""
    multilingual = vocab >= MULTILINGUAL
    end = 50257 if multilingual else 50256
    languages = vocab - 51765 - int(multilingual)  # 99, or 100 from large-v3 on
    translate = end + 2 + languages  # after <|endoftext|>, <|startoftranscript|> and languages
    names = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    return {"end": end, "start": end + 1} | {n: translate + i for i, n in enumerate(names)}


def hf_config(dims: dict[str, int]) -> dict[str, Any]:
    """Write the checkpoint's own sizes as a WhisperConfig."""
    token = special_tokens(dims["n_vocab"])
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "d_model": dims["n_audio_state"],
        "num_mel_bins": dims["n_mels"],
        "vocab_size": dims["n_vocab"],
        "max_source_positions": dims["n_audio_ctx"],
        "max_target_positions": dims["n_text_ctx"],
        "encoder_layers": dims["n_audio_layer"],
        "encoder_attention_heads": dims["n_audio_head"],
        "encoder_ffn_dim": 4 * dims["n_audio_state"],
        "decoder_layers": dims["n_text_layer"],
        "decoder_attention_heads": dims["n_text_head"],
        "decoder_ffn_dim": 4 * dims["n_text_state"],
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "decoder_start_token_id": token["start"],
        "bos_token_id": token["end"],
        "eos_token_id": token["end"],
        "pad_token_id": token["end"],
        "dtype": "float16",
    }


def side_files(dims: dict[str, int]) -> dict[str, bytes]:
    """Write the few settings that decoding and the spectrogram need."""
    token = special_tokens(dims["n_vocab"])
    multilingual = dims["n_vocab"] >= MULTILINGUAL
    generation: dict[str, Any] = {
        "decoder_start_token_id": token["start"],
        "bos_token_id": token["end"],
        "eos_token_id": token["end"],
        "pad_token_id": token["end"],
        "max_length": dims["n_text_ctx"],
        "is_multilingual": multilingual,
        "no_timestamps_token_id": token["notimestamps"],
        "begin_suppress_tokens": [220, token["end"]],  # a space or the end cannot come first
    }
    if multilingual:
        generation["task_to_id"] = {task: token[task] for task in ("transcribe", "translate")}
    sound = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": dims["n_mels"],
        "sampling_rate": 16000,
        "n_fft": 400,
        "hop_length": 160,
        "chunk_length": 30,
    }
    files = {"generation_config.json": generation, "preprocessor_config.json": sound}
    return {name: (json.dumps(value, indent=2) + "\n").encode() for name, value in files.items()}


def convert(path: Path, folder: Path) -> None:
    """Read a Whisper .pt file and write the Hugging Face folder."""
    doing, fix = f"reading {path}", "give a .pt file as OpenAI publishes it"
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        dims, weights = checkpoint["dims"], checkpoint["model_state_dict"]
        dims = {name: int(dims[name]) for name in DIMS}
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise DataError(doing, str(error).splitlines()[0], "a Whisper checkpoint", fix) from error
    except (KeyError, TypeError) as error:
        found = f"the file has no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(doing, found, "dims and model_state_dict", fix) from error
    config = hf_config(dims)
    types = {str(w.dtype).removeprefix("torch.") for w in weights.values()}
    config["dtype"] = types.pop() if len(types) == 1 else "float32"

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for name, weight in weights.items():
            yield hf_name(name), weight

    write_folder(folder, config, tensors(), side_files(dims))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="OpenAI's .pt file")
    parser.add_argument("folder", type=Path, help="the folder to write")
    options = parser.parse_args()
    try:
        convert(options.file, options.folder)
    except RegardError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"wrote {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
