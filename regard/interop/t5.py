"""T5 (Raffel 2020), v1 and v1.1: relative position bias, RMS norm, no scale, no bias."""

from __future__ import annotations

from typing import Any

from regard.interop.table import TENSORS, Key, ManyKeys, Table, TensorRow, Variant

# `feed_forward_proj` → our activation; T5's "gated-gelu" is the tanh form.
MLPS = {"relu": "relu", "gelu": "gelu", "gated-gelu": "gelu_tanh", "gated-silu": "silu"}


def is_tied(config: dict[str, Any]) -> bool:
    """What the config says; the first files say nothing."""
    return config.get("tie_word_embeddings") is not False


def read_scale(config: dict[str, Any]) -> float | None:
    """v1 scales the vectors before scoring; v1.1 says that it does not by an untied head."""
    scaled = config.get("scale_decoder_outputs", is_tied(config))
    return float(config["d_model"]) ** -0.5 if scaled else None


def read_tied(config: dict[str, Any]) -> bool:
    """Tied unless the file holds an output matrix of its own (the config does not tell)."""
    return "lm_head.weight" not in config[TENSORS] if TENSORS in config else is_tied(config)


T5 = Table(
    family="t5",
    variants={
        "T5ForConditionalGeneration": Variant(
            rows=(TensorRow("head.out", "lm_head"),),
            config={
                "{head.size,front.vocab,target.vocab}": Key("vocab_size"),
                "head.scale": ManyKeys(
                    read_scale, lambda v: {"scale_decoder_outputs": v is not None}
                ),
                "head.tied": ManyKeys(read_tied, lambda v: {"tie_word_embeddings": v}),
            },
        )
    },
    config={
        "{front,target,encoder.block,decoder.block}.dim": Key("d_model"),
        "{encoder,decoder}.block.head_dim": Key("d_kv"),
        "{encoder,decoder}.block.heads": Key("num_heads"),
        "{encoder,decoder}.block.hidden": Key("d_ff"),
        "{encoder,decoder}.block.act": Key("feed_forward_proj", "relu", MLPS),
        "{encoder,decoder}.block.gated": ManyKeys(  # v1.1 gates its MLP
            lambda config: "gated" in config.get("feed_forward_proj", ""), lambda value: {}
        ),
        "{encoder,decoder}.block.eps": Key("layer_norm_epsilon", 1e-6),
        "{encoder,decoder}.buckets": Key("relative_attention_num_buckets", 32),
        "{encoder,decoder}.distance": Key("relative_attention_max_distance", 128),
        "encoder.depth": Key("num_layers"),
        "decoder.depth": Key("num_decoder_layers", lambda config: config["num_layers"]),
    },
    fixed={
        "{encoder,decoder}.block.norm": "rms",
        "{encoder,decoder}.block.bias": (),
        "{encoder,decoder}.block.scale": 1.0,
        "{encoder,decoder}.position": "relative",
        "{decoder.block.causal,decoder.block.cross,shared}": True,
        "{front,target}.kind": "text",
    },
    rows=(
        TensorRow("front.tokens", "shared"),
        TensorRow(
            "{encoder,decoder}.bias",
            "{encoder,decoder}.block.0.layer.0.SelfAttention.relative_attention_bias",
        ),
        *(
            TensorRow(
                f"{stack}.blocks.{{i}}.{ours}", f"{stack}.block.{{i}}.layer.{theirs}", when=when
            )
            for stack, mlp in (("encoder", 1), ("decoder", 2))
            for ours, theirs, when in (
                ("attn.norm", "0.layer_norm", None),
                ("attn.{q,k,v,o}", "0.SelfAttention.{q,k,v,o}", None),
                ("mlp.norm", f"{mlp}.layer_norm", None),
                ("mlp.down", f"{mlp}.DenseReluDense.wo", None),
                # v1 has one input matrix, v1.1 a gate and an up-projection.
                ("mlp.up", f"{mlp}.DenseReluDense.wi", lambda c: not c.last.block.gated),
                (
                    "mlp.{gate,up}",
                    f"{mlp}.DenseReluDense.{{wi_0,wi_1}}",
                    lambda c: c.last.block.gated,
                ),
            )
        ),
        TensorRow("decoder.blocks.{i}.cross.norm", "decoder.block.{i}.layer.1.layer_norm"),
        TensorRow(
            "decoder.blocks.{i}.cross.{q,k,v,o}",
            "decoder.block.{i}.layer.1.EncDecAttention.{q,k,v,o}",
        ),
        TensorRow("{encoder,decoder}.norm", "{encoder,decoder}.final_layer_norm"),
    ),
    ignore=(
        "{encoder,decoder}.embed_tokens.weight",
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    ),
)
