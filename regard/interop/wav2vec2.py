"""wav2vec 2.0 (Baevski 2020) and HuBERT (Hsu 2021): encoders of samples with a CTC head."""

from __future__ import annotations

from dataclasses import replace

from regard.interop.bert import ENCODER_SIZES
from regard.interop.table import Key, ManyKeys, Table, TensorRow, Variant

STABLE = "do_stable_layer_norm"
EACH = "{" + ",".join(map(str, range(16))) + "}"  # convolutions that there may be
LAYER, CONV = "encoder.layers.{i}.", f"feature_extractor.conv_layers.{EACH}."
PLACES = ".parametrizations.weight.{original0,original1}"

WAV2VEC2 = Table(
    family="wav2vec2",
    variants={
        "Wav2Vec2ForCTC": Variant(
            prefix="wav2vec2.",
            rows=(TensorRow("head.out", "lm_head"),),
            config={"head.size": Key("vocab_size", 32)},
            fixed={"head.bias": True},
        )
    },
    config=ENCODER_SIZES
    | {
        "{encoder.block,front}.eps": Key("layer_norm_eps", 1e-5),
        "encoder.final_norm": Key(STABLE, False),
        "front.post": ManyKeys(lambda c: not c.get(STABLE), lambda post: {STABLE: not post}),
        "encoder.block.norm_at": ManyKeys(
            lambda c: "pre" if c.get(STABLE) else "post", lambda at: {STABLE: at == "pre"}
        ),
        "front.channels": Key("conv_dim", [512] * 7),
        "front.kernels": Key("conv_kernel", [10, 3, 3, 3, 3, 2, 2]),
        "front.strides": Key("conv_stride", [5, 2, 2, 2, 2, 2, 2]),
        "front.norm": Key("feat_extract_norm", "group"),
        "front.bias": Key("conv_bias", False),
        "front.reach": Key("num_conv_pos_embeddings", 128),
        "front.groups": Key("num_conv_pos_embedding_groups", 16),
        "front.masked": ManyKeys(
            lambda c: c.get("mask_time_prob", 0.05) > 0 or c.get("mask_feature_prob", 0) > 0,
            lambda masked: {"mask_time_prob": 0.05 * masked},
        ),
    },
    fixed={"front.kind": "wave", "front.mels": 1, "front.length": 1500},
    rows=(
        TensorRow(f"front.convs.{EACH}", CONV + "conv"),
        TensorRow(f"front.norms.{EACH}", CONV + "layer_norm"),
        TensorRow("front.{norm,project}", "feature_projection.{layer_norm,projection}"),
        TensorRow("front.mask", "masked_spec_embed"),
        TensorRow("front.positions", "encoder.pos_conv_embed.conv"),
        TensorRow("front.positions" + PLACES, "encoder.pos_conv_embed.conv" + PLACES),
        TensorRow("front.last", "encoder.layer_norm"),
        TensorRow("encoder.norm", "encoder.layer_norm"),
        TensorRow("encoder.blocks.{i}.attn.{q,k,v,o}", LAYER + "attention.{q,k,v,out}_proj"),
        TensorRow("encoder.blocks.{i}.attn.norm", LAYER + "layer_norm"),
        TensorRow(
            "encoder.blocks.{i}.mlp.{up,down}",
            LAYER + "feed_forward.{intermediate_dense,output_dense}",
        ),
        TensorRow("encoder.blocks.{i}.mlp.norm", LAYER + "final_layer_norm"),
    ),
    require={
        "feat_extract_activation": "gelu",
        "add_adapter": False,
        "adapter_attn_dim": None,
        "conv_pos_batch_norm": False,
        "feat_proj_layer_norm": True,
    },
)

HUBERT = replace(
    WAV2VEC2,
    family="hubert",
    variants={"HubertForCTC": replace(WAV2VEC2.variants["Wav2Vec2ForCTC"], prefix="hubert.")},
)
