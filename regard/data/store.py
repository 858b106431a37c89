"""A store of token ids on disk, read through memory maps, for corpora larger than memory.

One file, little-endian: magic (8 bytes), place of the header (8), ids (uint16 or uint32), document
bounds (int64, one more than documents, aligned to 8), header (JSON). The place is written last,
into a file of another name that is then renamed: half a store never opens as a whole one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from regard.data.order import Counts
from regard.errors import DataError, ResourceError
from regard.files import FULL

MAGIC = b"regard1\n"
FRONT = 16  # bytes before the ids


class Writer:
    """Writes a store in one pass; ids and bounds go to disk as they come."""

    def __init__(self, path: Path | str, vocab: int, header: dict[str, Any]) -> None:
        self.path, self.vocab, self.header = Path(path), vocab, header
        self.kind = np.dtype("<u2" if vocab <= 2**16 else "<u4")
        self.tokens = self.documents = 0
        self.progress: Callable[[str], None] = lambda text: None

    def __enter__(self) -> Writer:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(self.path)
        self.draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self.out: IO[bytes] = self.draft.open("wb")
        self.out.write(MAGIC + bytes(FRONT - len(MAGIC)))
        self.bounds: IO[bytes] = TemporaryFile(dir=self.path.parent)  # noqa: SIM115
        self.bounds.write(np.zeros(1, "<i8").tobytes())
        return self

    def add(self, documents: Sequence[Sequence[int]]) -> None:
        """Append documents."""
        sizes = np.fromiter(map(len, documents), "<i8", len(documents))
        ends = self.tokens + sizes.cumsum()
        self.write(np.fromiter(chain.from_iterable(documents), np.int64, int(sizes.sum())))
        self.bounds.write(ends.astype("<i8").tobytes())
        self.documents += len(documents)

    def extend(self, ids: Sequence[int]) -> None:
        """Append ids to a document that `close` will end."""
        self.write(np.fromiter(ids, np.int64, len(ids)))

    def write(self, ids: Counts) -> None:
        """Append ids to the stream."""
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocab:
            found = f"ids from {ids.min()} to {ids.max()}"
            raise DataError(f"writing {self.path}", found, f"ids below {self.vocab}")
        self.out.write(ids.astype(self.kind).tobytes())
        self.tokens += len(ids)
        self.progress(f"{self.tokens:,} tokens")

    def close(self) -> None:
        """End the document that `extend` wrote."""
        self.bounds.write(np.array([self.tokens], "<i8").tobytes())
        self.documents += 1

    def finish(self) -> None:
        """Bounds, header and its place; sync and rename."""
        self.out.write(bytes(-self.out.tell() % 8))
        start = self.out.tell()
        self.bounds.seek(0)
        shutil.copyfileobj(self.bounds, self.out, 1 << 20)
        place = self.out.tell()
        layout = {"dtype": self.kind.str, "bounds": start}
        layout |= {"tokens": self.tokens, "documents": self.documents}
        self.out.write(json.dumps({**layout, **self.header}, ensure_ascii=False).encode())
        self.out.seek(len(MAGIC))
        self.out.write(place.to_bytes(8, "little"))
        self.out.flush()
        os.fsync(self.out.fileno())
        self.out.close()
        self.draft.replace(self.path)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.finish()
        except OSError as late:
            raise no_room(self.path, late) from None
        finally:
            for file in (self.out, self.bounds):
                with suppress(OSError):  # what was buffered may find no room either
                    file.close()
            self.draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL:
            raise no_room(self.path, error) from None


def no_room(path: Path, error: OSError) -> Exception:
    """A full disk as an error of ours; any other as it is."""
    if error.errno not in FULL:
        return error
    free = shutil.disk_usage(path.parent).free
    needed = "two bytes a token (four when the vocabulary passes 65,536) and 8 a document"
    fix = "free some room, or put the store on another disk"
    return ResourceError(f"writing {path}", f"no room on disk ({free:,} bytes left)", needed, fix)


def clear_leftovers(path: Path) -> None:
    """Remove what writers of this store left that were killed."""
    for draft in path.parent.glob(f".{path.name}.*.tmp"):
        number = draft.name.split(".")[-2]
        try:
            os.kill(int(number), 0)
        except ProcessLookupError:
            draft.unlink(missing_ok=True)
        except (OSError, ValueError):  # someone else's
            pass


class Store:
    """Token ids of many documents, one stream with bounds; read when asked for."""

    def __init__(self, path: Path | str) -> None:
        self.path, self.header = Path(path), read_header(Path(path))
        self.tokens: int = self.header["tokens"]
        self.sides: int = self.header.get("sides", 1)
        self.documents: int = self.header["documents"]
        kind, start = np.dtype(self.header["dtype"]), self.header["bounds"]
        self.stream: NDArray[Any] = np.zeros(0, kind)
        if self.tokens:  # NumPy cannot map nothing
            self.stream = map_file(self.path, kind, FRONT, self.tokens)
        self.bounds: Counts = map_file(self.path, np.dtype("<i8"), start, self.documents + 1)

    def __len__(self) -> int:
        """Examples: documents, or pairs in a store with two sides."""
        return self.documents // self.sides

    def __getitem__(self, number: int) -> Counts:
        """The ids of one document."""
        if not 0 <= number < self.documents:
            raise IndexError(f"document {number} of {self.documents}")
        return self.read(int(self.bounds[number]), int(self.bounds[number + 1]))

    def read(self, start: int, stop: int) -> Counts:
        """Ids of a stretch of the stream."""
        return self.stream[start:stop].astype(np.int64)

    def gather(self, starts: Counts, sizes: Counts, width: int, pad: int = 0) -> Counts:
        """Stretches of the stream as padded rows: (B,), (B,) → (B, width)."""
        steps = np.arange(width)
        places = np.minimum(starts[:, None] + steps, max(self.tokens - 1, 0))
        return np.where(steps < sizes[:, None], self.stream[places], pad).astype(np.int64)

    def lengths(self) -> Counts:
        """Tokens of each document, 8 bytes each; (examples, 2) in a store with two sides."""
        sizes = np.diff(self.bounds)
        return sizes if self.sides == 1 else sizes.reshape(-1, self.sides)


def map_file(path: Path, kind: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
    """A read-only map as a plain array, whose slices are quicker than those of np.memmap."""
    return np.memmap(path, kind, "r", start, (count,)).view(np.ndarray)


def read_header(path: Path) -> dict[str, Any]:
    """The header of a whole store, or a DataError that says what is wrong with the file."""
    doing, fix = f"opening the token store {path}", "delete it; it is built again"
    try:
        with path.open("rb") as file:
            front = file.read(FRONT)
            place = int.from_bytes(front[8:], "little")
            if front[:8] != MAGIC or place < FRONT:
                raise DataError(doing, "a file that is no whole store", "a store of regard", fix)
            file.seek(place)
            header: dict[str, Any] = json.loads(file.read())
    except FileNotFoundError:
        raise DataError(doing, "no such file") from None
    except ValueError:
        raise DataError(doing, "a store that was cut off or changed", "a whole one", fix) from None
    room = header["bounds"] + 8 * (header["documents"] + 1)
    needed = FRONT + header["tokens"] * np.dtype(header["dtype"]).itemsize
    if room != place or needed > header["bounds"]:
        raise DataError(doing, "sizes that do not fit its header", "a whole store", fix)
    return header
