"""Clips of sound with their classes or transcripts, out of folders, tar archives and lists.

The class of a clip is the folder that it lies in, below the folder or archive that is given; of one
that lies in none, what its name has before the first _ (7_jackson_0.flac: 7), else the folder's
name. Lists are CSV, TSV or JSONL with a column of files and one of labels or transcripts: of files
beside the list, or of clips in the archives and folders that are given with it, of which then only
those on the list are read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch.nn import functional as F

from regard.data.example_store import Example
from regard.data.labelled_texts import TABLES
from regard.data.sound import FFT, HOP, kaldi_mel, log_mel, read_sound, resample
from regard.data.tabular import check_columns, kind_of, read_table
from regard.data.text_files import find_files
from regard.data.token_store import Say
from regard.errors import DataError
from regard.vision.picture_files import ARCHIVE, read_archive

SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3", ".aif", ".aiff", ".au", ".w64", ".caf"}
FILE = ("file", "path", "filename", "file_name", "audio")
ANSWER = ("label", "labels", "class", "category", "transcript", "transcription", "text", "sentence")
"""Columns of a list; the first that is there."""


class Hearing(NamedTuple):
    """What a model reads of a clip."""

    form: str
    """kaldi or whisper: a log-mel picture (1, mels, frames); wave: its samples (1, 1, S)."""
    mels: int
    frames: int
    """Of 10 ms; longer clips are cut, shorter ones padded; of a wave 0 leaves them as they are."""


def find_clips(paths: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """(name, class, path or open file) of all clips, not decoded; a list decides for the others."""
    shipped = {path: Path(__file__).with_name(f"{Path(path).name}.tar.xz") for path in paths}
    roots = [
        s if s.exists() and not Path(path).exists() else Path(path) for path, s in shipped.items()
    ]
    files, listed = [(root, file) for root in roots for file in find_files(root)], dict[str, str]()
    lists = False
    for _, table in files:
        for row in read_table(table) if kind_of(table) in TABLES else ():
            columns = [
                next((c for c in some if c in row.cells), some[0]) for some in (FILE, ANSWER)
            ]
            check_columns(table, columns, row.cells, row.line)
            lists, (name, label) = True, (str(row.cells[column]) for column in columns)
            if (table.parent / name).is_file():
                yield name, label, table.parent / name
            else:
                listed[name] = label
    for root, file in files:
        members: Any = ()
        if ARCHIVE.search(file.name):
            members = read_archive(file, SUFFIXES)
        elif kind_of(file) not in TABLES and (file == root or file.suffix.lower() in SUFFIXES):
            inside = file.parent.name if file.parent != root and file != root else ""
            members = [(str(file), inside, file)]
        for name, folder, source in members:
            own = Path(name.rpartition(": ")[2])
            begin, mark, _ = own.stem.partition("_")
            usual = folder or (begin if mark else own.resolve().parent.name)
            if not lists:
                yield name, usual, source
            elif (key := next((k for k in (str(own), own.name) if k in listed), None)) is not None:
                yield name, listed[key], source


def clip_seconds(paths: Sequence[str]) -> Iterator[float]:
    """How long each clip is, by its header; those without one are named when they are read."""
    import soundfile

    for _, _, source in find_clips(paths):
        try:
            opened = source if isinstance(source, Path) else io.BytesIO(source.read())
            yield float(soundfile.info(opened).duration)
        except Exception:  # decoders raise all kinds on bytes that are not theirs
            continue


def read_clips(paths: Sequence[str], hearing: Hearing, say: Say) -> Iterator[Example]:
    """What is heard of all clips; those without sound, or that cannot be read, are left out."""
    form, mels, frames = hearing
    for name, label, source in find_clips(paths):
        try:
            samples = resample(*read_sound(source))
            if not samples.any():
                raise DataError("", "silence", "")
        except Exception as error:  # decoders raise all kinds on bytes that are not theirs
            say(f"warning: left out {name}: {getattr(error, 'found', error)}")
            continue
        if form == "kaldi":
            picture = kaldi_mel(samples, mels, frames)
        elif form == "wave":
            x = (samples - samples.mean()) / (samples.var(correction=0) + 1e-7).sqrt()
            picture = F.pad(x, (0, HOP * frames - len(x) if frames else max(0, FFT - len(x))))[None]
        else:
            picture = log_mel(samples, mels=mels, frames=frames)
        yield name, label, picture[None].numpy()
