"""Text files → token store, once; built again when the tokenizer or the files have changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from regard.data.files import Paths, chunks, cut_at_blanks, find_files, read_lines, read_pieces
from regard.data.pairs import read_pairs
from regard.data.store import Store, Writer, read_header
from regard.errors import DataError
from regard.files import file_hash
from regard.tokens.tokenizer import Tokenizer

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

    def write(writer: Writer) -> None:
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
        found = [file] if isinstance(file, tuple) else [(one, None) for one in find_files(file)]
        couples += found

    def write(writer: Writer) -> None:
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
    write: Callable[[Writer], None],
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
    with Writer(path, tokenizer.size, header) as writer:
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
            made = "another tokenizer" if name == "tokenizer" else f"{name} {header.get(name)!r}"
            return f"it was made with {made}"
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
