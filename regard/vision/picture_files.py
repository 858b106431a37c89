"""Pictures with their classes, out of folders, tar archives, lists and arrays; and as pixels.

The class of a picture is the folder that it lies in, on disk or in an archive. Lists are CSV, TSV
or JSONL with a column of paths, beside the list, and one of labels; arrays are .npz with `images`
(N, height, width[, channels]) of uint8 and `labels`.
"""

from __future__ import annotations

import re
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.ambient import note
from regard.data.labelled_texts import TABLES, read_labelled
from regard.data.tabular import kind_of, read_table
from regard.data.text_files import find_files
from regard.errors import DataError, RegardError

SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
ARCHIVE = re.compile(r"\.(tar|tar\.\w+|tgz|txz)$", re.IGNORECASE)
COLUMNS = ("file", "path", "image", "filename")
"""Of a list, where the pictures are."""
MADE = re.compile(r"shapes(:\d+)?")
SHOWN = 10  # pictures left out that are named
BILINEAR = 2  # Pillow's number, which preprocessor_config.json has too
Pixels = NDArray[np.uint8]


class Picture(NamedTuple):
    """A picture that is not decoded yet; what holds it may be closed when the next one is asked."""

    name: str
    label: str
    source: Any
    """A path, a file that is open, or pixels (height, width[, channels])."""


class Frame(NamedTuple):
    """What pixels a model reads."""

    height: int
    width: int
    channels: int
    resample: int = BILINEAR
    resize: tuple[int, int] | int | None = None
    """Height and width before the middle is cut out, or the shorter side; those above."""


def find_pictures(paths: Sequence[str]) -> Iterator[Picture]:
    """All pictures of files and folders, in the order of their names."""
    for path in paths:
        if MADE.fullmatch(Path(path).name) and not Path(path).exists():
            yield from draw_shapes(int(Path(path).name.partition(":")[2] or 0))
            continue
        for file in find_files(path):
            if file.suffix.lower() in SUFFIXES:
                yield Picture(str(file), file.resolve().parent.name, file)
            elif ARCHIVE.search(file.name):
                yield from read_archive(file)
            elif kind_of(file) in TABLES:
                first = next(read_table(file), None)
                column = next((name for name in COLUMNS if first and name in first.cells), None)
                for row in read_labelled(file, column):
                    yield Picture(row.text, row.labels[0], file.parent / row.text)
            elif file.suffix == ".npz":
                yield from read_arrays(file)
            elif not Path(path).is_dir():
                expected = "a folder, a picture, .tar, .tar.xz, .npz, .csv, .tsv or .jsonl"
                raise DataError("reading pictures", f"{file}", expected)


def read_archive(path: Path) -> Iterator[Picture]:
    """The pictures of a tar archive, compressed or not."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name)
                if member.isfile() and name.suffix.lower() in SUFFIXES:
                    yield Picture(f"{path}: {name}", name.parent.name, archive.extractfile(member))
    except Exception as error:  # tar, lzma and zlib have no class in common
        raise DataError(f"reading {path}", str(error), "a whole tar archive") from None


def read_arrays(path: Path) -> Iterator[Picture]:
    """The pictures of an .npz file."""
    expected = "`images` (N, height, width[, channels]) of uint8 and `labels` (N,)"
    try:
        with np.load(path) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"reading {path}", str(error), expected) from None
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or labels.shape != images.shape[:1]:
        fault = f"images {images.shape} of {images.dtype}, labels {labels.shape}"
        raise DataError(f"reading {path}", fault, expected)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        yield Picture(f"{path}: {number}", str(label), image)


# Decoding -----------------------------------------------------------------------------------------


def pillow() -> Any:
    """The library that decodes pictures."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        fix = "pip install 'regard[vision]'"
        problem = "Pillow is not installed"
        raise RegardError("reading pictures", problem, "the vision extra", fix) from error
    return Image, ImageOps


def decode_picture(source: Any) -> Any:
    """A picture as Pillow has it, upright, in L or RGB: what is transparent is white."""
    image_file, operations = pillow()
    with warnings.catch_warnings():
        warnings.simplefilter("error", image_file.DecompressionBombWarning)
        if isinstance(source, np.ndarray):
            image = image_file.fromarray(source[..., 0] if source.shape[2:] == (1,) else source)
        else:
            with image_file.open(source) as opened:
                image = operations.exif_transpose(opened)
    if image.mode.startswith(("I", "F")):  # 16 bits, or numbers that have no other scale
        values = np.asarray(image, np.float64)
        deep = values.max(initial=0) > 255
        return image_file.fromarray((values / (257 if deep else 1)).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = image_file.alpha_composite(image_file.new("RGBA", image.size, "white"), image)
    return image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")


def frame_picture(image: Any, frame: Frame) -> Pixels:
    """A picture as pixels (C, height, width): resized whole, of which the middle may be cut out."""
    image = image.convert("L" if frame.channels == 1 else "RGB")
    size = frame.resize or (frame.height, frame.width)
    if isinstance(size, int):  # the shorter side, both in proportion
        size = tuple(round(side * size / min(image.size)) for side in image.size[::-1])
    if image.size != size[::-1]:
        image = image.resize(size[::-1], frame.resample)
    top, left = (size[0] - frame.height) // 2, (size[1] - frame.width) // 2
    pixels = np.asarray(image.crop((left, top, left + frame.width, top + frame.height)))
    return pixels.reshape(frame.height, frame.width, -1).transpose(2, 0, 1)


def decode_all(pictures: Iterator[Picture], say: Callable[[str], None] = note) -> Iterator[Any]:
    """(picture, its image) of all that can be read; those that cannot be are named and left out."""
    pillow()
    left_out = 0
    for picture in pictures:
        try:
            image = decode_picture(picture.source)
        except Exception as error:  # decoders raise all kinds on bytes that are not theirs
            left_out += 1
            if left_out <= SHOWN:
                say(f"warning: left out: {picture.name}: {error}")
            continue
        yield picture, image
    if left_out > SHOWN:
        say(f"warning: left out: {left_out:,} pictures in all")


# Made here ----------------------------------------------------------------------------------------

SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220)}


def draw_shapes(seed: int, count: int = 1200, side: int = 32) -> Iterator[Picture]:
    """Coloured shapes of any size and place on grey noise: a class for each shape and colour."""
    dice, (y, x) = np.random.default_rng(seed), np.mgrid[:side, :side] + 0.5
    for number in range(count):
        shape, colour = SHAPES[number % 4], list(COLOURS)[number // 4 % 3]
        radius = dice.uniform(0.15, 0.35) * side
        dy, dx = np.array([y, x]) - dice.uniform(radius, side - radius, (2, 1, 1))
        far = np.maximum(abs(dy), abs(dx))
        inside = {
            "circle": dy**2 + dx**2 < radius**2,
            "square": far < 0.85 * radius,
            "triangle": (dy < 0.8 * radius) & (abs(dx) < (dy + radius) / 1.8),
            "cross": (np.minimum(abs(dy), abs(dx)) < 0.3 * radius) & (far < radius),
        }[shape]
        pixels = np.where(inside[..., None], COLOURS[colour], dice.integers(90, 165))
        pixels = (pixels + dice.normal(0, 12, pixels.shape)).clip(0, 255).astype(np.uint8)
        yield Picture(f"shapes:{seed}: {number}", f"{colour} {shape}", pixels)
