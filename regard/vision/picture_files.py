"""Pictures with their classes, out of folders, tar archives, lists and arrays; and as pixels.

The class of a picture is the folder that it lies in, on disk or in an archive. Lists are CSV, TSV
or JSONL with a column of paths, beside the list, and one of labels; arrays are .npz with `images`
(N, height, width[, channels]) of uint8 and `labels`. Where there is no such file, `shapes` and
`shapes-test` are those that regard ships (tools/make_shapes.py).
"""

from __future__ import annotations

import re
import tarfile
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.example_store import Example
from regard.data.labelled_texts import TABLES, read_labelled
from regard.data.tabular import kind_of, read_table
from regard.data.text_files import find_files
from regard.data.token_store import Say
from regard.errors import DataError, check_installed

SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
ARCHIVE = re.compile(r"\.(tar(\.\w+)?|tgz|txz)$", re.IGNORECASE)
COLUMNS = ("file", "path", "image", "filename")
"""Of a list, where the pictures are."""
Picture = tuple[str, str, Any]
"""Name, class, and a path, an open file or pixels; a file may be closed when the next is asked."""


def find_pictures(paths: Sequence[str]) -> Iterator[Picture]:
    """All pictures of files and folders, in the order of their names, not decoded."""
    for path in map(Path, paths):
        shipped = Path(__file__).with_name(f"{path.name}.npz")
        for file in find_files(shipped if shipped.exists() and not path.exists() else path):
            if ARCHIVE.search(file.name):
                yield from read_archive(file)
            elif kind_of(file) in TABLES:
                cells = next((row.cells for row in read_table(file)), {})
                column = next((name for name in COLUMNS if name in cells), None)
                for row in read_labelled(file, column):
                    yield row.text, row.labels[0], file.parent / row.text
            elif file.suffix == ".npz":
                yield from read_arrays(file)
            elif file == path or file.suffix.lower() in SUFFIXES:
                yield str(file), file.resolve().parent.name, file


def read_archive(path: Path, suffixes: Collection[str] = SUFFIXES) -> Iterator[Picture]:
    """The pictures, or other files, of a tar archive, compressed or not."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name)
                if member.isfile() and name.suffix.lower() in suffixes:
                    yield f"{path}: {name}", name.parent.name, archive.extractfile(member)
    except Exception as error:  # tar, lzma and zlib have no class in common
        raise DataError(f"reading {path}", str(error), "a whole tar archive") from None


def read_arrays(path: Path) -> Iterator[Picture]:
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


def read_pictures(paths: Sequence[str], sizes: Sequence[int], say: Say) -> Iterator[Example]:
    """Pixels (C, H, W) of all pictures, resized; what cannot be read is named and left out."""
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
            say(f"warning: left out {name}: {error}")
            continue
        image = image.resize((sizes[2], sizes[1]), Image.Resampling.BILINEAR)
        yield name, label, np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)
