"""A store of token ids on disk, read through memory maps, for corpora larger than memory.

It is a folder of plain arrays, little-endian: `ids` (uint16 or uint32), `bounds` (int64, where each
document begins and the last one ends), and header.json. It is written under another name and then
renamed: half a store never opens as a whole one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.data import text_files
from regard.data.order import Counts
from regard.data.pairs import couples, read_pairs
from regard.data.text_files import Paths, chunks, find_files
from regard.errors import DataError
from regard.files import drafting, file_hash, read_json
from regard.tokens.tokenizer import Tokenizer

IDS, BOUNDS, HEADER = "ids", "bounds", "header.json"
Say = Callable[[str], None]
Documents = tuple[Sequence[Sequence[int]], bool]
"""Documents as ids; whether the last one goes on with the first of the next ones."""


def silent(text: str) -> None:
    """Say nothing."""


def write_store(
    path: Path,
    vocab: int,
    header: dict[str, Any],
    batches: Iterable[Documents],
    progress: Say = silent,
) -> Store:
    """Write documents in one pass; ids and bounds go to disk as they come."""
    kind, tokens = np.dtype("<u2" if vocab <= 2**16 else "<u4"), 0
    needed = "two bytes a token (four when the vocabulary passes 65,536) and 8 a document"
    with drafting(path, needed) as draft:
        with (draft / IDS).open("wb") as out, (draft / BOUNDS).open("wb") as bounds:
            bounds.write(bytes(8))
            for documents, goes_on in batches:
                sizes = np.fromiter(map(len, documents), "<i8", len(documents))
                ids = np.fromiter(chain.from_iterable(documents), np.int64, int(sizes.sum()))
                if len(ids) and not 0 <= ids.min() <= ids.max() < vocab:
                    fault = f"ids from {ids.min()} to {ids.max()}"
                    raise DataError(f"writing {path}", fault, f"ids below {vocab}")
                out.write(ids.astype(kind).tobytes())
                ends = tokens + sizes.cumsum()
                bounds.write((ends[:-1] if goes_on else ends).tobytes())
                tokens += len(ids)
                progress(f"{tokens:,} tokens")
        if not tokens:
            names = ", ".join(header.get("hashes", {}))
            raise DataError("reading a corpus", f"0 tokens in {names}", "at least one text")
        (draft / HEADER).write_text(json.dumps({"dtype": kind.str, **header}), "utf-8")
    return Store(path)


class Store:
    """Token ids of many documents, one stream with bounds; read when asked for."""

    def __init__(self, path: Path | str) -> None:
        self.path, self.header = Path(path), read_json(Path(path, HEADER), "a token store")
        self.sides: int = self.header.get("sides", 1)
        try:
            self.stream: NDArray[Any] = map_file(self.path / IDS, self.header["dtype"])
            self.bounds: Counts = map_file(self.path / BOUNDS, "<i8")
        except (OSError, ValueError) as error:
            raise DataError(f"opening the token store {path}", str(error), "a whole one") from None
        self.tokens, self.documents = len(self.stream), len(self.bounds) - 1
        if self.bounds[-1] != self.tokens:
            fault = f"{self.tokens:,} ids and bounds up to {self.bounds[-1]:,}"
            raise DataError(f"opening the token store {path}", fault, "a whole one")

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


def map_file(path: Path, kind: Any) -> NDArray[Any]:
    """A read-only map as a plain array, whose slices are quicker than those of np.memmap."""
    return np.memmap(path, np.dtype(kind), "r").view(np.ndarray)


# Text files to stores -----------------------------------------------------------------------------

PIECE = 1 << 12  # characters of one text that encode_batch gets


def text_store(
    path: Path | str,
    files: Paths,
    tokenizer: Tokenizer,
    split: Literal["file", "line"] = "file",
    end: int | None = None,
    special: bool = False,
    tell: tuple[Say, Say] = (silent, silent),
) -> Store:
    """A store of text files and folders: each file a document, or each line that is not empty.

    `end` is an id put after each document; `special` adds what the tokenizer puts around a line.
    """
    sources = find_files(files)
    tail = [] if end is None else [end]

    def read() -> Iterator[Documents]:
        for file in sources:
            if split == "file":
                for texts in chunks(smaller(text_files.read_pieces(file))):
                    yield (
                        [[*chain.from_iterable(tokenizer.encode_batch(texts, special=False))]],
                        True,
                    )
                yield [tail], False
                continue
            for texts in chunks(line for line in text_files.read_lines(file) if line.strip()):
                yield [ids + tail for ids in tokenizer.encode_batch(texts, special=special)], False

    settings = {"split": split, "end": end, "special": special}
    return prepare(path, sources, tokenizer, settings, read(), tell)


def pair_store(
    path: Path | str,
    files: Sequence[Path | str],
    tokenizer: Tokenizer,
    tell: tuple[Say, Say] = (silent, silent),
    same: bool = False,
) -> Store:
    """A store of sentence pairs with two sides: document 2 i is a source, 2 i + 1 its target.

    The files are TSVs, folders of them, or two others: sources and targets; or with `same` texts,
    of which each line is a pair of itself.
    Control tokens are not stored; `Buckets` adds them. A source whose tokenizer is its own is
    stored with what that puts around it. Pairs with an empty side are left out.
    """
    special = tokenizer.of("source") is not tokenizer
    sides = [(file, file) for file in find_files(files)] if same else couples(files)

    def read() -> Iterator[Documents]:
        for source, target in sides:
            pairs = read_pairs(source, target)
            for texts in chunks(pair for pair in pairs if pair[0].strip() and pair[1].strip()):
                left = tokenizer.encode_batch([s for s, _ in texts], special=special)
                right = tokenizer.encode_batch([t for _, t in texts], special=False, side="target")
                yield [ids for pair in zip(left, right, strict=True) for ids in pair], False

    sources = [file for couple in sides for file in couple if file is not None]
    settings = {"sides": 2} | ({"special": True} if special else {})
    return prepare(path, sources, tokenizer, settings, read(), tell)


def prepare(
    path: Path | str,
    files: Sequence[Path],
    tokenizer: Tokenizer,
    settings: dict[str, Any],
    batches: Iterator[Documents],
    tell: tuple[Say, Say],
) -> Store:
    """The store at `path` if it was made so and its sources have not changed, otherwise a new one.

    `tell` is (say, progress): the first gets the reason, the second the tokens written so far.
    """
    say, progress = tell
    sources = [(str(file.resolve()), file.stat()) for file in files]
    recipe: dict[str, Any] = {
        **settings,
        "tokenizer": fingerprint(tokenizer),
        "sources": [[name, state.st_size, state.st_mtime_ns] for name, state in sources],
    }
    reason = why_build(Path(path), recipe)
    if reason is None:
        return Store(path)
    say(f"building {path}: {reason}")
    hashes = {name: file_hash(name) for name, _ in sources}
    size = max(tokenizer.size, tokenizer.of("source").size)
    return write_store(Path(path), size, recipe | {"hashes": hashes}, batches, progress)


def why_build(path: Path, recipe: dict[str, Any]) -> str | None:
    """Why a store must be built, or None where it was made so from files that are still so."""
    if not path.exists():
        return "it is not there yet"
    try:
        header = Store(path).header
    except DataError as error:
        return error.found
    changed = [name for name, value in recipe.items() if header.get(name) != value]
    return f"{changed[0]} changed" if changed else None


def fingerprint(tokenizer: Tokenizer) -> str:
    """SHA-256 of the files that make a tokenizer, and its size."""
    digest = hashlib.sha256(str(tokenizer.size).encode())
    for name, data in sorted(tokenizer.files.items()):
        digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def smaller(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces cut again at blanks, for the tokenizer to spread over its threads."""
    for piece in pieces:
        yield from text_files.cut_at_blanks(
            piece[at : at + PIECE] for at in range(0, len(piece), PIECE)
        )


def hold_out(store: Store, share: float | None, by_tokens: bool) -> tuple[Store, Store | None]:
    """(training part, held-out end); share None: 10 %, of pairs 1 to 5 %, and 0: nothing.

    Of tokens each part is one document, for `Windows`; of examples, whole documents or pairs.
    """
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
        doing, fault = f"holding out the end of {store.path.name}", f"{count} {what}"
        raise DataError(doing, fault, "at least 2", "give more data, or --valid, or --holdout 0")
    parts = copy(store), copy(store)
    for part, start, stop in zip(parts, (0, count - held), (count - held, count), strict=True):
        if by_tokens:
            part.stream, part.tokens = store.stream[start:stop], stop - start
            part.bounds = np.array([0, part.tokens])
        else:
            part.bounds = store.bounds[start * store.sides : stop * store.sides + 1]
        part.documents = len(part.bounds) - 1
    return parts
