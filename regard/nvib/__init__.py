"""NVIB: attention as nonparametric Bayes, with bottlenecks that count what passes them.

They are put before attentions of any model: `attach`. The loss that trains them is
`regard.nvib.elbo.elbo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.nvib.config import NVIBConfig
from regard.nvib.results import Attached

if TYPE_CHECKING:
    from regard.kit import Kit

NVIB = NVIBConfig()


def attach(kit: Kit, pattern: str = "*", config: NVIBConfig = NVIB) -> Attached:
    """Put a bottleneck before attentions of a model, in place; they denoise from then on.

    Self-attention then reads a mixture of Gaussians, one for each vector, and one of the prior. The
    bottlenecks are new: `regard.nvib.elbo.elbo` is the loss that trains them. What cannot denoise
    is skipped, and the result says why.

    Args:
        kit: an opened model.
        pattern: names of attentions or of what holds them, such as encoder.blocks.* or *.cross.
        config: how bottlenecks are made, and what training pays for what passes them.

    Example:
        >>> regard.nvib.attach(kit, "encoder.blocks.*").skipped
        []
    """
    from regard.nvib.denoising import attach as put

    return put(kit.model, pattern, config)


def detach(kit: Kit) -> None:
    """Take all bottlenecks off a model: its attentions are what they were.

    Example:
        >>> regard.nvib.detach(kit)
    """
    from regard.nvib.denoising import detach as take

    take(kit.model)
