"""Sound files to samples, samples to Whisper's log-mel picture (Radford et al. 2022)."""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import DataError, RegardError

RATE = 16000  # samples a second, as Whisper and wav2vec 2.0 expect
FFT, HOP = 400, 160  # a window of 25 ms every 10 ms
HIGHEST_RATE = 384_000  # above any sound card; bounds the memory of resampling
UNKNOWN_SIZE = 0xFFFFFFFF  # written by programs that stream and cannot know the length
KINDS = {  # (format tag, bits) -> how numpy reads a sample, and the value of full scale
    (1, 8): ("u1", 2.0**7),
    (1, 16): ("<i2", 2.0**15),
    (1, 24): ("<i4", 2.0**31),  # widened to 32 bits first
    (1, 32): ("<i4", 2.0**31),
    (3, 32): ("<f4", 1.0),
    (3, 64): ("<f8", 1.0),
}


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
    window = torch.hann_window(FFT)
    spectrum = torch.stft(x, FFT, HOP, window=window, return_complex=True)  # (201, frames + 1)
    power = spectrum[:, :-1].abs() ** 2  # Whisper drops the last frame
    picture = (mel_filters(mels) @ power).clamp(min=1e-10).log10()  # (mels, frames)
    return (picture.clamp(min=float(picture.max()) - 8.0) + 4.0) / 4.0


@lru_cache
def mel_filters(mels: int, fft: int = FFT, rate: int = RATE) -> Tensor:
    """Triangles of equal area on Slaney's mel scale, as librosa makes them: (mels, fft / 2 + 1)."""
    corners = _hertz(np.linspace(0.0, _mel(rate / 2), mels + 2))  # left, centre, right of each
    bins = np.linspace(0.0, rate / 2, fft // 2 + 1)
    left, centre, right = (corners[i : i + mels, None] for i in range(3))
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return torch.from_numpy(2.0 / (right - left) * triangles).float()


# Slaney's scale: 3 mel for each 200 Hz up to 1 kHz (15 mel), then 27 mel for each factor of 6.4.
def _mel(hertz: float) -> float:
    if hertz < 1000.0:
        return hertz * 3.0 / 200.0
    return 15.0 + 27.0 * math.log(hertz / 1000.0) / math.log(6.4)


def _hertz(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * 6.4 ** ((mel - 15.0) / 27.0))


def resample(samples: Tensor, rate: int, to: int = RATE, zeros: int = 24) -> Tensor:
    """Samples (S) at `rate` as samples at `to`, by a sinc filter under a Hann window.

    An output lies between two inputs at one of `to / gcd` phases; each phase has its own weights
    (a polyphase filter), reaching `zeros` zero crossings to both sides.
    """
    _check_samples(samples, "resampling sound")
    for given in (rate, to):
        if not 1 <= given <= HIGHEST_RATE:
            raise DataError("resampling sound", f"a rate of {given} Hz", f"1 to {HIGHEST_RATE} Hz")
    if rate == to:
        return samples
    step, phases = rate // math.gcd(rate, to), to // math.gcd(rate, to)
    cutoff = 0.95 * min(1.0, to / rate)  # of the Nyquist frequency of the input
    reach = math.ceil(zeros / cutoff)
    taps = torch.arange(-reach + 1, reach + 1, dtype=torch.float64)  # from the input to the left
    distance = taps - torch.arange(phases)[:, None] / phases  # (phases, taps)
    weights = torch.sinc(cutoff * distance) * torch.cos(math.pi / 2 * distance / reach) ** 2
    weights = (weights / weights.sum(dim=1, keepdim=True)).to(samples.dtype)  # a constant stays

    place = torch.arange(math.ceil(len(samples) * phases / step)) * step  # in 1 / phases of input
    windows = F.pad(samples, (reach - 1, reach)).unfold(0, len(taps), 1)  # (S, taps), a view
    pieces = [  # in pieces, since indexing copies
        (windows[part // phases] * weights[part % phases]).sum(dim=1)
        for part in torch.split(place, 8192)
    ]
    return torch.cat(pieces)


def read_sound(path: str | Path) -> tuple[Tensor, int]:
    """Mono samples (S) in -1 to 1 and their rate, from WAV, or from FLAC with the audio extra."""
    with _open(path) as file:
        magic = file.read(4)
    if magic in (b"RIFF", b""):
        return read_wav(path)
    doing = f"reading {path}"
    try:
        import soundfile
    except ImportError as error:
        fix = "pip install 'regard[audio]', or convert the file to WAV"
        raise RegardError(doing, "not a WAV file, and soundfile is missing", fix=fix) from error
    try:
        samples, rate = soundfile.read(str(path), dtype="float32", always_2d=True)  # (S, channels)
    except RuntimeError as error:
        raise DataError(doing, f"at byte 0: {error}", "a WAV or FLAC file") from error
    return _mono(samples, doing), int(rate)


def read_wav(path: str | Path) -> tuple[Tensor, int]:
    """Mono samples (S) in -1 to 1 and their rate, from PCM (8 to 32 bits) or float WAV."""
    doing = f"reading {path}"
    with _open(path) as file:
        end = file.seek(0, 2)
        file.seek(0)
        head = file.read(12)
        if len(head) < 12 or head[:4] != b"RIFF" or head[8:] != b"WAVE":
            raise DataError(doing, f"at byte 0: {head!r}", "RIFF....WAVE", "convert it to WAV")
        kind = None
        while file.tell() + 8 <= end:
            offset = file.tell()
            name, size = struct.unpack("<4sI", file.read(8))
            if name == b"data" and size == UNKNOWN_SIZE:
                size = end - offset - 8
            if offset + 8 + size > end:
                found = f"at byte {offset}: chunk {name!r} of {size} bytes in a file of {end}"
                raise DataError(doing, found, "a whole file", "copy or convert the file again")
            if name == b"fmt ":
                kind = _format(file.read(min(size, 40)), offset, doing)
            if name == b"data":
                if kind is None:
                    raise DataError(doing, f"at byte {offset}: data before its format", "fmt first")
                dtype, scale, channels, rate, width = kind
                return _mono(_decode(file.read(size), dtype, scale, channels, width), doing), rate
            file.seek(offset + 8 + size + size % 2)  # chunks start at even bytes
        raise DataError(doing, f"at byte {file.tell()}: the file ends", "a data chunk")


def _format(body: bytes, offset: int, doing: str) -> tuple[str, float, int, int, int]:
    """The dtype, full scale, channels, rate and bytes a sample of a fmt chunk."""
    where = f"at byte {offset}: "
    if len(body) < 16:
        raise DataError(doing, f"{where}a format of {len(body)} bytes", "16 or more")
    tag, channels, rate, _, block, bits = struct.unpack("<HHIIHH", body[:16])
    if tag == 0xFFFE and len(body) >= 26:  # extensible: the tag proper opens a longer identifier
        (tag,) = struct.unpack("<H", body[24:26])
    if (tag, bits) not in KINDS:
        found = f"{where}format {tag} with {bits} bits"
        raise DataError(doing, found, "PCM of 8, 16, 24 or 32 bits, or float", "convert it to PCM")
    if channels < 1 or block != channels * bits // 8 or not 1 <= rate <= HIGHEST_RATE:
        found = f"{where}{channels} channels in {block} bytes at {rate} Hz"
        raise DataError(doing, found, "a format that agrees with itself")
    return *KINDS[tag, bits], channels, rate, bits // 8


def _decode(raw: bytes, dtype: str, scale: float, channels: int, width: int) -> np.ndarray:
    """Bytes to samples (S, channels); an unfinished last sample is dropped."""
    raw = raw[: len(raw) - len(raw) % (channels * width)]
    if width == 3:  # put each sample into the upper three of four bytes
        wide = np.zeros((len(raw) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 3)
        raw = wide.tobytes()
    values = np.frombuffer(raw, dtype=dtype).reshape(-1, channels) / scale
    return values - 1.0 if width == 1 else values  # 8-bit samples are unsigned


def _mono(samples: np.ndarray, doing: str) -> Tensor:
    """The mean over channels, in float32."""
    mixed = torch.from_numpy(samples.mean(axis=1, dtype=np.float64)).float()
    _check_samples(mixed, doing)
    return mixed


def _check_samples(samples: Tensor, doing: str) -> None:
    if samples.ndim != 1 or len(samples) == 0:
        raise DataError(doing, f"samples of shape {tuple(samples.shape)}", "one or more, mono")
    if not samples.isfinite().all():
        raise DataError(doing, "a sample that is infinite or not a number", "finite samples")


def _open(path: str | Path) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise DataError(f"reading {path}", error.strerror or str(error), "a sound file") from error
