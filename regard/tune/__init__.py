"""Adapt a trained model: LoRA adapters."""

from __future__ import annotations

from pathlib import Path

from regard.tune.results import Merged
from regard.verbs import ModelLike, verb


@verb
def merge(model: ModelLike, *, out: str | Path) -> Merged:
    """Write a model whose weights have its adapter in them, and say how far its scores drift.

    Args:
        model: the folder of an adapter, such as RUN/final of a run with --lora, or a Kit with
            adapters, which are merged as they are mixed now; it has none afterwards.
        out: a new or empty folder, which `regard.load` and transformers open.

    Example:
        >>> regard.tune.merge("run/final", out="whole").drift
        $ regard tune merge run/final --out whole
        $ regard tune merge run --out whole --json
        $ regard tune merge adapter --out whole --seed 7
    """
    from regard.files import check_new
    from regard.kit import Kit
    from regard.loading import load_kit
    from regard.tune.adapter_folder import merge_adapter

    check_new(Path(out), "merging an adapter")
    kit = model if isinstance(model, Kit) else load_kit(model, precision=None)
    return merge_adapter(kit, Path(out))
