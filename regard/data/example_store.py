"""A store of labelled examples of one shape, read through a memory map: pictures, spectrograms.

A folder of plain arrays, little-endian: `examples`, `labels` (int64, numbers of the classes in the
order they were met) and header.json. Epochs read it instead of decoding files again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.order import Counts, shuffled
from regard.data.token_store import HEADER, Say, drafting, map_file
from regard.data.windows import Examples, check_index
from regard.errors import DataError, check_known
from regard.files import read_json

Example = tuple[str, str, NDArray[Any]]
"""Name, class, and planes (C, …)."""


class ExampleStore:
    """Examples (N, C, …) with their classes; its header has mean and deviation of each channel."""

    def __init__(self, path: Path) -> None:
        self.header: dict[str, Any] = read_json(path / HEADER, "a store of examples")
        self.names: list[str] = self.header["names"]
        shape, kind = (-1, *self.header["shape"]), self.header["dtype"]
        self.examples: NDArray[Any] = map_file(path / "examples", kind).reshape(shape)
        self.labels: Counts = map_file(path / "labels", "<i8")

    def number(self, names: Sequence[str]) -> Counts:
        """The classes (N,) as places in a list of names."""
        for name in self.names:
            check_known(name, names, "reading classes", f"the class {name!r}")
        return np.array([names.index(name) for name in self.names])[self.labels]


def open_examples(path: Path, examples: Iterable[Example], progress: Say) -> ExampleStore:
    """The store at `path`, written if it is not there yet."""
    if path.exists():
        return ExampleStore(path)
    names, digest, sums, count = dict[str, int](), hashlib.sha256(), np.zeros((2, 1)), 0
    header = dict[str, Any]()
    with drafting(path, "as many bytes as all examples have") as draft:
        with (draft / "examples").open("wb") as out, (draft / "labels").open("wb") as labels:
            for count, (_, name, planes) in enumerate(examples, 1):
                header |= {"shape": planes.shape, "dtype": planes.dtype.str}
                number = np.array(names.setdefault(name, len(names)), "<i8").tobytes()
                data = np.ascontiguousarray(planes).tobytes()
                digest.update(number + data)
                out.write(data)
                labels.write(number)
                values = planes.reshape(len(planes), -1).astype(np.float64)
                sums = sums + [values.mean(1), (values**2).mean(1)]
                progress(f"{count:,} examples")
        if not count:
            raise DataError("reading examples", "none that can be read", "one or more")
        mean, square = sums / count
        std = np.sqrt(np.maximum(square - mean**2, 0))
        header |= {"mean": mean.tolist(), "std": np.where(std > 0, std, 1).tolist()}
        header |= {"names": list(names), "digest": digest.hexdigest()}
        (draft / HEADER).write_text(json.dumps(header), "utf-8")
    return ExampleStore(path)


@dataclass(frozen=True)
class ExampleRows:
    """Batches of stored examples, as they lie on disk: uint8 of pictures.

    With a seed, for training, they come shuffled, all of one shape, with what `draw` draws for the
    augmentation of (seed, epoch, index); a last batch of fewer rows is left out.
    """

    examples: NDArray[Any]
    labels: Counts
    numbers: Counts
    """Which of them are read."""
    rows: int
    seed: int | None = None
    draw: Callable[[np.random.Generator, int], NDArray[np.float32]] | None = None

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        full, rest = divmod(len(self.numbers), self.rows)
        return full + (rest > 0) if self.seed is None else max(1, full)

    def batch(self, epoch: int, index: int) -> Examples:
        """Examples (B, …) and their classes (B,)."""
        check_index(index, self.count(epoch))
        places = np.arange(len(self.numbers))[index * self.rows : (index + 1) * self.rows]
        chosen, extra = self.numbers[shuffled(places, len(self.numbers), self.seed, epoch)], {}
        if self.draw is not None and self.seed is not None:
            dice = np.random.default_rng((self.seed, epoch, index))
            extra["dice"] = torch.from_numpy(self.draw(dice, len(chosen)))
        inputs, labels = (torch.from_numpy(part[chosen]) for part in (self.examples, self.labels))
        return Examples(inputs, labels, len(chosen), extra=extra)
