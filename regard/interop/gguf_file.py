"""Present a GGUF file of the Llama or Qwen family as the Hugging Face checkpoint it came from.

The package gguf, an extra, reads the format and turns its quantised blocks into numbers.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import DataError, check_installed
from regard.files import BROKEN

MAGIC = b"GGUF"
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
INNER = {  # after blk.{i} and model.layers.{i}
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata of a file and its tensors by name, mapped; each lies inside the file."""
    check_installed("gguf", "gguf", f"opening {path}")
    from gguf import GGUFReader

    class Reader(GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            if offset + np.dtype(dtype).itemsize * int(count) > len(self.data):
                size = f"{len(self.data):,} bytes"  # the package would take what there is
                raise ValueError(f"byte {offset:,}: {int(count):,} values, in a file of {size}")
            return super()._get(offset, dtype, count, override_order)

    try:
        reader = Reader(path, "c")  # torch wants memory that it could write to
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, LookupError, ArithmeticError, TypeError) as error:
        raise DataError(f"reading {path}", str(error), "a whole GGUF file", BROKEN) from None
    if reader.byte_order != "I":
        raise DataError(f"reading {path}", "a big-endian file", "little-endian GGUF")
    return metadata, {tensor.name: tensor for tensor in reader.tensors}


def half_split(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of a q or k weight from interleaved rotary pairs to Hugging Face halves.

    Within a head, rows (0, 1), (2, 3), … rotate together in Meta's order; rows i and i + K/2 in
    Hugging Face's. llama.cpp and llama2.c both store Meta's order. (H K, D) or, for biases, (H K).
    """
    pairs = weight.reshape(heads, -1, 2, *weight.shape[1:])  # (H, K / 2, 2, D)
    return pairs.transpose(1, 2).reshape(weight.shape)


class GGUFSource:
    """A GGUF file under the names and config keys of the Hugging Face model it came from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata, self._tensors = read_gguf(path)
        self._arch = str(self.metadata.get("general.architecture"))
        if self._arch not in ARCHITECTURES:
            raise self._error("general.architecture", f"one of {', '.join(ARCHITECTURES)}")
        if str(self.metadata.get("split.count", 1)) not in "01":
            raise self._error("split.count", "one file", "join with llama-gguf-split --merge")
        self._own = {self._name(name): name for name in self._tensors if name != ROPE_FACTORS}
        self.shapes = {name: self._shape(own) for name, own in self._own.items()}
        self.files = dict.fromkeys(self.shapes, path)
        self.config = self._read_config()

    def tensor(self, name: str) -> Tensor:
        """Read one tensor: plain types as mapped memory, quantised ones as new float32."""
        weight = self._read(self._own[name])
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        part = name.split(".")[-2]
        if self._arch != "llama" or part not in heads:  # llama.cpp permutes this family only
            return weight
        return half_split(weight, self.config[heads[part]])

    def _read(self, name: str) -> Tensor:
        from gguf import dequantize

        tensor = self._tensors[name]
        if tensor.tensor_type.name in PLAIN:
            return torch.from_numpy(tensor.data).view(PLAIN[tensor.tensor_type.name])
        try:
            with np.errstate(all="ignore"):  # a scale that is NaN stays so
                return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type))
        except NotImplementedError as error:
            fix = "take the file in another quantisation"
            raise DataError(f"reading {self.path}", f"{name}: {error}", fix=fix) from None

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(reversed(self._tensors[name].shape.tolist()))  # stored innermost first

    def _read_config(self) -> dict[str, Any]:
        dim, heads = self._integer("embedding_length"), self._integer("attention.head_count")
        head_dim = self._integer("attention.key_length", dim // heads)
        for key in ("attention.value_length", "rope.dimension_count"):
            if self._integer(key, head_dim) != head_dim:
                raise self._error(f"{self._arch}.{key}", f"the size of a head, {head_dim}")
        theta = self._real("rope.freq_base", 10000.0)
        types = {t.tensor_type.name for t in self._tensors.values() if len(t.shape) > 1}
        dtype = PLAIN[types.pop()] if len(types) == 1 and types <= set(PLAIN) else torch.float32
        ids = {
            f"{short}_token_id": self.metadata.get(f"tokenizer.ggml.{long}_token_id")
            for short, long in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
        }
        return {
            "architectures": [ARCHITECTURES[self._arch]],
            "model_type": self._arch,
            "hidden_size": dim,
            "intermediate_size": self._integer("feed_forward_length"),
            "num_hidden_layers": self._integer("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._integer("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "vocab_size": self.shapes.get("model.embed_tokens.weight", (0,))[0],
            "max_position_embeddings": self._integer("context_length"),
            "rms_norm_eps": self._real("attention.layer_norm_rms_epsilon"),
            "rope_theta": theta,
            "rope_scaling": self._rope_scaling(theta, head_dim),
            "hidden_act": "silu",
            "attention_bias": "model.layers.0.self_attn.q_proj.bias" in self.shapes,
            "mlp_bias": "model.layers.0.mlp.up_proj.bias" in self.shapes,
            "tie_word_embeddings": "lm_head.weight" not in self.shapes,
            "dtype": str(dtype).removeprefix("torch."),
        } | {key: value for key, value in ids.items() if type(value) is int}

    def _rope_scaling(self, theta: float, head_dim: int) -> dict[str, Any] | None:
        """Say which rotary scaling the file asks for; refuse those that are not understood."""
        if str(self.metadata.get(f"{self._arch}.rope.scaling.type", "none")) != "none":
            raise self._error(f"{self._arch}.rope.scaling.type", "none, or Llama 3's factors")
        if ROPE_FACTORS not in self._tensors:
            return None
        # llama.cpp stores Llama 3's scaling as a divisor for each frequency (K / 2). Only the
        # factor differs between the released models, so it is read off and the rest compared.
        factors = self._read(ROPE_FACTORS).float()
        factor, low, high, context = float(factors.max()), 1.0, 4.0, 8192
        turns = context * theta ** -(torch.arange(0, head_dim, 2) / head_dim) / (2 * math.pi)
        smooth = ((turns - low) / (high - low)).clamp(0, 1)
        expected = 1 / ((1 - smooth) / factor + smooth)
        if factors.shape != expected.shape or not torch.allclose(factors, expected, rtol=1e-4):
            raise self._error(ROPE_FACTORS, "the factors of Llama 3.1")
        scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": low}
        more = {"high_freq_factor": high, "original_max_position_embeddings": context}
        return {**scaling, **more} if factor != 1 else None

    def _name(self, name: str) -> str:
        match = re.fullmatch(r"(?:blk\.(0|[1-9]\d{0,4})\.)?(\w+)\.(weight|bias)", name, re.ASCII)
        names = INNER if match and match[1] else OUTER
        if match is None or match[2] not in names:
            raise self._error(name, f"a tensor of {ARCHITECTURES[self._arch]}")
        layer = f"model.layers.{match[1]}." if match[1] else ""
        return f"{layer}{names[match[2]]}.{match[3]}"

    def _integer(self, key: str, default: int | None = None) -> int:
        value = self.metadata.get(f"{self._arch}.{key}", default)
        if type(value) is not int or not 0 < value < 2**31:
            raise self._error(f"{self._arch}.{key}", "a positive integer")
        return value

    def _real(self, key: str, default: float | None = None) -> float:
        value = self.metadata.get(f"{self._arch}.{key}", default)
        if type(value) is not float or not 0 < value < math.inf:
            raise self._error(f"{self._arch}.{key}", "a positive number")
        return float(str(np.float32(value)))  # 9.999999747378752e-06 is 1e-05 in float32

    def _error(self, key: str, expected: str, fix: str = "use another checkpoint") -> DataError:
        """Name a metadata key or a tensor that does not fit."""
        if key in self._tensors:
            fault = f"tensor {key!r} of shape {self._shape(key)}"
        else:
            held = repr(self.metadata[key])[:80] if key in self.metadata else "missing"
            fault = f"{key} is {held}"
        return DataError(f"reading {self.path}", fault, expected, fix)
