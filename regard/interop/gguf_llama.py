"""Present a GGUF file of the Llama or Qwen family as the Hugging Face checkpoint it came from."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import DataError
from regard.interop.gguf import PLAIN, GGUFFile, error_at
from regard.interop.llama2c import half_split

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


class GGUFSource:
    """A GGUF file under the names and config keys of the Hugging Face model it came from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GGUFFile(path)
        self.metadata = self._file.metadata
        self._arch = str(self.metadata.get("general.architecture"))
        if self._arch not in ARCHITECTURES:
            raise self._error("general.architecture", f"one of {', '.join(ARCHITECTURES)}")
        if str(self.metadata.get("split.count", 1)) not in "01":
            raise self._error("split.count", "one file", "join with llama-gguf-split --merge")
        self._own = {self._name(n): n for n in self._file.places if n != ROPE_FACTORS}
        self.shapes = {name: self._file.places[own].shape for name, own in self._own.items()}
        self.config = self._read_config()
        self._check_shapes()

    def tensor(self, name: str) -> Tensor:
        """Read one tensor: plain types as mapped memory, quantised ones as new float32."""
        weight = self._file.read(self._own[name])
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        part = name.split(".")[-2]
        if self._arch != "llama" or part not in heads:  # llama.cpp permutes this family only
            return weight
        return half_split(weight, self.config[heads[part]])

    def _read_config(self) -> dict[str, Any]:
        dim, heads = self._integer("embedding_length"), self._integer("attention.head_count")
        head_dim = self._integer("attention.key_length", dim // heads)
        for key in ("attention.value_length", "rope.dimension_count"):
            if self._integer(key, head_dim) != head_dim:
                raise self._error(f"{self._arch}.{key}", f"the size of a head, {head_dim}")
        theta = self._real("rope.freq_base", 10000.0)
        types = {place.kind for place in self._file.places.values() if len(place.shape) > 1}
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
        kind = str(self.metadata.get(f"{self._arch}.rope.scaling.type", "none"))
        if kind == "linear":
            return {"rope_type": "linear", "factor": self._real("rope.scaling.factor")}
        if kind != "none":
            raise self._error(f"{self._arch}.rope.scaling.type", "none or linear")
        if ROPE_FACTORS not in self._file.places:
            return None
        # llama.cpp stores Llama 3's scaling as a divisor for each frequency (K / 2). Only the
        # factor differs between the released models, so it is read off and the rest compared.
        found = self._file.read(ROPE_FACTORS).float()
        factor, low, high, context = float(found.max()), 1.0, 4.0, 8192
        turns = context * theta ** -(torch.arange(0, head_dim, 2) / head_dim) / (2 * math.pi)
        smooth = ((turns - low) / (high - low)).clamp(0, 1)
        expected = 1 / ((1 - smooth) / factor + smooth)
        if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-4):
            raise self._error(ROPE_FACTORS, "the factors of Llama 3.1")
        scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": low}
        more = {"high_freq_factor": high, "original_max_position_embeddings": context}
        return {**scaling, **more} if factor != 1 else None

    def _check_shapes(self) -> None:
        """Compare metadata with the tensors that decide depth, width and heads."""
        c = self.config
        layers = {int(n.split(".")[2]) for n in self.shapes if n.startswith("model.layers.")}
        if len(layers) != c["num_hidden_layers"] or max(layers) != len(layers) - 1:
            raise self._error(f"{self._arch}.block_count", f"{len(layers)}, the blocks stored")
        dim, head_dim = c["hidden_size"], c["head_dim"]
        rows = {"q": c["num_attention_heads"] * head_dim, "k": c["num_key_value_heads"] * head_dim}
        shapes = {f"blk.{i}.attn_{p}": (r, dim) for i in layers for p, r in rows.items()}
        for name, shape in {"token_embd": (c["vocab_size"], dim), **shapes}.items():
            weight, bias = self.shapes.get(self._name(name + ".weight")), name + ".bias"
            if weight != shape or head_dim % 2:
                raise self._error(f"{name}.weight", f"shape {shape}, heads of even size")
            if bias in self._file.places and self.shapes[self._name(bias)] != shape[:1]:
                raise self._error(bias, f"shape {shape[:1]}")

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
        if key in self._file.places:
            place = self._file.places[key]
            at, found = place.start, f"tensor {key!r} of shape {place.shape}"
        else:
            value = repr(self.metadata[key])[:80] if key in self.metadata else "missing"
            at, found = self._file.key_at.get(key, 0), f"{key} is {value}"
        return error_at(self.path, at, found, expected, fix)
