"""Open a checkpoint from disk; every format presents itself as a Hugging Face checkpoint.

The package never opens a pickle: reading one runs whatever code its author put inside.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from regard.errors import DataError, nearest
from regard.interop.folder import CONFIG, INDEX, SINGLE, FolderSource
from regard.interop.gguf_file import MAGIC, GGUFSource
from regard.tokens.gguf_tokenizer import from_gguf
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.tokenizer_folder import open_tokenizer

PICKLE_SUFFIXES = {".pt", ".pth", ".pkl", ".pickle", ".ckpt"}
FORMATS = "a folder with config.json and model.safetensors, or a .gguf file"

Pathlike = str | os.PathLike[str]
Adapters = Pathlike | Mapping[str, Pathlike] | None
"""What stands for adapters of a model: a folder, or folders by name."""

CheckpointSource = FolderSource | GGUFSource
"""A checkpoint on disk: its config and shapes are known at once, its tensors when asked for.

`path`, `config` (the keys of a Hugging Face config.json), `shapes` by Hugging Face's names of
tensors, `files` that each lies in, and `metadata`, the key-value pairs of a GGUF file. `tensor`
reads one tensor now, mapped where the format allows it: copy it before changing it. Dequantised
tensors are new memory, so a caller that fills the largest first stays near 1x.
"""


def open_source(path: Pathlike) -> CheckpointSource:
    """Open a Hugging Face folder or a GGUF file by what is found at `path`."""
    try:
        path = Path(path).expanduser()
    except RuntimeError as error:  # the home of a user that is not there
        raise _refusal(Path(path), str(error)) from error
    try:
        if path.is_dir():
            return _open_folder(path)
        if path.is_file():
            return _open_file(path)
    except OSError as error:
        raise _refusal(path, error.strerror or str(error)) from error
    near = nearest(path.name, (p.name for p in path.parent.glob("*")))
    fault = "is not a file or folder" if path.exists() else "no such file or folder"
    raise _refusal(path, fault + (f"; did you mean {near}?" if near else ""))


def is_adapter(path: Pathlike) -> bool:
    """Whether a folder holds an adapter, which is opened with its base."""
    return os.path.isfile(os.path.join(os.fsdecode(path), "adapter_config.json"))


def is_pickle(path: Path) -> bool:
    """Whether a file is a Python pickle or a zip around one, by its name or its first bytes."""
    with path.open("rb") as file:
        head = file.read(4)
    # A pickle opens with 0x80, a protocol number and an opcode. The third byte tells it from a
    # llama2.c file with dim = 640, whose little-endian header starts 80 02 00 00.
    bare = len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and head[2] != 0
    return bare or head == b"PK\x03\x04" or path.suffix.lower() in PICKLE_SUFFIXES


def _open_folder(path: Path) -> CheckpointSource:
    files = {p.name: p for p in sorted(path.iterdir())}
    if not files:
        raise _refusal(path, "the folder is empty")
    if SINGLE not in files and INDEX not in files:
        for file in files.values():
            if file.suffix in PICKLE_SUFFIXES | {".bin"} and file.is_file() and is_pickle(file):
                raise _pickle_refusal(file)
    if CONFIG not in files:
        single = next((name for name in files if name.endswith(".gguf")), "")
        hint = f"open {path / single} instead" if single else ""
        raise _refusal(path, f"the folder has no {CONFIG}", fix=hint)
    return FolderSource(path)


def _open_file(path: Path) -> CheckpointSource:
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
    if not head:
        raise _refusal(path, "the file is empty (0 bytes)")
    if is_pickle(path):
        raise _pickle_refusal(path)
    if head == MAGIC or path.suffix.lower() == ".gguf":
        return GGUFSource(path)
    inside = path.suffix == ".safetensors" or path.name in (CONFIG, INDEX)
    hint = f"open the folder {path.parent} instead" if inside else ""
    if path.suffix.lower() == ".bin":
        hint = f"a model of llama2.c: python tools/llama2c.py {path} FOLDER"
    raise _refusal(path, f"not a checkpoint that regard knows (starts with {head!r})", fix=hint)


def _refusal(path: Path, found: str, fix: str = "") -> DataError:
    fix = fix or "give the path of a checkpoint that is already on this machine"
    return DataError(f"opening {path}", found, FORMATS, fix)


def _pickle_refusal(path: Path) -> DataError:
    fault = "refused: this is a pickle, and opening a pickle can run code hidden in it"
    fix = "convert it to safetensors where it came from (save_pretrained does so); "
    fix += "for an OpenAI Whisper file: python tools/whisper_pt.py FILE.pt FOLDER"
    return DataError(f"opening {path}", fault, FORMATS, fix)


def read_tokenizer(source: CheckpointSource) -> Tokenizer | None:
    """The tokenizer that came with a checkpoint, None when there is none."""
    if isinstance(source, GGUFSource):
        return from_gguf(source.metadata) if "tokenizer.ggml.model" in source.metadata else None
    return open_tokenizer(source.path)
