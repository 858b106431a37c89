"""Which model reads pictures, and how they are changed while it learns. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from regard.train.config import BelowOne, Config, FromZero
from regard.verbs import Amount, Bound, Count, Natural, Share


@dataclass(frozen=True)
class PictureConfig(Config):
    """A vision Transformer, and the augmentation of what it reads."""

    size: Count = 32
    """Side of the square that pictures are resized to, whatever their form."""
    grey: bool = False
    """Read one channel instead of three."""
    patch: Count = 4
    """Side of a patch, which divides size."""
    stem: Literal["patch", "conv"] = "patch"
    """One linear map per patch, or 3 × 3 convolutions; conv is saved as regard's own."""
    position: Literal["learned", "2d", "none"] = "learned"
    """Where a patch is: a learned table, as in ViT, waves of row and column, or unknown."""
    pool: Literal["class", "mean"] = "class"
    """What the head reads: a class token, as ViT does, or the mean of the patches."""
    dim: Count = 192
    """Width of the residual stream."""
    depth: Count = 6
    """Blocks."""
    heads: Count = 3
    """Attention heads."""
    drop_path: BelowOne = 0.0
    """Stochastic depth: how often the last block is skipped; earlier ones less, in proportion."""
    crop: Natural = 4
    """Pixels that a random crop moves the picture by, at most."""
    flip: bool = False
    """Mirror half of the pictures, left and right; not for letters and digits."""
    randaugment: Natural = 0
    """Operations of RandAugment on each picture (2 is usual)."""
    magnitude: Annotated[float, Bound(0, 10, "a number from 0 to 10")] = 9.0
    """How strong they are at most."""
    mixup: FromZero = 0.0
    """α of mixup: two pictures and their labels are blended (0.8 is usual)."""
    cutmix: FromZero = 0.0
    """α of CutMix: a box of another picture, with as much of its label (1 is usual)."""
    erase: Share = 0.0
    """How often a box of a picture is erased (0.25 is usual)."""
    rows: Count = 128
    """Pictures of a batch."""
    epochs: Amount = 10.0
    """Times that the data is read, unless --steps says so."""
