"""Marian (Junczys-Dowmunt 2018) as Hugging Face stores it: the 2017 encoder-decoder, post-norm."""

from __future__ import annotations

from regard.interop.table import UNSQUEEZE, Fields, Key, ManyKeys, Table, TensorRow, Variant, act

# Sizes and layer names that Marian and Whisper share (both come from fairseq's layout).
SIZES: Fields = {
    "{front,target,encoder.block,decoder.block}.dim": Key("d_model"),
    "encoder.depth": Key("encoder_layers"),
    "encoder.block.heads": Key("encoder_attention_heads"),
    "encoder.block.hidden": Key("encoder_ffn_dim"),
    "decoder.depth": Key("decoder_layers"),
    "decoder.block.heads": Key("decoder_attention_heads"),
    "decoder.block.hidden": Key("decoder_ffn_dim"),
    "{encoder,decoder}.block.act": act("activation_function", "gelu"),
    "head.tied": Key("tie_word_embeddings", True),
}
LAYERS = tuple(
    TensorRow(f"{stack}.blocks.{{i}}.{ours}", f"{stack}.layers.{{i}}.{theirs}")
    for stack in ("encoder", "decoder")
    for ours, theirs in (
        ("attn.{q,k,v,o}", "self_attn.{q,k,v,out}_proj"),
        ("attn.norm", "self_attn_layer_norm"),
        ("cross.{q,k,v,o}", "encoder_attn.{q,k,v,out}_proj"),
        ("cross.norm", "encoder_attn_layer_norm"),
        ("mlp.{up,down}", "{fc1,fc2}"),
        ("mlp.norm", "final_layer_norm"),
    )
)


DECODER_VOCAB = ManyKeys(
    lambda config: (
        config["vocab_size"]
        if config.get("share_encoder_decoder_embeddings", True)
        else config.get("decoder_vocab_size") or config["vocab_size"]
    ),
    lambda size: {"decoder_vocab_size": size},
)
"""Words the decoder knows: its own vocabulary unless the embeddings are shared."""


MARIAN = Table(
    family="marian",
    variants={
        "MarianMTModel": Variant(
            prefix="model.",
            rows=(
                TensorRow("head.out.weight", "lm_head.weight"),
                TensorRow("head.out.bias", "final_logits_bias", UNSQUEEZE),
            ),
        )
    },
    config=SIZES
    | {
        "front.vocab": Key("vocab_size"),
        "{target.vocab,head.size}": DECODER_VOCAB,
        "shared": Key("share_encoder_decoder_embeddings", True),
        "{front,target}.scale": Key("scale_embedding", False),
        "{front,target}.length": Key("max_position_embeddings", 1024),
    },
    fixed={
        "{encoder,decoder}.block.norm_at": "post",
        "{encoder,decoder}.final_norm": False,
        "{front,target}.position": "halves",
        "{front,target}.kind": "text",
        "{decoder.block.causal,decoder.block.cross,head.bias}": True,
    },
    rows=(
        TensorRow("front.tokens", "shared", when=lambda config: config.shared),
        TensorRow("front.tokens", "encoder.embed_tokens", when=lambda config: not config.shared),
        TensorRow("target.tokens", "decoder.embed_tokens"),
        *LAYERS,
    ),
    require={
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
    },
    ignore=("model.*.embed_positions.weight", "model.*.embed_tokens.weight"),
)
