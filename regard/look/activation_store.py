"""Activations on the disk: a folder of shards of rows and a manifest.

Each shard is a safetensors file that holds for each tap a tensor (rows, numbers) and the `text`,
`position` and `token` of each row, in the order of the corpus. `Extracted` reads a folder,
memory-mapped; `ShardWriter` makes one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.files import read_json, write_tensors
from regard.look.tap_names import find_taps

DOING = "extracting"
INDEX = ("text", "position", "token")
MANIFEST = "manifest.json"
FORMAT = "regard-extract-1"


class RowIndex(NamedTuple):
    """Where each row comes from."""

    text: Tensor  # (N,) number of the text in the corpus, from 0
    position: Tensor  # (N,) of the token in the text, from 0
    token: Tensor  # (N,) id


class Extracted:
    """Rows that `regard look extract` wrote: `Extracted(folder).tensor(tap)`, `.index`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        self.manifest: dict[str, Any] = read_json(path, "a folder of `regard look extract`")
        if self.manifest.get("format") != FORMAT:
            problem = f"format {self.manifest.get('format')!r}"
            raise DataError(f"reading {path}", problem, FORMAT)
        self.taps: list[str] = list(self.manifest["taps"])
        self.files = [self.folder / Path(shard["file"]).name for shard in self.manifest["shards"]]
        for file in self.files:
            if not file.is_file():
                problem = f"{file.name} is missing"
                raise DataError(f"reading {folder}", problem, f"all files of {MANIFEST}")

    def __len__(self) -> int:
        return int(self.manifest["rows"])

    def __repr__(self) -> str:
        return f"Extracted({str(self.folder)!r}, {len(self):,} rows, {len(self.taps)} taps)"

    def parts(self, tap: str) -> Iterator[Tensor]:
        """The rows (n, D) of the one tap that a name or pattern means, by shard, memory-mapped."""
        hits = find_taps(tap, self.taps)
        if len(hits) > 1:
            problem, expected = f"{len(hits)} taps are called {tap!r}", f"one of {', '.join(hits)}"
            raise UsageError(f"reading {self.folder}", problem, expected)
        return (read_column(file, hits[0]) for file in self.files)

    def tensor(self, tap: str) -> Tensor:
        """All rows (N, D) of a tap: mapped where there is one shard, else in memory."""
        parts = list(self.parts(tap))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @cached_property
    def index(self) -> RowIndex:
        """Text, position and token of each row."""
        return RowIndex(*(self.column(name) for name in INDEX))

    def column(self, name: str) -> Tensor:
        """What each row has under a name, such as text, position or token."""
        return torch.cat([read_column(file, name) for file in self.files])

    def mean(self, tap: str) -> Tensor:
        """The mean (D,) of all rows of a tap, summed in float64, a shard at a time."""
        total = sum((part.double().sum(0) for part in self.parts(tap)), torch.zeros(()))
        return (total / len(self)).float()


def read_column(file: Path, name: str) -> Tensor:
    """One tensor of a shard, memory-mapped."""
    try:
        with safe_open(file, framework="pt") as shard:
            return cast(Tensor, shard.get_tensor(name))
    except (SafetensorError, OSError) as error:
        raise DataError(f"reading {file}", str(error), "a whole shard", "copy it again") from None


class ShardWriter:
    """Shards on their way to the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards: list[dict[str, Any]] = []
        self.widths: dict[str, int] = {}
        """Numbers in a row of each tap."""

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Write a shard."""
        file = self.folder / f"rows-{len(self.shards):05d}.safetensors"
        write_tensors(file, tensors)
        self.widths = {name: x.shape[1] for name, x in tensors.items() if x.dim() == 2}
        rows, size = len(tensors["text"]), file.stat().st_size
        self.shards.append({"file": file.name, "rows": rows, "bytes": size})

    def finish(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest with the sizes of the shards, which are returned."""
        rows = sum(shard["rows"] for shard in self.shards)
        sizes = {
            "taps": {tap: {"shape": [rows, width]} for tap, width in self.widths.items()},
            "rows": rows,
            "bytes": sum(shard["bytes"] for shard in self.shards),
            "shards": self.shards,
        }
        whole = {"format": FORMAT, **manifest, **sizes}
        draft = self.folder / MANIFEST
        draft.write_text(json.dumps(whole, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        for file in self.folder.iterdir():
            shutil.copymode(draft, file)  # the library writes with mode 600
        return sizes
