"""Front: anything → vectors, positions, mask. One file per modality beside this one."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from regard.model.config import FrontConfig


class Sequence(NamedTuple):
    """What a front hands to a stack."""

    x: Tensor
    """(B, T, D)"""
    positions: Tensor
    """(B or 1, T)"""
    real: Tensor | None = None
    """(B, T): True = token, False = padding; None when all are real."""
    document: Tensor | None = None
    """(B, T): number of the document in a packed row; None when a row is one document."""


def build_front(config: FrontConfig) -> nn.Module:
    """The front of a config."""
    from regard.model.front_audio import AudioFront
    from regard.model.front_image import ImageFront
    from regard.model.front_text import TextFront

    if config.kind == "text":
        return TextFront(config)
    return ImageFront(config) if config.kind == "image" else AudioFront(config)
