"""Image front: equal patches (Dosovitskiy 2021) or a small convolutional stem (Xiao 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.core.position import Learned, sinusoidal_2d
from regard.errors import DataError, UsageError
from regard.model.config import ImageConfig
from regard.model.front import Sequence


class ImageFront(nn.Module):
    """Pixels (B, C, height, width) → one vector per patch, the class token first."""

    def __init__(self, config: ImageConfig) -> None:
        super().__init__()
        if config.height % config.patch or config.width % config.patch:
            raise UsageError(
                "building an image front",
                f"{config.height} × {config.width} pixels, patches of {config.patch}",
                "height and width that are multiples of the patch",
                "resize the pictures or change the patch",
            )
        self.config = config
        self.grid = config.height // config.patch, config.width // config.patch
        self.patches = conv_stem(config) if config.stem == "conv" else patch_stem(config)
        self.cls = nn.Parameter(torch.zeros(1, 1, config.dim)) if config.cls else None
        self.positions: Learned | None = None
        if config.position == "learned":
            self.positions = Learned(self.grid[0] * self.grid[1] + config.cls, config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, pixels: Tensor) -> Sequence:
        """(B, C, height, width) → (B, 1 + patches, D)."""
        config = self.config
        if pixels.shape[1:] != (config.channels, config.height, config.width):
            raise DataError(
                "reading pixels",
                f"shape {tuple(pixels.shape)}",
                f"(batch, {config.channels}, {config.height}, {config.width})",
                "resize the pictures to the model's size",
            )
        x = self.patches(pixels).flatten(2).transpose(1, 2)  # (B, N, D)
        if self.positions is None:
            x = x + sinusoidal_2d(*self.grid, config.dim).to(x)
        if self.cls is not None:
            x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1)
        positions = torch.arange(x.shape[1], device=x.device)[None]
        if self.positions is not None:
            x = x + self.positions(positions)
        return Sequence(self.dropout(x), positions)


def patch_stem(config: ImageConfig) -> nn.Module:
    """One linear map per patch, written as a convolution whose stride is the patch."""
    return nn.Conv2d(config.channels, config.dim, config.patch, stride=config.patch)


def conv_stem(config: ImageConfig) -> nn.Module:
    """3 × 3 convolutions of stride 2 down to one value per patch, then a 1 × 1 map to dim."""
    halvings = config.patch.bit_length() - 1
    if config.patch != 2**halvings or halvings < 1:
        raise UsageError("building a conv stem", f"patch = {config.patch}", "a power of two")
    parts: list[nn.Module] = []
    before = config.channels
    for step in range(halvings):
        after = max(config.dim >> (halvings - step), 8)
        parts += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GELU()]
        before = after
    return nn.Sequential(*parts, nn.Conv2d(before, config.dim, 1))
