"""regard: one Transformer layer for text, images and sound, with everything in view."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.core.similarity import attend, attention, kernel_regression
    from regard.core.tap import Tap, taps
    from regard.kit import Kit
    from regard.loading import build, load
    from regard.look.edit import add, mean, other_rows, patch, resample, resample_from, zero
    from regard.look.extracted import Extracted
    from regard.look.steer import head_mask, steering_vector

__version__ = "0.1.0"

# Public name → where it lives. Loaded on first use, so that `import regard` needs no torch.
_HOMES = {
    "Extracted": "regard.look.extracted",
    "Kit": "regard.kit",
    "Tap": "regard.core.tap",
    "add": "regard.look.edit",
    "attend": "regard.core.similarity",
    "attention": "regard.core.similarity",
    "build": "regard.loading",
    "head_mask": "regard.look.steer",
    "kernel_regression": "regard.core.similarity",
    "load": "regard.loading",
    "mean": "regard.look.edit",
    "other_rows": "regard.look.edit",
    "patch": "regard.look.edit",
    "resample": "regard.look.edit",
    "resample_from": "regard.look.edit",
    "steering_vector": "regard.look.steer",
    "taps": "regard.core.tap",
    "zero": "regard.look.edit",
}

__all__ = [
    "Extracted",
    "Kit",
    "Tap",
    "add",
    "attend",
    "attention",
    "build",
    "head_mask",
    "kernel_regression",
    "load",
    "mean",
    "other_rows",
    "patch",
    "resample",
    "resample_from",
    "steering_vector",
    "taps",
    "zero",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
