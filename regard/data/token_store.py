"""A store of token ids on disk, read through memory maps, for corpora larger than memory.

One file, little-endian: magic (8 bytes), place of the header (8), ids (uint16 or uint32), document
bounds (int64, one more than documents, aligned to 8), header (JSON). The place is written last,
into a file of another name that is then renamed: half a store never opens as a whole one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.order import Counts
from regard.data.pairs import read_pairs
from regard.data.text_files import (
    Paths,
    chunks,
    cut_at_blanks,
    find_files,
    read_lines,
    read_pieces,
)
from regard.errors import DataError, ResourceError, UsageError
from regard.files import FULL, file_hash
from regard.tokens.tokenizer import Tokenizer

MAGIC = b"regard1\n"
FRONT = 16  # bytes before the ids


class StoreWriter:
    """Writes a store in one pass; ids and bounds go to disk as they come."""

    def __init__(self, path: Path | str, vocab: int, header: dict[str, Any]) -> None:
        self.path, self.vocab, self.header = Path(path), vocab, header
        self.kind = np.dtype("<u2" if vocab <= 2**16 else "<u4")
        self.tokens = self.documents = 0
        self.progress: Callable[[str], None] = lambda text: None

    def __enter__(self) -> StoreWriter:
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
            fault = f"ids from {ids.min()} to {ids.max()}"
            raise DataError(f"writing {self.path}", fault, f"ids below {self.vocab}")
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


# Text files to stores -----------------------------------------------------------------------------

Say = Callable[[str], None]
SETTLED = 2_000_000_000  # ns: a file touched so shortly before the build may change unseen
PIECE = 1 << 12  # characters of one text that encode_batch gets


def silent(text: str) -> None:
    """Say nothing."""


def text_store(
    path: Path | str,
    files: Paths,
    tokenizer: Tokenizer,
    split: Literal["file", "line"] = "file",
    end: int | None = None,
    special: bool = False,
    say: Say = silent,
    progress: Say = silent,
) -> Store:
    """A store of text files and folders: each file a document, or each line that is not empty.

    `end` is an id put after each document; `special` adds what the tokenizer puts around a line.
    """
    sources = find_files(files)
    tail = [] if end is None else [end]

    def write(writer: StoreWriter) -> None:
        for file in sources:
            if split == "file":
                for texts in chunks(smaller(read_pieces(file))):
                    for ids in tokenizer.encode_batch(texts, special=False):
                        writer.extend(ids)
                writer.extend(tail)
                writer.close()
                continue
            for texts in chunks(line for line in read_lines(file) if line.strip()):
                encoded = tokenizer.encode_batch(texts, special=special)
                writer.add([ids + tail for ids in encoded])

    settings = {"split": split, "end": end, "special": special}
    return prepare(path, sources, tokenizer, settings, write, (say, progress))


def pair_store(
    path: Path | str,
    files: Sequence[Path | str | tuple[Path | str, Path | str]],
    tokenizer: Tokenizer,
    say: Say = silent,
    progress: Say = silent,
) -> Store:
    """A store of sentence pairs with two sides: document 2 i is a source, 2 i + 1 its target.

    Each of `files` is a TSV, a folder of them, or a tuple (source file, target file).
    Control tokens are not stored; `Buckets` adds them. Pairs with an empty side are left out.
    """
    couples: list[tuple[Path | str, Path | str | None]] = []
    for file in files:
        couples += [file] if isinstance(file, tuple) else [(one, None) for one in find_files(file)]

    def write(writer: StoreWriter) -> None:
        for source, target in couples:
            pairs = read_pairs(source, target)
            for texts in chunks(pair for pair in pairs if pair[0].strip() and pair[1].strip()):
                left = tokenizer.encode_batch([s for s, _ in texts], special=False)
                right = tokenizer.encode_batch([t for _, t in texts], special=False, side="target")
                writer.add([ids for pair in zip(left, right, strict=True) for ids in pair])

    sources = [Path(file) for couple in couples for file in couple if file is not None]
    return prepare(path, sources, tokenizer, {"sides": 2}, write, (say, progress))


def prepare(
    path: Path | str,
    files: Sequence[Path],
    tokenizer: Tokenizer,
    settings: dict[str, Any],
    write: Callable[[StoreWriter], None],
    tell: tuple[Say, Say],
) -> Store:
    """The store at `path` if it is still right, otherwise a new one.

    `tell` is (say, progress): the first gets the reason, the second the tokens written so far.
    """
    say, progress = tell
    recipe = {"sides": 1, **settings, "tokenizer": fingerprint(tokenizer)}
    reason = why_build(Path(path), files, recipe)
    if reason is None:
        return Store(path)
    say(f"building {path}: {reason}")
    sources = [describe(file) for file in files]
    header = {**recipe, "made": time.time_ns(), "sources": sources}
    with StoreWriter(path, tokenizer.size, header) as writer:
        writer.progress = progress
        write(writer)
        if not writer.tokens:
            names = ", ".join(map(str, files)) or "no files"
            raise DataError("reading a corpus", f"0 tokens in {names}", "at least one text")
        for file, before in zip(files, sources, strict=True):
            if file.stat().st_mtime_ns != before["mtime_ns"]:
                raise DataError("reading a corpus", f"{file} changed while it was read")
    return Store(path)


def why_build(path: Path, files: Sequence[Path], recipe: dict[str, Any]) -> str | None:
    """Why the store must be built, or None."""
    if not path.exists():
        return "it is not there yet"
    try:
        header = read_header(path)
    except DataError as error:
        return error.found
    for name, value in recipe.items():
        if header.get(name) != value:
            other = "another tokenizer" if name == "tokenizer" else f"{name} {header.get(name)!r}"
            return f"it was made with {other}"
    if len(files) != len(header["sources"]):
        return f"it was made from {len(header['sources'])} files, not {len(files)}"
    for file, before in zip(files, header["sources"], strict=True):
        if not file.exists() or has_changed(file, before, header["made"]):
            return f"{file} has changed"
    return None


def has_changed(file: Path, before: dict[str, Any], made: int) -> bool:
    """Whether a source differs; hashed again unless size and time say that it does not."""
    state = file.stat()
    if state.st_size != before["size"]:
        return True
    same_time = state.st_mtime_ns == before["mtime_ns"] < made - SETTLED
    if same_time and str(file.resolve()) == before["path"]:
        return False
    return bool(describe(file)["sha256"] != before["sha256"])


def describe(file: Path) -> dict[str, Any]:
    """Name, size, time and SHA-256 of a source."""
    try:
        state, digest = file.stat(), file_hash(file)
    except OSError as error:
        raise DataError(f"reading {file}", error.strerror or str(error), "a text file") from None
    place, size, time = str(file.resolve()), state.st_size, state.st_mtime_ns
    return {"path": place, "size": size, "mtime_ns": time, "sha256": digest}


def fingerprint(tokenizer: Tokenizer) -> str:
    """SHA-256 of the files that make a tokenizer, and its size."""
    digest = hashlib.sha256(str(tokenizer.size).encode())
    for name, data in sorted(tokenizer.files.items()):
        digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def smaller(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces cut again at blanks, for the tokenizer to spread over its threads."""
    for piece in pieces:
        yield from cut_at_blanks(piece[at : at + PIECE] for at in range(0, len(piece), PIECE))


# Parts of a store ---------------------------------------------------------------------------------


def part_of_stream(store: Store, start: int, stop: int) -> Store:
    """Tokens `start` to `stop` as one document, for `Windows`."""
    part = copy(store)
    part.stream, part.tokens = store.stream[start:stop], stop - start
    part.bounds = store.bounds[:1].copy()
    part.bounds = part.bounds.repeat(2)
    part.bounds[1], part.documents = part.tokens, 1
    return part


def part_of_documents(store: Store, start: int, stop: int) -> Store:
    """Examples `start` to `stop`: documents, or pairs in a store with two sides."""
    part = copy(store)
    part.documents = (stop - start) * store.sides
    part.bounds = store.bounds[start * store.sides : stop * store.sides + 1]
    return part


def hold_out(store: Store, share: float | None, by_tokens: bool) -> tuple[Store, Store | None]:
    """(training part, held-out end); share None: 10 %, of pairs 1 to 5 %, and 0: nothing."""
    if share is not None and not 0 <= share < 1:
        raise UsageError("holding out data", f"a share of {share}", "0 to below 1")
    if share == 0:
        return store, None
    count = store.tokens if by_tokens else len(store)
    if share is not None:
        held = round(count * share)
    elif store.sides == 2:  # 2,000 pairs say enough
        held = max(count // 100, min(count // 20, 2000))
    else:
        held = count - int(count * 0.9)
    held = max(held, 1)
    if held >= count:
        what = "tokens" if by_tokens else "pairs" if store.sides == 2 else "lines"
        raise DataError(
            f"holding out the end of {store.path.name}",
            f"{count} {what}",
            "at least 2",
            "give more data, or --valid, or --holdout 0",
        )
    part = part_of_stream if by_tokens else part_of_documents
    return part(store, 0, count - held), part(store, count - held, count)
