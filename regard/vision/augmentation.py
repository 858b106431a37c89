"""Augmentation of batches on the device: crop, flip, RandAugment, erasing, mixup and CutMix.

What is random comes as numbers in [0, 1), `dice` (B, K), that the host draws from (seed, epoch,
index): a run resumes to the same bits, on any device, and the rest is one graph of fixed shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

MOVES = ("identity", "shear-x", "shear-y", "translate-x", "translate-y", "rotate")
COLOURS = ("brightness", "contrast", "colour", "sharpness", "posterize", "solarize", "autocontrast")
OPERATIONS = MOVES + COLOURS
"""Of RandAugment (Cubuk 2020): 30 % shear, 30 % of a side, 30°, factors 0.1 to 1.9, 4 bits off."""
PLACES = 12  # dice of all but RandAugment, which has two for each operation
ERASED = (0.02, 1 / 3, math.log(0.3))  # smallest and largest share, least aspect (Zhong 2020)


@dataclass(frozen=True)
class Augmentation:
    """What is done to pictures before a model learns from them."""

    crop: int = 0
    flip: bool = False
    operations: int = 0
    magnitude: float = 9.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    def draw(self, dice: np.random.Generator, rows: int) -> NDArray[np.float32]:
        """What one batch needs: (B, K)."""
        drawn = dice.random((rows, PLACES + 2 * self.operations), np.float32)
        cut = drawn[:, 9] < (0.5 if self.mixup and self.cutmix else float(self.cutmix > 0))
        alpha = np.where(cut, self.cutmix, self.mixup)
        share = dice.beta(*[np.maximum(alpha, 1e-3)] * 2).astype(np.float32)
        drawn[:, 8], drawn[:, 9] = np.where(alpha > 0, share, 1), cut
        return drawn

    def change(self, x: Tensor, dice: Tensor, fill: Tensor) -> Tensor:
        """Pictures (B, C, H, W) in 0 to 1, moved and recoloured; `fill` (C, 1, 1) surrounds them."""
        (height, width), steps = x.shape[2:], self.operations
        if self.crop or self.flip or steps:
            shift = ((2 * self.crop + 1) * dice[:, :2]).floor() - self.crop
            mirror = torch.where(dice[:, 2] < 0.5, -1.0, 1.0) if self.flip else dice[:, 2] * 0 + 1
            ones = torch.ones_like(mirror)
            down, right = 2 * shift[:, 0] / height, 2 * shift[:, 1] / width
            move = affine(mirror, 0 * ones, right, 0 * ones, ones, down)
            for step in range(steps):
                move = move @ operation_affine(*self.operation(dice, step))
            grid = F.affine_grid(move[:, :2], list(x.shape), align_corners=False)
            x = F.grid_sample(x - fill, grid, align_corners=False) + fill
        for step in range(steps):
            x = recolour(x, *self.operation(dice, step))
        return x

    def operation(self, dice: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """(number of the operation, strength from −1 to 1) of each picture."""
        chosen, strength = dice[:, PLACES + 2 * step], dice[:, PLACES + 2 * step + 1]
        number = (chosen * len(OPERATIONS)).floor().clamp(max=len(OPERATIONS) - 1)
        return number, (2 * strength - 1) * self.magnitude / 10

    def blank(self, x: Tensor, dice: Tensor) -> Tensor:
        """Erase a box of some pictures (Zhong 2020): normalised pixels become 0, the mean."""
        if not self.erase:
            return x
        low, high, flat = ERASED
        share = (low + (high - low) * dice[:, 4]) * (dice[:, 3] < self.erase)
        aspect = (flat * (1 - 2 * dice[:, 5])).exp()
        return x.masked_fill(box(x, share, dice[:, 6], dice[:, 7], aspect), 0.0)

    def mix(self, x: Tensor, dice: Tensor) -> tuple[Tensor, Tensor]:
        """Each picture (B, C, H, W) with another, and its own share of the label (B,).

        Mixup (Zhang 2018) blends all pixels alike; CutMix (Yun 2019) takes a box from the other one
        and its area from the label. Picture i goes with B − 1 − i.
        """
        if not (self.mixup or self.cutmix):
            return x, torch.ones_like(dice[:, 8])
        share, cut = dice[:, 8, None, None, None], dice[:, 9, None, None, None] > 0
        inside = box(x, 1 - dice[:, 8], dice[:, 10], dice[:, 11])
        own = torch.where(cut, (~inside).to(x), share.expand_as(inside))  # (B, 1, H, W)
        return own * x + (1 - own) * x.flip(0), own.mean((1, 2, 3))


def affine(*entries: Tensor) -> Tensor:
    """Matrices (B, 3, 3) from the six numbers (B,) of their upper rows."""
    zero, one = torch.zeros_like(entries[0]), torch.ones_like(entries[0])
    return torch.stack((*entries, zero, zero, one), -1).unflatten(-1, (3, 3))


def operation_affine(number: Tensor, strength: Tensor) -> Tensor:
    """Where the pixels of RandAugment's moves come from (B, 3, 3); colours stay in place."""
    shear_x, shear_y, right, down, turn = (strength * (number == n) for n in range(1, 6))
    sine, cosine = (turn * math.pi / 6).sin(), (turn * math.pi / 6).cos()
    across, along = 0.3 * shear_x - sine, 0.3 * shear_y + sine
    return affine(cosine, across, 0.6 * right, along, cosine, 0.6 * down)


def recolour(x: Tensor, number: Tensor, strength: Tensor) -> Tensor:
    """RandAugment's operations on colours of pictures (B, C, H, W) in 0 to 1."""
    number, strength = number[:, None, None, None], strength[:, None, None, None]
    red, green, blue = (x[:, -n:][:, :1] for n in (3, 2, 1))  # of one channel all the same
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    blurred = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    bases = (torch.zeros_like(grey), grey.mean((2, 3), keepdim=True), grey, blurred)
    first, factor, power = len(MOVES), 1 + strength, strength.abs()
    out = x
    for n, base in enumerate(bases, first):  # brightness, contrast, colour, sharpness
        out = torch.where(number == n, base + factor * (x - base), out)
    level = torch.exp2((8 - 4 * power).round()) - 1
    out = torch.where(number == first + 4, (x * level).round() / level, out)
    out = torch.where((number == first + 5) & (x > 1 - power), 1 - x, out)
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    spread = (x - low) / (high - low).clamp(min=1 / 255)
    return torch.where(number == first + 6, spread, out).clamp(0, 1)


def box(x: Tensor, share: Tensor, y: Tensor, at: Tensor, aspect: Tensor | None = None) -> Tensor:
    """Which pixels (B, 1, H, W) lie in boxes of a share of the area around (y, at), in 0 to 1."""
    stretch = torch.ones_like(share) if aspect is None else aspect.sqrt()
    inside = []
    for count, middle, scale in ((x.shape[2], y, stretch), (x.shape[3], at, 1 / stretch)):
        half = share.sqrt() * scale * count / 2
        places = torch.arange(count, device=x.device) + 0.5
        inside.append((places - (middle * count)[:, None]).abs() < half[:, None])
    return (inside[0][:, :, None] & inside[1][:, None, :])[:, None]


@dataclass(frozen=True)
class Preparation:
    """Stored examples → what a model reads: scaled, augmented, normalised."""

    mean: Tensor
    """(C, 1, 1), of scaled values; so is `std`."""
    std: Tensor
    scale: float = 255.0
    augmentation: Augmentation = Augmentation()

    def __call__(self, stored: Tensor, dice: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(B, C, H, W) and, where there are dice, how much of each label is its own (B,)."""
        with torch.autocast(stored.device.type, enabled=False):
            x, share = stored.float() / self.scale, None
            if dice is not None:
                x = self.augmentation.change(x, dice, self.mean)
            x = (x - self.mean) / self.std
            if dice is not None:
                x, share = self.augmentation.mix(self.augmentation.blank(x, dice), dice)
        return x, share
