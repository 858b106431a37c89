"""A store of labelled examples of one shape, read through a memory map: pictures, spectrograms.

A folder with header.json and `examples`, records of the part it belongs to (training, validation),
the number of its class, in the order they were met, and its planes. Epochs read it instead of
decoding files again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.order import Counts
from regard.data.token_store import HEADER, Say, map_file
from regard.data.windows import Examples, batch_rows
from regard.errors import DataError
from regard.files import drafting, file_hash, read_json
from regard.result import Failed

Example = tuple[str, str, Any]
"""Name, class, and planes (C, …), or why they could not be read."""
EXAMPLES = "examples"


def leave_out(examples: Iterable[tuple[Any, Any, Any]], say: Say) -> Iterator[Any]:
    """Without those that could not be read, which are named."""
    for example in examples:
        if isinstance(example[2], Failed):
            error = example[2].error
            say(f"warning: left out: {error.doing}: {error.found}; expected {error.expected}")
        else:
            yield example


class ExampleStore:
    """Examples (N, C, …) with their classes; its header has mean and deviation of each channel."""

    def __init__(self, path: Path) -> None:
        self.header: dict[str, Any] = read_json(path / HEADER, "a store of examples")
        kind, shape = self.header["planes"]
        record = [("part", "<i8"), ("label", "<i8"), ("planes", kind, tuple(shape))]
        self.records = map_file(path / EXAMPLES, record)

    def number(self, names: Sequence[str]) -> Counts:
        """The classes (N,) as places in a list of names."""
        if new := set(self.header["names"]) - set(names):
            raise DataError("reading classes", f"{min(new)!r}", f"one of {', '.join(names)}")
        places = np.array([names.index(name) for name in self.header["names"]])
        return np.asarray(places[self.records["label"]])


def open_examples(path: Path, parts: Sequence[Iterable[Example]], progress: Say) -> ExampleStore:
    """The store at `path`, written if it is not there yet; statistics are of the first part."""
    if path.exists():
        return ExampleStore(path)
    names, sums, count, planes = dict[str, int](), np.zeros((2, 1)), 0, None
    with drafting(path, "as many bytes as all examples have") as draft:
        with (draft / EXAMPLES).open("wb") as out:
            for part, examples in enumerate(parts):
                for _, name, planes in examples:
                    number = names.setdefault(name, len(names))
                    out.write(np.array([part, number], "<i8").tobytes() + planes.tobytes())
                    if part == 0:
                        values, count = planes.reshape(len(planes), -1) * 1.0, count + 1
                        sums = sums + [values.mean(1), (values**2).mean(1)]
                        progress(f"{count:,} examples")
        if planes is None or not count:
            raise DataError("reading examples", "none that can be read", "one or more")
        mean, square = sums / count
        std = np.sqrt(np.maximum(square - mean**2, 1e-12))
        header: dict[str, Any] = {"mean": mean.tolist(), "std": std.tolist(), "names": list(names)}
        header |= {"planes": (planes.dtype.str, planes.shape)}
        header |= {"digest": file_hash(draft / EXAMPLES)}
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
        places = batch_rows(index, self.rows, len(self.numbers), self.seed, epoch)
        chosen, extra = self.numbers[places], dict[str, torch.Tensor]()
        if self.draw is not None and self.seed is not None:
            dice = np.random.default_rng((self.seed, epoch, index))
            extra["dice"] = torch.from_numpy(self.draw(dice, len(chosen)))
        inputs, labels = (torch.from_numpy(part[chosen]) for part in (self.examples, self.labels))
        return Examples(inputs, labels, len(chosen), extra=extra)
