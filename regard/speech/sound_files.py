"""Clips of sound with their classes or transcripts, and what models hear of them.

Files are those of `data/labelled_files.py`. Where there is no such file, `tones` and `tones-test`
are those that regard ships (tools/make_tones.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from regard.data.example_store import Example
from regard.data.labelled_files import LabelledFile, find_labelled
from regard.data.sound import FFT, HOP, kaldi_mel, log_mel, open_sound, read_sound
from regard.errors import DataError
from regard.result import Failed

SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3", ".aif", ".aiff", ".au", ".w64", ".caf"}
SHIPPED = {f.name.split(".")[0]: f for f in Path(__file__).parent.glob("*.tar.xz")}


class Hearing(NamedTuple):
    """What a model reads of a clip."""

    form: str
    """kaldi or whisper: a log-mel picture (1, mels, frames); wave: its samples (1, 1, S), of mean 0
    and deviation 1, raw: as they are."""
    mels: int
    frames: int
    """Of 10 ms; longer clips are cut, shorter ones padded; of samples 0 leaves them as they are."""


def find_clips(paths: Sequence[str]) -> Iterator[LabelledFile]:
    """(name, class, path or open file) of all clips, not decoded."""
    return find_labelled(paths, SUFFIXES, SHIPPED, by_name=True)


def clip_seconds(paths: Sequence[str]) -> Iterator[float]:
    """How long each clip is, by its header; those that cannot be read are named later."""
    for _, _, source in find_clips(paths):
        with suppress(Exception), open_sound(source) as (file, _):  # decoders raise all kinds
            yield file.frames / file.samplerate


def read_samples(paths: Sequence[str]) -> Iterator[Example]:
    """(name, class, samples (S) at 16 kHz) of all clips; of what cannot be read the error."""
    for name, label, source in find_clips(paths):
        try:
            yield name, label, read_sound(source)
        except Exception as error:  # decoders raise all kinds on bytes that are not theirs
            fault = str(getattr(error, "found", error))
            yield name, label, Failed(DataError(f"reading {name}", fault, "a sound"))


def read_clips(paths: Sequence[str], hearing: Hearing) -> Iterator[Example]:
    """What is heard of all clips; of those without sound, or that cannot be read, the error."""
    most = HOP * hearing.frames + FFT if hearing.frames else None  # the last window is longer
    for name, label, samples in read_samples(paths):
        if isinstance(samples, Failed):
            yield name, label, samples
        elif (heard := samples[:most]).any():
            yield name, label, hear(heard, hearing).numpy()
        else:
            yield name, label, Failed(DataError(f"reading {name}", "silence", "a sound"))


def hear(samples: Tensor, hearing: Hearing) -> Tensor:
    """What a model reads of samples (S) at 16 kHz: (1, mels, frames), or (1, 1, S)."""
    form, mels, frames = hearing
    if form == "kaldi":
        return kaldi_mel(samples, mels, frames)[None]
    if form == "whisper":
        return log_mel(samples, mels=mels, frames=frames)[None]
    samples = samples[: HOP * frames or None]
    if form == "wave":
        samples = (samples - samples.mean()) / (samples.var(correction=0) + 1e-7).sqrt()
    longer = HOP * frames - len(samples) if frames else max(0, FFT - len(samples))
    return F.pad(samples, (0, longer))[None, None]
