"""Small translations that several families share."""

from __future__ import annotations

from typing import Any

from regard.errors import DataError
from regard.interop.table import Both, Key

# Their activation names → ours; the first of equals is the one written.
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def act(key: str, default: str) -> Key:
    """An activation by their name."""
    return Key(key, default, ACTIVATIONS)


ENCODER_SIZES = (
    ("{front,encoder.block}.dim", Key("hidden_size")),
    ("encoder.depth", Key("num_hidden_layers")),
    ("encoder.block.heads", Key("num_attention_heads")),
    ("encoder.block.hidden", Key("intermediate_size")),
    ("encoder.block.act", act("hidden_act", "gelu")),
)
"""Of BERT and ViT."""


def read_labels(config: dict[str, Any]) -> int:
    """Number of classes: id2label, num_labels, or Hugging Face's default of two."""
    return len(config.get("id2label") or {}) or int(config.get("num_labels") or 2)


def write_labels(count: int) -> dict[str, Any]:
    """Class names LABEL_0 …, as Hugging Face makes them."""
    names = {str(n): f"LABEL_{n}" for n in range(count)}
    return {"id2label": names, "label2id": {name: int(n) for n, name in names.items()}}


LABELS = Both(read_labels, write_labels)


def rope(config: dict[str, Any]) -> dict[str, Any]:
    """Rotary settings, from `rope_parameters` (version 5) or `rope_theta` and `rope_scaling`."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {"rope_theta": config.get("rope_theta", 10000.0), **given}


ROTARY = {
    "factor": "factor",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "length": "original_max_position_embeddings",
}
"""Our names of Llama 3's stretching → theirs."""


def read_rotary(config: dict[str, Any]) -> dict[str, Any] | None:
    """Llama 3's stretching as our RotaryScaling, None when there is none."""
    given = rope(config)
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise DataError("reading config.json", f"rope_type = {kind!r}", "default or llama3")
    return {ours: given[theirs] for ours, theirs in ROTARY.items()}


def write_rotary(scaling: dict[str, Any] | None) -> dict[str, Any]:
    """The inverse of `read_rotary`, in the older key that every version reads."""
    if scaling is None:
        return {"rope_scaling": None}
    named = {theirs: scaling[ours] for ours, theirs in ROTARY.items()}
    return {"rope_scaling": {"rope_type": "llama3", **named}}


ROTARY_BASE = Both(lambda config: float(rope(config)["rope_theta"]), lambda v: {"rope_theta": v})
ROTARY_SCALING = Both(read_rotary, write_rotary)
