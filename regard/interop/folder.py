"""Hugging Face checkpoint folders: config.json and safetensors, single or sharded.

A folder of ours may hold weights as int8; it presents them as float32.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import DataError
from regard.files import BROKEN, cannot_write, corrupt, read_json, read_shapes, sync, write_tensors
from regard.model.int8 import LEVELS, peaks, to_levels

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
STORED = "stored"  # the key of config.json that announces such names
INT8 = "int8"  # its value
WHOLE, PEAK = ".int8", ".peak"
PART = ".parametrizations.weight.original"
NORM = {".weight_g": f"{PART}0", ".weight_v": f"{PART}1"}  # of torch before 2.1 → since then
Shapes = dict[str, tuple[int, ...]]


class FolderSource:
    """A Hugging Face folder whose headers have been checked and whose tensors wait to be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.config = read_json(path / CONFIG)
        self.shapes: Shapes = {}
        self.files: dict[str, Path] = {}
        if (path / SINGLE).exists():  # as in transformers, it comes before an index
            self.shapes = read_shapes(path / SINGLE)
            self.files = dict.fromkeys(self.shapes, path / SINGLE)
        elif (path / INDEX).exists():
            self._read_shards(path / INDEX)
        else:
            fault = f"the folder has neither {SINGLE} nor {INDEX}"
            raise DataError(f"opening {path}", fault, "weights in safetensors", "download them too")
        self._old = {n[:-9] + NORM[n[-9:]]: n for n in self.shapes if n[-9:] in NORM}
        for new, old in self._old.items():
            self.shapes[new], self.files[new] = self.shapes.pop(old), self.files.pop(old)
        self._open: dict[Path, Any] = {}
        self._pairs: set[str] = set()
        stored = self.config.get(STORED)
        if stored == INT8:
            self._pairs = {n.removesuffix(WHOLE) for n in self.shapes if n.endswith(WHOLE)}
            kept = {n: shape for n, shape in self.shapes.items() if not n.endswith(PEAK)}
            self.shapes = {n.removesuffix(WHOLE): shape for n, shape in kept.items()}
        elif stored is not None:
            problem = f"{STORED} = {stored!r}"
            raise DataError(f"opening {path}", problem, f"{INT8!r}, or no such key")

    def tensor(self, name: str) -> Tensor:
        """Read one tensor, as mapped memory: its pages belong to the file until it is copied.

        A weight that is stored as int8 is new memory, in float32.
        """
        if name not in self._pairs:
            return self._read(name)
        whole, peak = self._read(name + WHOLE), self._read(name + PEAK)
        try:  # the peak is (N, 1), or (1, N) where a family stores (K, N)
            return whole.float().div_(LEVELS).mul_(peak)
        except RuntimeError as error:
            raise DataError(f"reading {name} of {self.path}", str(error), fix=BROKEN) from None

    def _read(self, name: str) -> Tensor:
        # Measured (safetensors 0.8): get_tensor over 90 MB raises RssFile, not RssAnon.
        if name not in self.files:
            raise DataError(f"opening {self.path}", f"no tensor {name!r}", fix=BROKEN)
        file = self.files[name]
        try:
            if file not in self._open:
                self._open[file] = safe_open(file, framework="pt")
            tensor: Tensor = self._open[file].get_tensor(self._old.get(name, name))
        except (SafetensorError, OSError, RuntimeError) as error:
            fault = f"tensor {name!r} cannot be read: {error}"
            raise DataError(f"reading {file}", fault, fix="copy or download it again") from error
        return tensor

    def _read_shards(self, index: Path) -> None:
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise corrupt(index, 0, "no object 'weight_map'", "tensor names with their files")
        shards: dict[str, Shapes] = {}
        for name, file in weight_map.items():
            if not isinstance(file, str) or not re.fullmatch(r"[^/\\:\0]+\.safetensors", file):
                at = index.read_bytes().find(json.dumps(name).encode())
                fault = f"the index sends {name!r} to {file!r}"
                raise corrupt(index, max(at, 0), fault, "the plain name of a .safetensors file")
            if file not in shards:
                if not (self.path / file).is_file():
                    fault = f"shard {file} is missing (it holds {name!r})"
                    raise DataError(f"opening {self.path}", fault, f"all files of {INDEX}")
                shards[file] = read_shapes(self.path / file)
            if name not in shards[file]:
                fault = f"{file} has no tensor {name!r}, though {INDEX} lists it there"
                raise DataError(f"opening {self.path}", fault, "index and shards of one export")
            self.shapes[name], self.files[name] = shards[file][name], self.path / file


def write_folder(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Iterable[tuple[str, Tensor]],
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write config.json, safetensors and side `files` so that no final name is ever half-written.

    All is written and synced under a temporary name first, then renamed: a folder may be written
    over the very files that `tensors` reads from, since a mapping keeps the old file alive.
    """
    weights: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors:  # the library refuses tensors that share memory
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        shared = storage.nbytes() != tensor.nbytes or storage.data_ptr() in seen
        weights[name] = tensor.clone() if shared else tensor
        seen.add(storage.data_ptr())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Inside the folder, so that a rename never crosses file systems.
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as draft:
            part = Path(draft)
            write_tensors(part / SINGLE, weights, "pt")  # transformers asks for the format
            described = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
            sides = {**(files or {}), CONFIG: described.encode()}
            for side, content in sides.items():
                (part / side).parent.mkdir(exist_ok=True)
                (part / side).write_bytes(content)
            for file in (SINGLE, *sides):
                shutil.copymode(part / CONFIG, part / file)  # the library writes with mode 600
                sync(part / file)
            for file in (SINGLE, *sides):
                (folder / file).parent.mkdir(exist_ok=True)
                os.replace(part / file, folder / file)
        for old in folder.iterdir():  # what another program wrote in shards
            if old.name == INDEX or SHARD.fullmatch(old.name):
                old.unlink()
        sync(folder)
    except OSError as error:
        needed = f"about {sum(tensor.nbytes for tensor in weights.values()):,} bytes of room"
        raise cannot_write(folder, error, needed) from error


# Weights as whole numbers: a quarter of the bytes of float32.
#
# NAME is written as NAME.int8, whole numbers n from −127 to 127, and NAME.peak, the largest
# absolute weight of each output in float32: w = n / 127 · peak, at most peak / 254 away. The peak
# itself comes back to the bit, so that restored weights give the same n and peak when they are
# stored again, and when they are packed for int8 products (`model/int8.py`), as the weights that
# they came from. The names are others than NAME's, lest another program take them for weights.


def to_whole(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (N, K) → whole numbers (N, K) in int8 and peaks (N, 1) in float32."""
    weight = weight.float()
    peak = peaks(weight)
    if not bool(peak.isfinite().all()):
        raise DataError("storing weights as int8", "an inf or a NaN", "finite weights")
    return to_levels(weight)[0], peak
