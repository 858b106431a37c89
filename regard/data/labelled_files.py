"""Files with their classes, pictures or clips of sound, out of folders, tar archives and lists.

The class of a file is the folder that it lies in, on disk or in an archive. Lists are CSV, TSV or
JSONL with a column of files and one of labels or transcripts: of files beside the list, or of those
in the archives and folders that are given with it. Where there is a list, of folders and archives
only what lists name is read, and files that are given by themselves.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.labelled_texts import TABLES, bare_columns, first_of
from regard.data.tabular import check_columns, kind_of, read_table
from regard.data.text_files import find_files
from regard.errors import DataError

ARCHIVE = re.compile(r"\.(tar(\.\w+)?|tgz|txz)$", re.IGNORECASE)
FILE = ("file", "path", "filename", "file_name", "image", "audio")
ANSWER = ("label", "labels", "class", "category", "transcript", "transcription", "text", "sentence")
"""Columns of a list; the first that is there."""
LabelledFile = tuple[str, str, Any]
"""Name, class, and a path or an open file, which may be closed when the next is asked for."""


def find_labelled(
    paths: Sequence[str],
    suffixes: Collection[str],
    shipped: Mapping[str, Path],
    by_name: bool = False,
) -> Iterator[LabelledFile]:
    """All files of these endings, not opened, in the order of their names.

    `shipped` are those that regard brings, by names for which there is no file. A file of a list
    that is nowhere comes last, as a path that does not exist. With `by_name` the class of a file
    that lies in no folder below the one that is given is what its name has before the first _
    (7_jackson_0.flac: 7).
    """
    roots = [
        shipped.get(Path(path).name, Path(path)) if not Path(path).exists() else Path(path)
        for path in paths
    ]
    files = [(root, file) for root in roots for file in find_files(root)]
    tables = [file for _, file in files if kind_of(file) in TABLES]
    listed, found = dict[str, tuple[str, str]](), set[str]()
    for table in tables:
        names = bare_columns(table, *FILE, *ANSWER) and [FILE[0], ANSWER[0]]
        for line, cells in read_table(table, names=names):
            columns = [first_of(some, cells, some[0]) for some in (FILE, ANSWER)]
            check_columns(table, columns, cells, line)
            name, label = (str(cells[column]) for column in columns)
            if (table.parent / name).is_file():
                yield name, label, table.parent / name
            else:
                listed[name] = label, f"{name}, line {line} of {table}"
    for root, file in files:
        members: Any = ()
        if ARCHIVE.search(file.name):
            members = read_archive(file, suffixes)
        elif file not in tables and (file == root or file.suffix.lower() in suffixes):
            members = [(str(file), "" if root in (file, file.parent) else file.parent.name, file)]
        for name, folder, source in members:
            own = Path(name.rpartition(": ")[2])
            begin, mark, _ = own.stem.partition("_")
            usual = folder or (begin if mark and by_name else own.resolve().parent.name)
            if not tables or source == root:
                yield name, usual, source
            elif (key := next((k for k in (str(own), own.name) if k in listed), None)) is not None:
                found.add(key)
                yield name, listed[key][0], source
    for name, (label, place) in listed.items():
        if name not in found:
            yield place, label, Path(name)


def read_archive(path: Path, suffixes: Collection[str]) -> Iterator[LabelledFile]:
    """The files of these endings of a tar archive, compressed or not."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name)
                if member.isfile() and name.suffix.lower() in suffixes:
                    yield f"{path}: {name}", name.parent.name, archive.extractfile(member)
    except Exception as error:  # tar, lzma and zlib have no class in common
        raise DataError(f"reading {path}", str(error), "a whole tar archive") from None
