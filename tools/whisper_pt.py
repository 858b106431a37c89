"""Turn an OpenAI Whisper .pt file into a Hugging Face folder: whisper_pt.py tiny.en.pt FOLDER.

The only place in the repository that opens a pickle, and only with weights_only=True, which
builds tensors and plain containers and refuses everything else. The .pt file has no tokenizer:
`--tokens gpt2.tiktoken` (`multilingual.tiktoken` for those without .en; both in whisper/assets of
the source distribution of openai-whisper) writes tokenizer.json too.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
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

# Which heads of the decoder follow the sound, by decoder layers and .en: OpenAI's own table
# (whisper/__init__.py), a gzipped array of booleans (layers, heads) in base 85.
ALIGNMENT_HEADS = {
    (4, True): b"ABzY8J1N>@0{>%R00Bk>$p{7v037`oCl~+#00",
    (4, False): b"ABzY8bu8Lr0{>%RKn9Fp%m@SkK7Kt=7ytkO",
    (6, True): b"ABzY8;40c<0{>%RzzG;p*o+Vo09|#PsxSZm00",
    (6, False): b"ABzY8KQ!870{>%RzyTQH3`Q^yNP!>##QT-<FaQ7m",
    (12, True): b"ABzY8>?_)10{>%RpeA61k&I|OI3I$65C{;;pbCHh0B{qLQ;+}v00",
    (12, False): b"ABzY8DmU6=0{>%Rpa?J`kvJ6qF(V^F86#Xh7JUGMK}P<N0000",
    (24, True): b"ABzY8usPae0{>%R7<zz_OvQ{)4kMa0BMw6u5rT}kRKX;$NfYBv00*Hl@qhsU00",
    (24, False): b"ABzY8B0Jh+0{>%R7}kK1fFL7w6%<-Pf*t^=N)Qr&0RR9",
}
LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr "
    "pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt "
    "haw ln ha ba jw su yue"
).split()
SYMBOLS = [*'"#()*+/:;<=>@[\\]^_`{|}~「」『』']
SYMBOLS += "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split()
MUSIC = "♩♪♫♬♭♮♯"


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


def tokenizer_of(path: Path, vocab: int) -> Tokenizer:
    """The tokenizer of a .tiktoken file: its lines are pieces in base 64 with their ranks."""
    ranks = {}
    for line in path.read_text().splitlines():
        piece, rank = line.split()
        ranks[base64.b64decode(piece)] = int(rank)
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's spelling of bytes
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}

    def spell(piece: bytes) -> str:
        return "".join(letters[byte] for byte in piece)

    merges = []
    for piece, rank in ranks.items():
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while len(parts) > 2:  # join what was joined before this piece was, first things first
            pairs = [ranks.get(a + b, rank) for a, b in zip(parts, parts[1:], strict=False)]
            place = min(range(len(pairs)), key=pairs.__getitem__)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        if len(parts) == 2:
            merges.append((spell(parts[0]), spell(parts[1])))
    pieces = {spell(piece): rank for piece, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(pieces, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    token = special_tokens(vocab)
    names = (
        "endoftext startoftranscript".split() + LANGUAGES[: token["translate"] - token["start"] - 1]
    )
    names += "translate transcribe startoflm startofprev nospeech notimestamps".split()
    added = [f"<|{name}|>" for name in names] + [f"<|{i * 0.02:.2f}|>" for i in range(1501)]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in added])
    return tokenizer


def silent_tokens(tokenizer: Tokenizer) -> list[int]:
    """Tokens that are not spoken, such as brackets and notes (whisper/tokenizer.py)."""
    ids = {tokenizer.encode(text).ids[0] for text in (" -", " '")}
    for symbol in [*SYMBOLS, *MUSIC]:
        for text in (symbol, " " + symbol):
            tokens = tokenizer.encode(text).ids
            if len(tokens) == 1 or symbol in MUSIC:
                ids.add(tokens[0])
    return sorted(ids)


def side_files(dims: dict[str, int], tokens: Path | None = None) -> dict[str, bytes]:
    """Write the settings that decoding and the spectrogram need, and the tokenizer."""
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
        languages = LANGUAGES[: token["translate"] - token["start"] - 1]
        ids = range(token["start"] + 1, token["translate"])
        generation["lang_to_id"] = {
            f"<|{name}|>": id for name, id in zip(languages, ids, strict=True)
        }
    heads = ALIGNMENT_HEADS.get((dims["n_text_layer"], not multilingual))
    shape = dims["n_text_layer"], dims["n_text_head"]
    follows = np.frombuffer(gzip.decompress(base64.b85decode(heads)), dtype=bool) if heads else []
    if len(follows) == shape[0] * shape[1]:
        generation["alignment_heads"] = np.argwhere(follows.reshape(shape)).tolist()
    generation["prev_sot_token_id"] = token["startofprev"]
    files: dict[str, dict[str, Any]] = {}
    if tokens is not None:
        tokenizer = tokenizer_of(tokens, dims["n_vocab"])
        if tokenizer.get_vocab_size() != dims["n_vocab"]:
            fault = f"{tokenizer.get_vocab_size():,} tokens with the special ones"
            raise DataError(
                f"reading {tokens}", fault, f"{dims['n_vocab']:,}, as in the checkpoint"
            )
        unsaid = [token[name] for name in ("start", "translate", "transcribe", "startoflm")]
        unsaid += [token[name] for name in ("startofprev", "nospeech")]
        generation["suppress_tokens"] = sorted(silent_tokens(tokenizer) + unsaid)
        files["tokenizer.json"] = json.loads(tokenizer.to_str())
        names = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
        files["tokenizer_config.json"] = {"tokenizer_class": "WhisperTokenizer"} | names
    sound = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": dims["n_mels"],
        "sampling_rate": 16000,
        "n_fft": 400,
        "hop_length": 160,
        "chunk_length": 30,
    }
    files |= {"generation_config.json": generation, "preprocessor_config.json": sound}
    return {
        name: (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
        for name, value in files.items()
    }


def convert(path: Path, folder: Path, tokens: Path | None = None) -> None:
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

    write_folder(folder, config, tensors(), side_files(dims, tokens))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="OpenAI's .pt file")
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument("--tokens", type=Path, help="OpenAI's .tiktoken file of its vocabulary")
    options = parser.parse_args()
    try:
        convert(options.file, options.folder, options.tokens)
    except RegardError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"wrote {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
