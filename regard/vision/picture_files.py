"""Pictures with their classes, out of folders, tar archives, lists and arrays; and as pixels.

Files are those of `data/labelled_files.py`; arrays are .npz with `images` (N, height, width[,
channels]) of uint8 and `labels`. Where there is no such file, `shapes` and `shapes-test` are those
that regard ships (tools/make_shapes.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.example_store import Example
from regard.data.labelled_files import LabelledFile, find_labelled
from regard.errors import DataError, check_installed
from regard.result import Failed

ARRAYS = ".npz"
SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
SHIPPED = {file.stem: file for file in Path(__file__).parent.glob("*" + ARRAYS)}


def find_pictures(paths: Sequence[str]) -> Iterator[LabelledFile]:
    """(name, class, path or open file or pixels) of all pictures, not decoded."""
    for name, label, source in find_labelled(paths, {*SUFFIXES, ARRAYS}, SHIPPED):
        if isinstance(source, Path) and source.suffix == ARRAYS:
            yield from read_arrays(source)
        else:
            yield name, label, source


def read_arrays(path: Path) -> Iterator[LabelledFile]:
    """The pictures of an .npz file."""
    try:
        with np.load(path) as arrays:
            images, labels = arrays["images"], arrays["labels"]
        if images.dtype != np.uint8 or images.ndim < 3 or labels.shape != images.shape[:1]:
            raise ValueError(f"images {images.shape} of {images.dtype}, labels {labels.shape}")
    except Exception as error:  # zip, numpy and a missing key
        expected = "`images` (N, height, width[, channels]) of uint8 and `labels` (N,)"
        raise DataError(f"reading {path}", str(error), expected) from None
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        yield f"{path}: {number}", str(label), image


def read_pictures(paths: Sequence[str], sizes: Sequence[int]) -> Iterator[Example]:
    """Pixels (C, H, W) of all pictures, resized; of what cannot be read its error."""
    check_installed("PIL", "vision", "reading pictures")
    from PIL import Image, ImageOps

    def decode(source: Any) -> Image.Image:
        """Upright; what is transparent is white."""
        if isinstance(source, np.ndarray):
            return Image.fromarray(source[..., 0] if source.shape[2:] == (1,) else source)
        with Image.open(source) as opened:
            image = ImageOps.exif_transpose(opened)
        if image.mode.startswith(("I", "F")):  # 16 bits, or numbers without a scale
            values = np.asarray(image, np.float64)
            values /= 257 if values.max() > 255 else 1
            return Image.fromarray(values.clip(0, 255).astype(np.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return image

    for name, label, source in find_pictures(paths):
        try:
            with warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning):
                image = decode(source).convert("L" if sizes[0] == 1 else "RGB")
        except Exception as error:  # decoders raise all kinds on bytes that are not theirs
            yield name, label, Failed(DataError(f"reading {name}", str(error), "a picture"))
            continue
        image = image.resize((sizes[2], sizes[1]), Image.Resampling.BILINEAR)
        yield name, label, np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)
