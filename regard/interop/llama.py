"""Llama (Touvron 2023) and its relatives: rotary, RMS norm, gated MLP, grouped queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.errors import DataError
from regard.interop.table import LABELS, Key, ManyKeys, Table, TensorRow, Variant, act


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


BIAS = (
    "decoder.block.bias",
    ManyKeys(read_bias, lambda bias: {"attention_bias": "q" in bias, "mlp_bias": "mlp" in bias}),
)
HEAD_DIM = (
    "decoder.block.head_dim",
    ManyKeys(
        lambda config: config.get("head_dim"),
        lambda value: {} if value is None else {"head_dim": value},  # Qwen 2 fails on null
    ),
)

HEAD = Variant(
    prefix="model.",
    rows=(TensorRow("head.out", "lm_head"),),
    config=(
        ("{head.size,front.vocab}", Key("vocab_size")),
        ("head.tied", Key("tie_word_embeddings", False)),
    ),
)
BODY = Variant(config=(("front.vocab", Key("vocab_size")),))
CLASSES = (*BODY.config, ("head.size", LABELS))
SCORE = (TensorRow("head.out", "score"),)


def variants(name: str) -> dict[str, Variant]:
    """The architectures of a family."""
    return {
        f"{name}ForCausalLM": HEAD,
        f"{name}Model": BODY,
        f"{name}ForSequenceClassification": Variant(
            "model.", SCORE, CLASSES, {"head.take": "last"}
        ),
        f"{name}ForTokenClassification": Variant("model.", SCORE, CLASSES, {"head.bias": True}),
    }


LLAMA = Table(
    family="llama",
    variants=variants("Llama"),
    config=(
        ("{front,decoder.block}.dim", Key("hidden_size")),
        ("decoder.depth", Key("num_hidden_layers")),
        ("decoder.block.heads", Key("num_attention_heads")),
        ("decoder.block.kv_heads", Key("num_key_value_heads", None)),
        HEAD_DIM,
        ("decoder.block.hidden", Key("intermediate_size")),
        ("front.length", Key("max_position_embeddings", 2048)),
        ("decoder.block.act", act("hidden_act", "silu")),
        ("decoder.block.eps", Key("rms_norm_eps", 1e-6)),
        (
            "decoder.rotary_base",
            ManyKeys(lambda c: float(rope(c)["rope_theta"]), lambda v: {"rope_theta": v}),
        ),
        ("decoder.rotary_scaling", ManyKeys(read_rotary, write_rotary)),
        BIAS,
    ),
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
    config=(
        *LLAMA.config,
        # null is no window; left out, transformers takes 4096
        (
            "decoder.block.window",
            ManyKeys(
                lambda config: config.get("sliding_window", 4096),
                lambda value: {"sliding_window": value},
            ),
        ),
    ),
)

QWEN2 = replace(
    LLAMA,
    family="qwen2",
    variants=variants("Qwen2"),
    config=tuple(row for row in LLAMA.config if row != BIAS),
    fixed=LLAMA.fixed | {"decoder.block.bias": ("q", "k", "v")},
)

QWEN3 = replace(
    LLAMA,
    family="qwen3",
    variants=variants("Qwen3"),
    config=(
        *(row for row in LLAMA.config if row != HEAD_DIM),
        ("decoder.block.head_dim", Key("head_dim", 128)),
    ),
    fixed=LLAMA.fixed | {"decoder.block.qk_norm": True},
)
