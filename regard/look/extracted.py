"""Extracted: a folder of activations on the disk. Shards of rows, an index, a manifest.

Each shard holds for each tap a tensor (rows, numbers) and the `text`, `position` and `token` of
each row, in the order of the corpus. `Extracted` reads it, memory-mapped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import DataError, UsageError, nearest
from regard.files import LOCK, cannot_write, file_hash, hold, read_json, sync, write_whole
from regard.look.extract import DOING, INDEX
from regard.look.names import match

MANIFEST = "manifest.json"
FORMAT = "regard-extract-1"
PART = ".part"  # what is being written
STATE = "state.json"  # in it: the shards that are finished, and what they are of
Form = Literal["safetensors", "arrow"]
Settings = dict[str, Any]
"""What the numbers depend on beside the texts; JSON."""
Mark = Callable[[], dict[str, Any]]


class Index(NamedTuple):
    """Where each row comes from."""

    text: Tensor  # (N,) number of the text in the corpus, from 0
    position: Tensor  # (N,) of the token in the text, from 0; −1 for a mean
    token: Tensor  # (N,) id; −1 for a mean


# Reading ------------------------------------------------------------------------------------------


class Extracted:
    """What `regard extract` wrote: `Extracted(folder).tensor(tap)` and `.index`, row by row."""

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
        found = match(tap, tuple(self.taps))
        if len(found) != 1:
            close = nearest(tap, self.taps)
            told = f"{len(found)} taps are called {tap!r}" if found else f"no tap {tap!r}"
            fix = f"did you mean {close}?" if close else f"it has {', '.join(self.taps[:5])}"
            raise UsageError(f"reading {self.folder}", told, "one of its taps", fix)
        return found[0]

    def parts(self, tap: str) -> Iterator[Tensor]:
        """The rows (n, D) of a tap, shard by shard, each memory-mapped."""
        name = self.name(tap)
        return (read_shard(file, [name])[name] for file in self.files)

    def tensor(self, tap: str) -> Tensor:
        """All rows (N, D) of a tap: mapped where there is one shard, else in memory."""
        parts = list(self.parts(tap))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @cached_property
    def index(self) -> Index:
        """Text, position and token of each row."""
        return Index(*(self.column(name) for name in INDEX))

    def column(self, name: str) -> Tensor:
        """What each row has under a name, such as text, or new where texts were written."""
        return torch.cat([read_shard(file, [name])[name] for file in self.files])

    def mean(self, tap: str) -> Tensor:
        """The mean (D,) of all rows of a tap, summed in float64, a shard at a time."""
        total = sum((part.double().sum(0) for part in self.parts(tap)), torch.zeros(()))
        return (total / len(self)).float()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, if it is one of ours and whole."""
    made: dict[str, Any] = read_json(folder / MANIFEST, "a folder of `regard extract`")
    if made.get("format") != FORMAT:
        found = f"format {made.get('format')!r}"
        raise DataError(f"reading {folder / MANIFEST}", found, FORMAT)
    for shard in made["shards"]:
        name = str(shard["file"])
        if not re.fullmatch(r"rows-\d+\.(safetensors|arrow)", name):
            found = f"a shard called {name!r}"
            raise DataError(f"reading {folder / MANIFEST}", found, "files of this folder")
        if not (folder / name).is_file():
            raise DataError(f"reading {folder}", f"{name} is missing", f"all files of {MANIFEST}")
    return made


def read_shard(file: Path, names: Any) -> dict[str, Tensor]:
    """Some tensors of a shard, memory-mapped."""
    if file.suffix == ".arrow":
        return read_arrow(file, names)
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        fix = "copy it again"
        raise DataError(f"reading {file}", str(error), "a whole shard", fix) from None


def read_arrow(file: Path, names: Any) -> dict[str, Tensor]:
    """The same of an Arrow file."""
    pa = import_arrow()
    with pa.memory_map(str(file)) as held:
        batch = pa.ipc.open_file(held).get_batch(0)
    made = {}
    for name in names:
        column = batch.column(name)
        wide = column.type.list_size if pa.types.is_fixed_size_list(column.type) else None
        flat = column.flatten() if wide else column
        with warnings.catch_warnings():  # it is not to be written to
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            x = torch.from_numpy(flat.to_numpy(zero_copy_only=True))
        made[name] = x.view(-1, wide) if wide else x
    return made


def import_arrow() -> Any:
    """The package, or what to install."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ModuleNotFoundError:
        fix = "pip install 'regard[arrow]', or --format safetensors"
        raise UsageError("using Arrow files", "pyarrow is not installed", "it", fix) from None
    return pyarrow


# Writing ------------------------------------------------------------------------------------------


class Writer:
    """Shards on their way to the disk, one at a time beside the model's work."""

    def __init__(self, part: Path, form: Form, settings: Settings | None = None) -> None:
        self.part, self.form, self.settings = part, form, settings
        state = read_json(part / STATE) if (part / STATE).is_file() else {}
        self.shards: list[dict[str, Any]] = state.get("shards", [])
        self.mark: dict[str, Any] = state.get("mark", {})
        self.pool = ThreadPoolExecutor(1)
        self.going: Future[None] | None = None

    @property
    def texts(self) -> int:
        """Texts, from the first on, whose rows are in finished shards."""
        return self.shards[-1]["texts"][1] + 1 if self.shards else 0

    def write(self, tensors: dict[str, Tensor], mark: Mark = dict) -> None:
        """Begin to write a shard once the one before is there; `mark` says how far texts are."""
        self.wait()
        self.going = self.pool.submit(self.save, tensors, mark())

    def wait(self) -> None:
        """Until the last shard is there; what went wrong with it is raised here."""
        if self.going is not None:
            self.going.result()

    def save(self, tensors: Mapping[str, Tensor], mark: dict[str, Any]) -> None:
        """Write one shard and remember its hash, on the disk too where a later run may go on."""
        file = self.part / f"rows-{len(self.shards):05d}.{self.form}"
        if self.form == "arrow":
            save_arrow(tensors, file)
        else:
            save_safetensors(tensors, file)
        text = tensors["text"]
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


def save_safetensors(tensors: Mapping[str, Tensor], file: Path) -> None:
    """One file; a full disk is an OSError."""
    try:
        save_file(dict(tensors), file)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))  # the library's only trace of errno
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def save_arrow(tensors: Mapping[str, Tensor], file: Path) -> None:
    """One record batch: vectors are lists of fixed size."""
    pa = import_arrow()
    columns = {}
    for name, x in tensors.items():
        flat = pa.array(np.ascontiguousarray(x.numpy()).reshape(-1))
        wide = x.dim() == 2
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, x.shape[1]) if wide else flat
    table = pa.table(columns)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)


@contextmanager
def writing(
    folder: Path, form: Form, force: bool = False, settings: Settings | None = None
) -> Iterator[Writer]:
    """A writer whose shards lie under another name until `publish`.

    If it does not come to that nothing is left; but with `settings` finished shards are, and a
    later writer of the same settings goes on after them.
    """
    check_free(folder, force)
    if form == "arrow":
        import_arrow()  # before minutes are spent
    there, part = folder.exists(), folder / PART
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold(folder, DOING):
            if not can_go_on(part, settings, force):
                shutil.rmtree(part, ignore_errors=True)
            part.mkdir(exist_ok=True)
            writer = Writer(part, form, settings)
            try:
                yield writer
                writer.wait()
            finally:
                writer.pool.shutdown()
                if settings is None or not writer.shards:
                    shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise cannot_write(folder, error, "room for the activations") from error
    finally:
        if not there and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def can_go_on(part: Path, settings: Settings | None, force: bool) -> bool:
    """Whether finished shards of these settings are there; those of others need `force` to go."""
    if not (part / STATE).is_file():
        return False
    before: Settings = read_json(part / STATE)["settings"]
    if before == settings:
        return True
    if not force:
        other = [name for name in before if before[name] != (settings or {}).get(name)]
        found = f"{part.parent} holds an interrupted run of another {', '.join(other)}"
        fix = "the same command goes on with it, --force throws it away"
        raise UsageError(DOING, found, "the same, or another --out", fix)
    return False


def check_free(folder: Path, force: bool) -> None:
    """A folder must be new, empty or, with `force`, hold an extraction to be written over."""
    left = {file.name for file in folder.iterdir()} if folder.is_dir() else {folder.name}
    if not folder.exists() or left <= {LOCK, PART}:
        return
    ours = (folder / MANIFEST).is_file()
    if not force or not ours:
        wanted = "a new or empty folder" + (", or --force" if ours else "")
        raise UsageError(DOING, f"{folder} is there already", wanted)
    read_manifest(folder)


def publish(folder: Path, writer: Writer, manifest: Mapping[str, Any]) -> None:
    """Give the shards and their manifest their names, the manifest last."""
    writer.wait()
    old = folder / MANIFEST
    before = [s["file"] for s in read_manifest(folder)["shards"]] if old.is_file() else []
    text = json.dumps({"format": FORMAT, **manifest}, ensure_ascii=False, indent=2)
    draft = writer.part / MANIFEST
    draft.write_text(text + "\n", encoding="utf-8")
    names = [shard["file"] for shard in writer.shards]
    for name in [*names, MANIFEST]:
        shutil.copymode(draft, writer.part / name)  # the library writes with mode 600
        sync(writer.part / name)
    old.unlink(missing_ok=True)
    for name in names:
        os.replace(writer.part / name, folder / name)
    for name in set(before) - set(names):
        (folder / name).unlink(missing_ok=True)
    os.replace(draft, folder / MANIFEST)
    shutil.rmtree(writer.part)
    sync(folder)
