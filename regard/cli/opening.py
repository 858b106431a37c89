"""Find the model that a command names: a checkpoint without its weights, or a preset."""

from __future__ import annotations

import os

from regard.errors import UsageError, nearest
from regard.interop.source import Source, open_source
from regard.interop.weights import outline
from regard.model.config import ModelConfig
from regard.model.presets import PRESETS, preset
from regard.zoo import locate


def find_source(path: str) -> Source | None:
    """The checkpoint at `path` or shipped under that name, or None for the name of a preset."""
    found = locate(path)
    if found != path or os.path.exists(path) or os.sep in path:
        return open_source(found)
    if path in PRESETS:
        return None
    close = nearest(path, PRESETS)
    if not close:
        return open_source(path)  # which says that it is not there
    raise UsageError(
        "opening a model",
        f"{path!r} is neither a file nor a folder here nor a preset",
        "a path, or a name that `regard list` shows",
        f"did you mean {close}?",
    )


def open_config(path: str) -> ModelConfig:
    """The shape of a checkpoint or of a preset."""
    source = find_source(path)
    return preset(path) if source is None else outline(source)[0].config
