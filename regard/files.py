"""Files: hashes, writing that no crash can halve, and errors that say where one breaks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from regard.errors import DataError, RegardError, ResourceError, UsageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system calls a disk, a quota or a file that is full."""
LOCK = ".lock"
BROKEN = "the file is truncated or corrupt: copy or download it again"


def file_hash(path: Path | str) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make the disk really hold a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_taken(path: Path) -> bool:
    """Whether there is a file, or a folder that is not empty."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def check_new(out: Path, doing: str) -> None:
    """Stop where a folder or file that is to be written is there already."""
    if is_taken(out):
        raise UsageError(doing, f"{out} is there already", "a new or empty folder as --out")


@contextmanager
def hold(folder: Path, doing: str) -> Iterator[None]:
    """Keep a folder to this process inside the `with` block, or as long as the process lives.

    The system lets go of it however the process ends. Where there are no locks, nothing is held.
    """
    with ExitStack() as stack:
        try:
            import fcntl

            lock = stack.enter_context(open(folder / LOCK, "wb"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                problem = f"another process is writing {folder}"
                fix = "wait for it, or give another --out"
                raise UsageError(doing, problem, "one at a time", fix) from None
        stack.callback((folder / LOCK).unlink, missing_ok=True)
        yield


def check_places(*paths: str | Path | None) -> None:
    """Stop before any work where a file could not be written."""
    for path in (Path(given) for given in paths if given is not None):
        problem = "" if path.parent.is_dir() else f"no folder {path.parent}"
        if path.is_dir():
            problem = f"{path} is a folder"
        elif not problem and not os.access(path if path.exists() else path.parent, os.W_OK):
            problem = "no permission to write"
        if problem:
            raise UsageError(f"writing {path}", problem, "a file in a folder that is there")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under another name, sync and rename it: all of it is there, or what was."""
    draft = path.parent / f".{path.name}-{os.getpid()}.part"
    try:
        draft.write_bytes(data)
        sync(draft)
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise cannot_write(path, error, f"{len(data):,} bytes of room") from error


@contextmanager
def drafting(path: Path, needed: str) -> Iterator[Path]:
    """A folder to be written under another name: it is there when all of it is, or not at all."""
    whole = path.absolute()
    draft = whole.with_name(f".{whole.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        yield draft
        for file in draft.iterdir():
            sync(file)
        shutil.rmtree(path, ignore_errors=True)
        draft.replace(path)
        sync(whole.parent)
    except OSError as error:
        raise cannot_write(path, error, needed) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def cannot_write(path: Path, error: OSError, needed: str) -> RegardError:
    """Why a file or folder could not be written; a full disk says what is needed and free."""
    problem = error.strerror or str(error)
    if error.errno not in FULL:
        return DataError(f"writing {path}", problem, "a place that can be written")
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    problem += f" ({shutil.disk_usage(there).free:,} bytes are free)"
    fix = "free some space or write elsewhere; nothing was left half-written"
    return ResourceError(f"writing {path}", problem, needed, fix)


def read_json(path: Path, expected: str = "a JSON file") -> Any:
    """Read a JSON object from a file, or say where in the file it breaks."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        missing = not path.exists()
        problem = "no such file" if missing else error.strerror or str(error)
        fix = "copy or download it too" if missing else ""
        raise DataError(f"reading {path}", problem, expected, fix) from None
    return parse_json(raw, path)


def parse_json(raw: bytes, name: Path | str, kind: type = dict, start: int = 0) -> Any:
    """An object (or a list) as JSON that begins at byte `start` of the file `name`."""
    try:
        text = raw.decode().removeprefix("\ufeff")
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise corrupt(name, start + error.start, "not UTF-8", "JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        at = start + len(raw) - len(text.encode()) + len(text[: error.pos].encode())
        place = f"line {error.lineno}, column {error.colno}"
        raise corrupt(name, at, f"broken JSON in {place}: {error.msg}", "JSON") from None
    except (ValueError, RecursionError) as error:
        raise corrupt(name, start, f"broken JSON: {error}", "JSON") from None
    if not isinstance(value, kind):
        wanted = "a JSON object" if kind is dict else "a JSON list"
        raise corrupt(name, start, f"JSON of type {type(value).__name__}", wanted)
    return value


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Check the header of a safetensors file against its length; tensor name → shape."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.offset_keys()}
    except (SafetensorError, OSError) as error:
        problem = f"{error}; the file has {path.stat().st_size:,} bytes"
        raise DataError(f"reading {path}", problem, "a whole safetensors file", BROKEN) from None


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a safetensors file that is whole, by name."""
    from safetensors.numpy import load_file

    if not path.is_file():
        raise DataError(f"opening {path.parent}", f"no {path.name}", "the model's weights")
    read_shapes(path)  # which says that a file was cut
    return load_file(path)


def write_counted(
    folder: Path, config: Mapping[str, Any], weights: str, arrays: Mapping[str, Any]
) -> None:
    """The folder of a model that counts: config.json and its arrays, by name."""
    from safetensors.numpy import save

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / weights, save(dict(arrays)))
    text = json.dumps(config, ensure_ascii=False, indent=2) + "\n"
    write_whole(folder / "config.json", text.encode())


def write_tensors(path: Path, tensors: Mapping[str, Any], format: str | None = None) -> None:
    """A safetensors file; what the disk refuses is an OSError, as of any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, metadata=None if format is None else {"format": format})
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))  # the library's only trace of errno
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def take_ids(arrays: Mapping[str, Any], name: str, size: int, below: int) -> Any:
    """One of such arrays as `size` whole numbers from 0 to less than `below`."""
    array = arrays[name].astype("int64")
    if array.shape != (size,) or (size and not 0 <= array.min() <= array.max() < below):
        raise ValueError(f"{name} does not fit")
    return array


def corrupt(name: Path | str, offset: int, found: str, expected: str) -> DataError:
    """Say where a file breaks."""
    return DataError(f"reading {name}", f"byte {offset:,}: {found}", expected, BROKEN)
