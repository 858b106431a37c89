"""Augmentation of batches on the device: crop, flip, RandAugment, erasing, mixup and CutMix.

What is random comes as numbers in [0, 1), `dice` (B, K), that the host draws from (seed, epoch,
index): a run resumes to the same bits, on any device, and the rest is one graph of fixed shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

OPERATIONS = "identity shear-x shear-y translate-x translate-y rotate".split()
OPERATIONS += "brightness contrast colour sharpness solarize".split()
"""Of RandAugment (Cubuk 2020); at most 0.3 of a side, 30°, factors of 0 to 2, all that is light.
All moves are one resampling, and colours come after it."""
PLACES = 12  # dice of all but RandAugment, which has two for each operation


@dataclass(frozen=True)
class Augmentation:
    """What is done to pictures before a model learns from them."""

    own: Any
    """A PictureConfig, which says what."""

    def draw(self, dice: np.random.Generator, rows: int) -> NDArray[np.float32]:
        """What one batch needs: (B, K)."""
        own = self.own
        drawn = dice.random((rows, PLACES + 2 * own.randaugment), np.float32)
        cut = drawn[:, 9] * (bool(own.mixup) + bool(own.cutmix)) < bool(own.cutmix)
        alpha = np.where(cut, own.cutmix, own.mixup) + 1e-6
        drawn[:, 8], drawn[:, 9] = dice.beta(alpha, alpha), cut
        return drawn

    def change(self, x: Tensor, dice: Tensor, fill: Tensor) -> Tensor:
        """Pictures (B, C, H, W) in 0 to 255, moved and recoloured; `fill` (C, 1, 1) is around."""
        own, count = self.own, len(OPERATIONS)
        chosen = F.one_hot((dice[:, PLACES::2] * count).long(), count)  # (B, operations, count)
        power = (2 * dice[:, PLACES + 1 :: 2] - 1) * own.magnitude / 10
        level = (power[..., None] * chosen).sum(1)  # (B, count): 0 of what is not drawn
        down, right = (((2 * own.crop + 1) * dice[:, :2]).floor() - own.crop).unbind(1)
        mirror = 1 - 2 * (dice[:, 2] < 0.5 * own.flip).float()
        sine, cosine = (level[:, 5] * math.pi / 6).sin(), (level[:, 5] * math.pi / 6).cos()
        shear_x, shear_y, shift_x, shift_y = (0.3 * level[:, 1:5]).unbind(1)
        across = mirror * cosine, shear_x - sine, 2 * shift_x + 2 * right / x.shape[3]
        along = mirror * (shear_y + sine), cosine, 2 * shift_y + 2 * down / x.shape[2]
        matrix = torch.stack((*across, *along), 1).view(-1, 2, 3)  # a side is 2 long
        grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
        x = F.grid_sample(x - fill, grid, align_corners=False) + fill
        return recolour(x, level[:, 6:, None, None, None]) if own.randaugment else x

    def blank(self, x: Tensor, dice: Tensor) -> Tensor:
        """Erase a box of some pictures, 2 to 33 % (Zhong 2020): pixels become 0, their mean."""
        share = (0.02 + 0.31 * dice[:, 4]) * (dice[:, 3] < self.own.erase)
        inside = box(x, share, dice[:, 6:8], (1.2 - 2.4 * dice[:, 5]).exp())
        return x.masked_fill(inside, 0.0) if self.own.erase else x

    def mix(self, x: Tensor, dice: Tensor) -> tuple[Tensor, Tensor]:
        """Each picture (B, C, H, W) with another, and its own share of the label (B,).

        Mixup (Zhang 2018) blends all pixels alike; CutMix (Yun 2019) takes a box from the other one
        and its area from the label. Picture i goes with B − 1 − i.
        """
        if not (self.own.mixup or self.own.cutmix):
            return x, torch.ones_like(dice[:, 8])
        share, cut = dice[:, 8], dice[:, 9, None, None, None] > 0
        outside = 1 - box(x, 1 - share, dice[:, 10:12], torch.ones_like(share)).to(x)
        own = torch.where(cut, outside, share[:, None, None, None])  # (B, 1, H, W)
        return own * x + (1 - own) * x.flip(0), own.mean((1, 2, 3))


def recolour(x: Tensor, level: Tensor) -> Tensor:
    """Pictures (B, C, H, W) in 0 to 255 with other colours, by levels (B, 5, 1, 1, 1)."""

    def grey(x: Tensor) -> Tensor:
        red, green, blue = (x[:, -n:][:, :1] for n in (3, 2, 1))  # of one channel all the same
        return 0.299 * red + 0.587 * green + 0.114 * blue

    bright, contrast, colour, sharp = (1 + level[:, :4]).clamp(min=0).unbind(1)
    x = torch.lerp(grey(x * bright).mean((2, 3), keepdim=True), x * bright, contrast)
    x = torch.lerp(grey(x), x, colour)
    x = torch.lerp(F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), x, sharp).clamp(0, 255)
    return torch.where(x > 255 - 255 * level[:, 4].abs(), 255 - x, x)  # solarize


def box(x: Tensor, share: Tensor, middle: Tensor, aspect: Tensor) -> Tensor:
    """Which pixels (B, 1, H, W) lie in boxes of a share of the area around places in 0 to 1."""
    inside = []
    for n, stretch in enumerate((aspect.sqrt(), aspect.rsqrt())):
        places = (torch.arange(x.shape[2 + n], device=x.device) + 0.5) / x.shape[2 + n]
        half = share.sqrt() * stretch / 2
        inside.append((places - middle[:, n, None]).abs() < half[:, None])
    return (inside[0][:, :, None] & inside[1][:, None])[:, None]


@dataclass(frozen=True)
class Preparation:
    """Stored examples → what a model reads: augmented and normalised."""

    mean: Tensor
    """(C, 1, 1), of what is stored; so is `std`."""
    std: Tensor
    augmentation: Any = None

    def __call__(self, stored: Tensor, dice: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) and how much of each label is its own (B,)."""
        with torch.autocast(stored.device.type, enabled=False):
            x, plan = stored.float(), self.augmentation
            if dice is None:
                return (x - self.mean) / self.std, torch.ones(len(x), device=x.device)
            x = (plan.change(x, dice, self.mean) - self.mean) / self.std
            mixed: tuple[Tensor, Tensor] = plan.mix(plan.blank(x, dice), dice)
            return mixed
