"""ViT (Dosovitskiy 2021), DeiT (Touvron 2021), AST (Gong 2021): encoders over patches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.interop.bert import ENCODER_SIZES, layers
from regard.interop.table import LABELS, UNSQUEEZE, Key, ManyKeys, Table, TensorRow, Variant, act


def side(index: int) -> ManyKeys:
    """`image_size` is one number, or height and width."""

    def read(config: dict[str, Any]) -> int:
        size = config["image_size"]
        return int(size[index] if isinstance(size, list | tuple) else size)

    return ManyKeys(read, lambda value: {"image_size": value})


def read_bias(config: dict[str, Any]) -> tuple[str, ...]:
    """`qkv_bias` switches three biases; the others are always there."""
    return ("q", "k", "v", "o", "mlp") if config.get("qkv_bias", True) else ("o", "mlp")


AXES = ("frequency", "time")


def read_stride(config: dict[str, Any]) -> int:
    """From one patch to the next, the same along both axes."""
    along, across = (config.get(f"{axis}_stride", 10) for axis in AXES)
    if along != across:
        raise ValueError(f"strides {along} and {across}: only equal ones are supported")
    return int(along)


VIT = Table(
    family="vit",
    variants={
        "ViTForImageClassification": Variant(
            prefix="vit.",
            rows=(TensorRow("head.out", "classifier"),),
            config={"head.size": LABELS},
            fixed={"head.take": "first", "head.bias": True},
        ),
        "ViTModel": Variant(
            rows=(TensorRow("head.dense", "pooler.dense"),),
            config={"head.transform": act("pooler_act", "tanh")},
            fixed={"head.take": "first"},
        ),
    },
    config=ENCODER_SIZES
    | {
        "encoder.block.eps": Key("layer_norm_eps", 1e-12),
        "encoder.block.bias": ManyKeys(read_bias, lambda bias: {"qkv_bias": "q" in bias}),
        "front.height": side(0),
        "front.width": side(1),
        "front.patch": Key("patch_size", 16),
        "front.channels": Key("num_channels", 3),
    },
    fixed={"front.kind": "image"},
    rows=(
        TensorRow("front.cls", "embeddings.cls_token"),
        TensorRow("front.positions.weight", "embeddings.position_embeddings", UNSQUEEZE),
        TensorRow("front.patches", "embeddings.patch_embeddings.projection"),
        *layers(
            "encoder.layer",
            ("attn.{q,k,v}", "attention.attention.{query,key,value}"),
            ("{attn,mlp}.norm", "layernorm_{before,after}"),
            ("{attn.o,mlp.up,mlp.down}", "{attention.output,intermediate,output}.dense"),
        ),
        TensorRow("encoder.norm", "layernorm"),
    ),
)

TEACHABLE = replace(VIT.variants["ViTForImageClassification"], prefix="deit.")
DEIT = replace(
    VIT,
    family="deit",
    variants={"DeiTForImageClassification": TEACHABLE, "DeiTModel": VIT.variants["ViTModel"]},
    fixed=VIT.fixed | {"front.distilled": True},
    rows=(*VIT.rows, TensorRow("front.distillation", "embeddings.distillation_token")),
)


AST = Table(
    family="audio-spectrogram-transformer",
    variants={
        "ASTForAudioClassification": Variant(
            prefix="audio_spectrogram_transformer.",
            rows=(
                TensorRow("head.norm", "classifier.layernorm"),
                TensorRow("head.out", "classifier.dense"),
            ),
            config={"head.size": LABELS, "head.eps": Key("layer_norm_eps", 1e-12)},
            fixed={"head.bias": True, "head.norm": True},
        ),
    },
    config={name: key for name, key in VIT.config.items() if not name.startswith("front.")}
    | {
        "front.patch": Key("patch_size", 16),
        "front.stride": ManyKeys(read_stride, lambda n: {f"{x}_stride": n for x in AXES}),
        "front.height": Key("num_mel_bins", 128),
        "front.width": Key("max_length", 1024),
    },
    fixed=DEIT.fixed | {"front.channels": 1, "head.take": "pair"},
    rows=DEIT.rows,
)
"""Patches of a spectrogram (mels, frames) that overlap; it is read from both tokens."""
