"""Whisper (Radford 2022): pre-norm encoder-decoder from log-mel to text, keys without bias."""

from __future__ import annotations

from regard.interop.marian import LAYERS, SIZES
from regard.interop.table import Key, Table, TensorRow, Variant

WHISPER = Table(
    family="whisper",
    variants={
        "WhisperForConditionalGeneration": Variant(
            prefix="model.", rows=(TensorRow("head.out", "proj_out"),)
        )
    },
    config=SIZES
    | {
        "front.mels": Key("num_mel_bins"),
        "front.length": Key("max_source_positions", 1500),
        "target.length": Key("max_target_positions", 448),
        "{target.vocab,head.size}": Key("vocab_size"),
    },
    fixed={
        "{encoder,decoder}.block.bias": ("q", "v", "o", "mlp"),
        "{decoder.block.causal,decoder.block.cross}": True,
        "front.kind": "audio",
        "target.kind": "text",
        "target.position": "learned",
    },
    rows=(
        TensorRow("front.{conv1,conv2}", "encoder.{conv1,conv2}"),
        TensorRow("front.positions", "encoder.embed_positions"),
        TensorRow("target.tokens", "decoder.embed_tokens"),
        TensorRow("target.positions", "decoder.embed_positions"),
        *LAYERS,
        TensorRow("{encoder,decoder}.norm", "{encoder,decoder}.layer_norm"),
    ),
    require={"use_weighted_layer_sum": False},
)
