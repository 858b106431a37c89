"""regard: one Transformer layer for text, images and sound, with everything in view.

`regard A B` on the command line is `regard.A.B(...)` here: same name, arguments and result.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import data, evaluate, formal, history, look, tokens, train
    from regard.ambient import settings
    from regard.core.similarity import attend, attention, kernel_regression
    from regard.core.tap import Tap, taps
    from regard.decode import embed, fill, generate, score
    from regard.demonstrations import demo
    from regard.history import ladder
    from regard.interop import check, export
    from regard.kit import Kit
    from regard.loading import build, load
    from regard.look.activation_store import Extracted
    from regard.look.activations import steering_vector
    from regard.look.edits import add, mean, other_rows, patch, resample, resample_from, zero
    from regard.look.hooks import head_mask
    from regard.model import info, models, plan
    from regard.model.batch import onehot
    from regard.native import doctor
    from regard.rules import discover
    from regard.train import replay, verify
    from regard.train.config import DataConfig, ShapeConfig, TrainConfig
    from regard.translation import translate

__version__ = "0.1.0"

_ROOMS = ("data", "evaluate", "formal", "history", "look", "tokens", "train")
"""Rooms whose verbs are reached through their name: `regard.tokens.encode`."""

_HOMES = {
    "regard.ambient": ("settings",),
    "regard.core.similarity": ("attend", "attention", "kernel_regression"),
    "regard.core.tap": ("Tap", "taps"),
    "regard.demonstrations": ("demo",),
    "regard.decode": ("embed", "fill", "generate", "score"),
    "regard.history": ("ladder",),
    "regard.interop": ("check", "export"),
    "regard.kit": ("Kit",),
    "regard.loading": ("build", "load"),
    "regard.look.edits": (
        "add",
        "mean",
        "other_rows",
        "patch",
        "resample",
        "resample_from",
        "zero",
    ),
    "regard.look.activation_store": ("Extracted",),
    "regard.look.activations": ("steering_vector",),
    "regard.look.hooks": ("head_mask",),
    "regard.model": ("info", "models", "plan"),
    "regard.model.batch": ("onehot",),
    "regard.native": ("doctor",),
    "regard.rules": ("discover",),
    "regard.train": ("replay", "verify"),
    "regard.train.config": ("DataConfig", "ShapeConfig", "TrainConfig"),
    "regard.translation": ("translate",),
}
"""Where other public names live. Loaded on first use: `import regard` needs no torch."""

__all__ = [
    "DataConfig",
    "Extracted",
    "Kit",
    "ShapeConfig",
    "Tap",
    "TrainConfig",
    "add",
    "attend",
    "attention",
    "build",
    "check",
    "data",
    "demo",
    "discover",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "fill",
    "formal",
    "generate",
    "head_mask",
    "history",
    "info",
    "kernel_regression",
    "ladder",
    "load",
    "look",
    "mean",
    "models",
    "onehot",
    "other_rows",
    "patch",
    "plan",
    "replay",
    "resample",
    "resample_from",
    "score",
    "settings",
    "steering_vector",
    "taps",
    "tokens",
    "train",
    "translate",
    "verify",
    "zero",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"regard.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
