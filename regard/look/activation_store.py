"""Activations on the disk: a folder of shards of rows, an index, a manifest.

Each shard is a safetensors file that holds for each tap a tensor (rows, numbers) and the `text`,
`position` and `token` of each row, in the order of the corpus. `Extracted` reads a folder,
memory-mapped; `open_writer` makes one, whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import DataError, UsageError, nearest
from regard.files import LOCK, cannot_write, file_hash, hold, read_json, sync, write_whole
from regard.look.tap_names import match_pattern

DOING = "extracting"
INDEX = ("text", "position", "token")
MANIFEST = "manifest.json"
FORMAT = "regard-extract-1"
PART = ".part"  # the folder of what is being written
STATE = "state.json"  # in it: the shards that are finished, and what they are of


class RowIndex(NamedTuple):
    """Where each row comes from."""

    text: Tensor  # (N,) number of the text in the corpus, from 0
    position: Tensor  # (N,) of the token in the text, from 0; −1 for a mean
    token: Tensor  # (N,) id; −1 for a mean


# Reading ------------------------------------------------------------------------------------------


class Extracted:
    """Rows that `regard look extract` wrote: `Extracted(folder).tensor(tap)`, `.index`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self.taps: list[str] = list(self.manifest["taps"])
        self.files = [self.folder / shard["file"] for shard in self.manifest["shards"]]

    def __len__(self) -> int:
        return int(self.manifest["rows"])

    def __repr__(self) -> str:
        return f"Extracted({str(self.folder)!r}, {len(self):,} rows, {len(self.taps)} taps)"

    def name(self, tap: str) -> str:
        """The one tap that a name or pattern means."""
        hits = match_pattern(tap, tuple(self.taps))
        if len(hits) != 1:
            close = nearest(tap, self.taps)
            problem = f"{len(hits)} taps are called {tap!r}" if hits else f"no tap {tap!r}"
            fix = f"did you mean {close}?" if close else f"it has {', '.join(self.taps[:5])}"
            raise UsageError(f"reading {self.folder}", problem, "one of its taps", fix)
        return hits[0]

    def parts(self, tap: str) -> Iterator[Tensor]:
        """The rows (n, D) of a tap, shard by shard, each memory-mapped."""
        name = self.name(tap)
        return (read_column(file, name) for file in self.files)

    def tensor(self, tap: str) -> Tensor:
        """All rows (N, D) of a tap: mapped where there is one shard, else in memory."""
        parts = list(self.parts(tap))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @cached_property
    def index(self) -> RowIndex:
        """Text, position and token of each row."""
        return RowIndex(*(self.column(name) for name in INDEX))

    def column(self, name: str) -> Tensor:
        """What each row has under a name, such as text, or new where texts were written."""
        return torch.cat([read_column(file, name) for file in self.files])

    def mean(self, tap: str) -> Tensor:
        """The mean (D,) of all rows of a tap, summed in float64, a shard at a time."""
        total = sum((part.double().sum(0) for part in self.parts(tap)), torch.zeros(()))
        return (total / len(self)).float()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, if it is one of ours and whole."""
    manifest: dict[str, Any] = read_json(folder / MANIFEST, "a folder of `regard look extract`")
    if manifest.get("format") != FORMAT:
        problem = f"format {manifest.get('format')!r}"
        raise DataError(f"reading {folder / MANIFEST}", problem, FORMAT)
    for shard in manifest["shards"]:
        name = str(shard["file"])
        if not re.fullmatch(r"rows-\d+\.safetensors", name):
            problem = f"a shard called {name!r}"
            raise DataError(f"reading {folder / MANIFEST}", problem, "files of this folder")
        if not (folder / name).is_file():
            raise DataError(f"reading {folder}", f"{name} is missing", f"all files of {MANIFEST}")
    return manifest


def read_column(file: Path, name: str) -> Tensor:
    """One tensor of a shard, memory-mapped."""
    try:
        with safe_open(file, framework="pt") as shard:
            tensor: Tensor = shard.get_tensor(name)
            return tensor
    except (SafetensorError, OSError) as error:
        raise DataError(f"reading {file}", str(error), "a whole shard", "copy it again") from None


# Writing ------------------------------------------------------------------------------------------


class ShardWriter:
    """Shards on their way to the disk, one at a time beside the model's work.

    They lie in `folder/.part` until `publish`. With `settings`, JSON of what the numbers depend on
    beside the texts, finished shards are listed there too, so that a later run can go on.
    """

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self.folder, self.part, self.settings = folder, folder / PART, settings
        state = read_json(self.part / STATE) if (self.part / STATE).is_file() else {}
        self.shards: list[dict[str, Any]] = state.get("shards", [])
        self.mark: dict[str, Any] = state.get("mark", {})
        self.pool = ThreadPoolExecutor(1)
        self.pending: Future[None] | None = None

    @property
    def texts(self) -> int:
        """Texts, from the first on, whose rows are in finished shards."""
        return self.shards[-1]["texts"][1] + 1 if self.shards else 0

    def write(
        self, tensors: Mapping[str, Tensor], mark: Callable[[], dict[str, Any]] = dict
    ) -> None:
        """Begin to write a shard once the one before is there; `mark` says how far texts are."""
        self.wait()
        self.pending = self.pool.submit(self._save, tensors, mark())

    def wait(self) -> None:
        """Until the last shard is there; what went wrong with it is raised here."""
        if self.pending is not None:
            self.pending.result()

    def _save(self, tensors: Mapping[str, Tensor], mark: dict[str, Any]) -> None:
        """Write one shard and remember its hash, on the disk too where a later run may go on."""
        file, text = self.part / f"rows-{len(self.shards):05d}.safetensors", tensors["text"]
        try:
            save_file(dict(tensors), file)
        except SafetensorError as error:
            code = re.search(r"os error (\d+)", str(error))  # the library's only trace of errno
            if code is None:
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1]))) from error
        self.shards.append(
            {
                "file": file.name,
                "rows": len(text),
                "texts": [int(text[0]), int(text[-1])],
                "bytes": file.stat().st_size,
                "sha256": file_hash(file),
            }
        )
        if self.settings is not None:
            sync(file)
            state = {"settings": self.settings, "shards": self.shards, "mark": mark}
            write_whole(self.part / STATE, json.dumps(state).encode())

    def publish(self, manifest: Mapping[str, Any]) -> None:
        """Give the shards and their manifest their names, the manifest last."""
        self.wait()
        old = self.folder / MANIFEST
        before = [s["file"] for s in read_manifest(self.folder)["shards"]] if old.is_file() else []
        text = json.dumps({"format": FORMAT, **manifest}, ensure_ascii=False, indent=2)
        draft = self.part / MANIFEST
        draft.write_text(text + "\n", encoding="utf-8")
        names = [shard["file"] for shard in self.shards]
        for name in [*names, MANIFEST]:
            shutil.copymode(draft, self.part / name)  # the library writes with mode 600
            sync(self.part / name)
        old.unlink(missing_ok=True)
        for name in names:
            os.replace(self.part / name, self.folder / name)
        for name in set(before) - set(names):
            (self.folder / name).unlink(missing_ok=True)
        os.replace(draft, self.folder / MANIFEST)
        shutil.rmtree(self.part)
        sync(self.folder)


@contextmanager
def open_writer(
    folder: Path, force: bool = False, settings: dict[str, Any] | None = None
) -> Iterator[ShardWriter]:
    """A writer of shards into a folder that no other process writes to meanwhile.

    Without `publish` nothing is left of it; but with `settings` finished shards are, and a later
    writer of the same settings goes on after them.
    """
    check_free(folder, force)
    existed = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold(folder, DOING):
            if not can_resume(folder / PART, settings, force):
                shutil.rmtree(folder / PART, ignore_errors=True)
            (folder / PART).mkdir(exist_ok=True)
            writer = ShardWriter(folder, settings)
            try:
                yield writer
                writer.wait()
            finally:
                writer.pool.shutdown()
                if settings is None or not writer.shards:
                    shutil.rmtree(folder / PART, ignore_errors=True)
    except OSError as error:
        raise cannot_write(folder, error, "room for the activations") from error
    finally:
        if not existed and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def can_resume(part: Path, settings: dict[str, Any] | None, force: bool) -> bool:
    """Whether finished shards of these settings are there; those of others need `force` to go."""
    if not (part / STATE).is_file():
        return False
    before: dict[str, Any] = read_json(part / STATE)["settings"]
    if before == settings:
        return True
    if not force:
        other = [name for name in before if before[name] != (settings or {}).get(name)]
        problem = f"{part.parent} holds an interrupted run of another {', '.join(other)}"
        fix = "the same command goes on with it, --force throws it away"
        raise UsageError(DOING, problem, "the same, or another --out", fix)
    return False


def check_free(folder: Path, force: bool) -> None:
    """A folder must be new, empty or, with `force`, hold an extraction to be written over."""
    left = {file.name for file in folder.iterdir()} if folder.is_dir() else {folder.name}
    if not folder.exists() or left <= {LOCK, PART}:
        return
    ours = (folder / MANIFEST).is_file()
    if not force or not ours:
        expected = "a new or empty folder" + (", or --force" if ours else "")
        raise UsageError(DOING, f"{folder} is there already", expected)
    read_manifest(folder)
