"""Sound files to samples, samples to a log-mel picture: Whisper's (Radford 2022) or Kaldi's."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import DataError, check_installed

RATE = 16000  # samples a second, as Whisper and wav2vec 2.0 expect
FFT, HOP = 400, 160  # a window of 25 ms every 10 ms
HIGHEST_RATE = 384_000  # above any sound card; bounds the memory of resampling
BLOCK = 1 << 18  # samples of each channel that are read at once
UNKNOWN_SIZE = 0xFFFFFFFF  # written by programs that stream and cannot know the length
SUBTYPES = {"u8": "PCM_U8", "s8": "PCM_S8", "s16le": "PCM_16", "s24le": "PCM_24"}
SUBTYPES |= {"s32le": "PCM_32", "f32le": "FLOAT"}
"""How a sample of raw sound is written, and libsndfile's name of that."""


def log_mel(
    samples: Tensor | np.ndarray, rate: int = RATE, mels: int = 80, frames: int | None = 3000
) -> Tensor:
    """Log-mel picture of mono sound as Whisper computes it: samples (S) to (mels, frames).

    Sound is padded with silence or cut to `frames` of 10 ms; with None its own length is kept.
    """
    x = resample(torch.as_tensor(samples, dtype=torch.float32), rate)
    if frames is None:
        x = F.pad(x, (0, max(0, FFT - len(x))))  # at least one window
    else:
        x = F.pad(x, (0, max(0, frames * HOP - len(x))))[: frames * HOP]
    power = log_power(x, mels, 0, len(x) // HOP)  # Whisper drops the last frame
    return scale_power(power, float(power.max()))


def log_power(samples: Tensor, mels: int, begin: int, end: int) -> Tensor:
    """log10 of the power of some frames of a sound in each mel channel: (mels, end - begin)."""
    first = max(0, begin - 2)  # windows of 25 ms hear what was before
    x = samples[first * HOP : end * HOP + FFT]
    power = mel_power(x, mel_filters(mels), FFT, HOP)[:, begin - first : end - first]
    return power.clamp(min=1e-10).log10()


def scale_power(power: Tensor, peak: float) -> Tensor:
    """The picture of logarithmic powers that Whisper reads: 80 dB below the peak are the floor."""
    return (power.clamp(min=peak - 8.0) + 4.0) / 4.0


def kaldi_mel(samples: Tensor, mels: int = 128, frames: int | None = None) -> Tensor:
    """Log-mel picture of mono sound at 16 kHz as Kaldi and AST compute it: (S) to (mels, frames).

    Windows of 25 ms every 10 ms, each without its mean and with pre-emphasis, under a Hann window;
    triangles on the mel scale itself, from 20 Hz on. Cut, or padded with zeros, to `frames`.
    """
    x = F.pad(samples.double(), (0, max(0, FFT - len(samples)))).unfold(0, FFT, HOP)  # rows of 400
    x = x - x.mean(1, keepdim=True)
    x = x - 0.97 * torch.cat((x[:, :1], x[:, :-1]), 1)
    window = torch.hann_window(FFT, periodic=False, dtype=x.dtype)
    power = torch.fft.rfft(x * window, 512).abs() ** 2
    edges = np.linspace(math.log1p(20 / 700), math.log1p(RATE / 1400), mels + 2)
    left, centre, right = (edges[i : i + mels, None] for i in range(3))
    bins = np.log1p(np.linspace(0.0, RATE / 2, 257) / 700.0)
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    filters = torch.from_numpy(np.maximum(0.0, np.minimum(rising, falling)))
    picture = (filters @ power.T).clamp(min=2.0**-23).log().float()  # (mels, frames)
    return picture if frames is None else F.pad(picture, (0, frames - picture.shape[1]))


def mel_power(x: Tensor, filters: Tensor, fft: int, hop: int, pad: str = "reflect") -> Tensor:
    """Power in each filter at each hop: samples (S) to (mels, 1 + S // hop).

    librosa's own settings are mel_power(x, mel_filters(128, 2048, 22050), 2048, 512, "constant").
    """
    window = torch.hann_window(fft)
    spectrum = torch.stft(x, fft, hop, window=window, pad_mode=pad, return_complex=True)
    return filters @ torch.view_as_real(spectrum).square().sum(-1)  # (fft / 2 + 1, frames)


@lru_cache
def mel_filters(
    mels: int, fft: int = FFT, rate: int = RATE, htk: bool = False, area: bool = True
) -> Tensor:
    """Triangles on Slaney's mel scale or HTK's, as librosa makes them: (mels, fft / 2 + 1).

    With `area` all have the same area, else the same height of one.
    """
    if htk:
        mel = np.linspace(0.0, math.log1p(rate / 1400.0), mels + 2)  # left, centre, right of each
        corners = 700.0 * np.expm1(mel)  # Hz
    else:  # 3 mel for each 200 Hz up to 1 kHz (15 mel), then 27 for each factor of 6.4
        mel = np.linspace(0.0, 15.0 + 27.0 * math.log(rate / 2000.0) / math.log(6.4), mels + 2)
        corners = np.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * 6.4 ** ((mel - 15.0) / 27.0))
    bins = np.linspace(0.0, rate / 2, fft // 2 + 1)
    left, centre, right = (corners[i : i + mels, None] for i in range(3))
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return torch.from_numpy(triangles * (2.0 / (right - left) if area else 1.0)).float()


def resample(samples: Tensor, rate: int, to: int = RATE, zeros: int = 24) -> Tensor:
    """Samples (S) at `rate` as samples at `to`, by a sinc filter under a Hann window."""
    _check_samples(samples, "resampling sound")
    parts = [*resample_blocks([samples], rate, to, zeros)]
    return samples if rate == to else torch.cat(parts)


def resample_blocks(
    blocks: Iterable[Tensor], rate: int, to: int = RATE, zeros: int = 24
) -> Iterator[Tensor]:
    """The same of sound that comes block by block, of which little is held.

    An output lies between two inputs at one of `to / gcd` phases; each phase has its own weights
    (a polyphase filter), reaching `zeros` zero crossings to both sides.
    """
    for given in (rate, to):
        if not 1 <= given <= HIGHEST_RATE:
            raise DataError("resampling sound", f"a rate of {given} Hz", f"1 to {HIGHEST_RATE} Hz")
    if rate == to:
        yield from blocks
        return
    step, phases = rate // math.gcd(rate, to), to // math.gcd(rate, to)
    cutoff = 0.95 * min(1.0, to / rate)  # of the Nyquist frequency of the input
    reach = math.ceil(zeros / cutoff)
    taps = torch.arange(-reach + 1, reach + 1, dtype=torch.float64)  # from the input to the left
    distance = taps - torch.arange(phases)[:, None] / phases  # (phases, taps)
    weights = torch.sinc(cutoff * distance) * torch.cos(math.pi / 2 * distance / reach) ** 2
    weights = (weights / weights.sum(dim=1, keepdim=True)).float()  # a constant stays

    held, first, done = torch.zeros(reach - 1), 0, 0  # the first window that is held; outputs
    for block in chain(blocks, [torch.zeros(reach)]):
        held = torch.cat((held, block))
        windows = held.unfold(0, min(len(taps), len(held)), 1)  # (S, taps), a view
        if len(held) < len(taps):
            continue
        end = -(-(first + len(windows)) * phases // step)
        place = torch.arange(done, end) * step  # in 1 / phases of input
        out = torch.empty(len(place))  # made before the pieces, among which it would lie
        for part, there in zip(place.split(8192), out.split(8192), strict=True):  # indexing copies
            torch.sum(windows[part // phases - first] * weights[part % phases], dim=1, out=there)
        yield out
        held, first, done = held[len(windows) :], first + len(windows), end


@contextmanager
def open_sound(
    path: str | Path | IO[bytes], raw: tuple[int, str] | None = None
) -> Iterator[tuple[Any, Iterator[Tensor]]]:
    """A sound as soundfile opens it, and its mono samples in -1 to 1, in blocks.

    These are the mean of the channels.

    Reads WAV, FLAC and whatever else libsndfile knows (audio extra), or raw mono sound of a rate
    and a format (a key of SUBTYPES); half a file is an error. The path - is stdin; an open file
    will do.
    """
    stdin = str(path) == "-"
    opened = sys.stdin.buffer if stdin else None if isinstance(path, str | Path) else path
    doing = "reading sound from stdin" if stdin else f"reading {path}"
    check_installed("soundfile", "audio", doing)
    import soundfile

    if opened is None and not Path(str(path)).is_file():
        folder = Path(str(path)).is_dir()
        fault, fix = ("a folder", f"{path}/*.wav") if folder else ("no such file", "")
        raise DataError(doing, fault, "a sound file", fix)
    about: dict[str, Any] = {}
    if raw is None and str(path).endswith(".raw"):
        raise DataError(doing, "raw sound, which has no header", "--rate and --format with it")
    if raw is not None:
        subtype = SUBTYPES[raw[1]]
        about = dict(samplerate=raw[0], subtype=subtype, channels=1, format="RAW", endian="LITTLE")
    with TemporaryFile() as copy:
        if opened is not None:  # what comes from a stream has to be sought in
            shutil.copyfileobj(opened, copy)
            copy.seek(0)
        try:
            with soundfile.SoundFile(copy if opened else str(path), **about) as file:
                cut = re.search(r"^data : (\d+) \(should be (\d+)\)", file.extra_info, re.MULTILINE)
                if cut and int(cut[1]) != UNKNOWN_SIZE:
                    fault = f"{int(cut[2]):,} bytes of sound where its header says {int(cut[1]):,}"
                    raise DataError(doing, fault, "a whole file", "copy or convert the file again")
                means = (
                    block.mean(axis=1, dtype=np.float64)
                    for block in file.blocks(BLOCK, always_2d=True, dtype="float32")
                )
                blocks = (torch.from_numpy(mean).float() for mean in means)
                yield file, (_check_samples(block, doing) for block in blocks)
        except soundfile.SoundFileError as error:
            fault = getattr(error, "error_string", str(error))  # without the name of the file
            raise DataError(doing, fault, "a sound file, such as WAV or FLAC") from error


def read_sound(path: str | Path | IO[bytes], raw: tuple[int, str] | None = None) -> Tensor:
    """Samples (S) at 16 kHz of sound of any length, which lie in a file and not in memory.

    The file has no name, and goes with the last one that looks at it.
    """
    with open_sound(path, raw) as (file, blocks), TemporaryFile() as spool:
        for part in resample_blocks(blocks, file.samplerate):
            spool.write(part.numpy().tobytes())
        if not spool.tell():
            raise DataError(f"reading {path}", "no samples", "one or more")
        spool.flush()
        return torch.from_numpy(np.memmap(spool, np.float32, "r+"))


def _check_samples(samples: Tensor, doing: str) -> Tensor:
    if samples.ndim != 1 or len(samples) == 0:
        fault = "no samples" if samples.ndim == 1 else f"samples of shape {tuple(samples.shape)}"
        raise DataError(doing, fault, "one or more, mono")
    if not samples.isfinite().all():
        raise DataError(doing, "a sample that is infinite or not a number", "finite samples")
    return samples
