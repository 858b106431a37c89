"""A store of labelled examples of one shape, read through a memory map: pictures, spectrograms.

A folder of plain arrays, little-endian: `examples`, `labels` (int64, numbers of the classes in the
order they were met) and header.json. Epochs read it instead of decoding files again. It is written
under another name and then renamed: half a store never opens as a whole one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.order import Counts, shuffled
from regard.data.token_store import HEADER, Say, map_file
from regard.data.windows import Examples, check_index
from regard.errors import DataError
from regard.files import cannot_write, read_json, sync

EXAMPLES, LABELS = "examples", "labels"
TOLD = 1000  # examples between two words on the progress
Draw = Callable[[np.random.Generator, int], NDArray[np.float32]]


class ExampleStore:
    """Examples (N, …) with their classes, and the mean and deviation of each channel."""

    def __init__(self, path: Path) -> None:
        self.header: dict[str, Any] = read_json(path / HEADER, "a store of examples")
        self.names: list[str] = self.header["names"]
        shape = (-1, *self.header["shape"])
        self.examples: NDArray[Any] = map_file(path / EXAMPLES, self.header["dtype"]).reshape(shape)
        self.labels: Counts = map_file(path / LABELS, "<i8")

    def __len__(self) -> int:
        return len(self.labels)


def open_examples(
    path: Path, recipe: dict[str, Any], rows: Iterable[tuple[str, NDArray[Any]]], progress: Say
) -> ExampleStore:
    """The store at `path` if it was made by this recipe, else a new one of (class, example)."""
    if path.exists() and (store := ExampleStore(path)).header["recipe"] == recipe:
        return store
    draft, names, digest = path.with_name(f".{path.name}.part"), dict[str, int](), hashlib.sha256()
    shutil.rmtree(draft, ignore_errors=True)
    header: dict[str, Any] = {"recipe": recipe}
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    try:
        draft.mkdir(parents=True)
        with (draft / EXAMPLES).open("wb") as out, (draft / LABELS).open("wb") as labels:
            for count, (name, example) in enumerate(rows, 1):
                header |= {"shape": example.shape, "dtype": example.dtype.str}
                number = np.array(names.setdefault(name, len(names)), "<i8").tobytes()
                data = np.ascontiguousarray(example).tobytes()
                out.write(data)
                labels.write(number)
                digest.update(number + data)
                values = example.reshape(len(example), -1).astype(np.float64)  # (C, …)
                total, squares = total + values.mean(1), squares + (values**2).mean(1)
                if count % TOLD == 0:
                    progress(f"{count:,} decoded")
        if not count:
            raise DataError("reading examples", "none that can be read", "one or more")
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
        header |= {"mean": mean.tolist(), "std": np.where(deviation > 0, deviation, 1).tolist()}
        header |= {"names": list(names), "digest": digest.hexdigest()}
        (draft / HEADER).write_text(json.dumps(header), "utf-8")
        for file in draft.iterdir():
            sync(file)
        shutil.rmtree(path, ignore_errors=True)
        draft.replace(path)
    except OSError as error:
        raise cannot_write(path, error, "as many bytes as all examples have") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return ExampleStore(path)


class ExampleRows:
    """Batches of stored examples, as they lie on disk: uint8 of pictures.

    With a seed, for training, they come shuffled, all of one shape, with what `draw` draws for the
    augmentation of (seed, epoch, index); a last batch of fewer rows is left out.
    """

    def __init__(
        self,
        examples: NDArray[Any],
        labels: Counts,
        numbers: Counts,
        rows: int,
        seed: int | None = None,
        draw: Draw | None = None,
    ) -> None:
        self.examples, self.labels, self.numbers, self.rows = examples, labels, numbers, rows
        self.seed, self.draw = seed, draw

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        full, rest = divmod(len(self.numbers), self.rows)
        return full + (rest > 0) if self.seed is None else max(1, full)

    def batch(self, epoch: int, index: int) -> Examples:
        """Examples (B, …) and their classes (B,)."""
        check_index(index, self.count(epoch))
        places = np.arange(len(self.numbers))[index * self.rows : (index + 1) * self.rows]
        numbers = self.numbers[shuffled(places, len(self.numbers), self.seed, epoch)]
        extra = {}
        if self.draw is not None and self.seed is not None:
            dice = np.random.default_rng((self.seed, epoch, index))
            extra["dice"] = torch.from_numpy(self.draw(dice, len(numbers)))
        inputs, labels = torch.from_numpy(self.examples[numbers]), self.labels[numbers]
        return Examples(inputs, torch.from_numpy(labels), len(numbers), extra=extra)
