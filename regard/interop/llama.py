"""Llama (Touvron 2023) and its relatives: rotary, RMS norm, gated MLP, grouped queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.errors import DataError
from regard.interop import table
from regard.interop.table import Key, ManyKeys, Table, TensorRow, Variant


def read_bias(config: dict[str, Any]) -> tuple[str, ...]:
    """`attention_bias` puts one on q, k, v and o; `mlp_bias` on the MLP."""
    attention = ("q", "k", "v", "o") if config.get("attention_bias") else ()
    return attention + (("mlp",) if config.get("mlp_bias") else ())


def rope(config: dict[str, Any]) -> dict[str, Any]:
    """Rotary settings, from `rope_parameters` (version 5) or `rope_theta` and `rope_scaling`."""
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {"rope_theta": config.get("rope_theta", 10000.0), **stated}


ROTARY = {
    "factor": "factor",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "length": "original_max_position_embeddings",
}
"""Our names of Llama 3's stretching → theirs."""


def read_rotary(config: dict[str, Any]) -> dict[str, Any] | None:
    """Llama 3's stretching as our RotaryScaling, None when there is none."""
    stated = rope(config)
    kind = stated.get("rope_type", stated.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise DataError("reading config.json", f"rope_type = {kind!r}", "default or llama3")
    return {ours: stated[theirs] for ours, theirs in ROTARY.items()}


def write_rotary(scaling: dict[str, Any] | None) -> dict[str, Any]:
    """The inverse of `read_rotary`, in the older key that every version reads."""
    if scaling is None:
        return {"rope_scaling": None}
    named = {theirs: scaling[ours] for ours, theirs in ROTARY.items()}
    return {"rope_scaling": {"rope_type": "llama3", **named}}


def variants(name: str) -> dict[str, Variant]:
    """The architectures of a family."""
    score = TensorRow("head.out", "score")
    return {
        f"{name}ForCausalLM": table.language_model("model.", tied=False),
        f"{name}Model": table.BODY,
        f"{name}ForSequenceClassification": table.classifier("model.", score, take="last"),
        f"{name}ForTokenClassification": table.classifier("model.", score, bias=True),
    }


LLAMA = Table(
    family="llama",
    variants=variants("Llama"),
    config={
        "{front,decoder.block}.dim": Key("hidden_size"),
        "decoder.depth": Key("num_hidden_layers"),
        "decoder.block.heads": Key("num_attention_heads"),
        "decoder.block.kv_heads": Key("num_key_value_heads", None),
        "decoder.block.head_dim": ManyKeys(
            lambda config: config.get("head_dim"),
            lambda value: {} if value is None else {"head_dim": value},  # Qwen 2 fails on null
        ),
        "decoder.block.hidden": Key("intermediate_size"),
        "front.length": Key("max_position_embeddings", 2048),
        "decoder.block.act": table.act("hidden_act", "silu"),
        "decoder.block.eps": Key("rms_norm_eps", 1e-6),
        "decoder.rotary_base": ManyKeys(
            lambda config: float(rope(config)["rope_theta"]), lambda theta: {"rope_theta": theta}
        ),
        "decoder.rotary_scaling": ManyKeys(read_rotary, write_rotary),
        "decoder.block.bias": ManyKeys(
            read_bias, lambda bias: {"attention_bias": "q" in bias, "mlp_bias": "mlp" in bias}
        ),
    },
    fixed={
        "decoder.block.causal": True,
        "decoder.block.norm": "rms",
        "decoder.block.gated": True,
        "decoder.position": "rotary",
        "front.kind": "text",
    },
    rows=(
        TensorRow("front.tokens", "embed_tokens"),
        TensorRow("decoder.blocks.{i}.attn.norm", "layers.{i}.input_layernorm"),
        TensorRow("decoder.blocks.{i}.attn.{q,k,v,o}", "layers.{i}.self_attn.{q,k,v,o}_proj"),
        TensorRow("decoder.blocks.{i}.attn.{q,k}_norm", "layers.{i}.self_attn.{q,k}_norm"),
        TensorRow("decoder.blocks.{i}.mlp.norm", "layers.{i}.post_attention_layernorm"),
        TensorRow("decoder.blocks.{i}.mlp.{gate,up,down}", "layers.{i}.mlp.{gate,up,down}_proj"),
        TensorRow("decoder.norm", "norm"),
    ),
    require={"use_sliding_window": False, "partial_rotary_factor": 1.0},
    ignore=("*.rotary_emb.inv_freq",),
)

MISTRAL = replace(
    LLAMA,
    family="mistral",
    variants=variants("Mistral"),
    config=LLAMA.config
    | {  # null is no window; left out, transformers takes 4096
        "decoder.block.window": ManyKeys(
            lambda config: config.get("sliding_window", 4096), lambda n: {"sliding_window": n}
        )
    },
)

QWEN2 = replace(
    LLAMA,
    family="qwen2",
    variants=variants("Qwen2"),
    config={path: key for path, key in LLAMA.config.items() if path != "decoder.block.bias"},
    fixed=LLAMA.fixed | {"decoder.block.bias": ("q", "k", "v")},
)

QWEN3 = replace(
    LLAMA,
    family="qwen3",
    variants=variants("Qwen3"),
    config=LLAMA.config | {"decoder.block.head_dim": Key("head_dim", 128)},
    fixed=LLAMA.fixed | {"decoder.block.qk_norm": True},
)
