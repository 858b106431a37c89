"""Sound files, resampling and Whisper's log-mel, against transformers, wave and soundfile."""

from __future__ import annotations

import struct
import subprocess
import sys
import wave

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ASTFeatureExtractor, WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from regard.data.sound import (
    kaldi_mel,
    log_mel,
    log_power,
    mel_filters,
    mel_power,
    open_sound,
    read_sound,
    resample,
    resample_blocks,
    scale_power,
)
from regard.errors import DataError, RegardError


def tone(hertz, rate=16000, seconds=1.0, amplitude=0.5):
    time = torch.arange(int(rate * seconds), dtype=torch.float64) / rate
    return (amplitude * torch.sin(2 * torch.pi * hertz * time)).float()


def noise(length, seed=0):
    return torch.randn(length, generator=torch.Generator().manual_seed(seed)) * 0.1


def chunk(name, body):
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def wav(raw, tag=1, channels=1, rate=16000, bits=16, before=b""):
    block = channels * bits // 8
    head = struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, bits)
    body = b"WAVE" + chunk(b"fmt ", head) + before + chunk(b"data", raw)
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.fixture
def written(tmp_path):
    def write(content, name="sound.wav"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


# Log-mel


@pytest.mark.filterwarnings("ignore:At least one mel filter")
@pytest.mark.parametrize(("mels", "length"), [(128, 16000), (40, 4321), (80, 400), (128, 250)])
def test_kaldi_mel_against_transformers(mels, length):
    theirs = ASTFeatureExtractor(num_mel_bins=mels, max_length=50, do_normalize=False)
    sound = noise(length) + 0.2 + tone(440)[:length]
    expected = theirs(torch.nn.functional.pad(sound, (0, max(0, 400 - length))).numpy(), 16000)
    expected = torch.as_tensor(np.array(expected["input_values"][0])).float().T
    torch.testing.assert_close(kaldi_mel(sound, mels, 50), expected, atol=1e-4, rtol=0)
    assert kaldi_mel(sound, mels).shape == (mels, 1 + max(0, length - 400) // 160)


@pytest.mark.parametrize("mels", [80, 128])
def test_filters_against_librosa_formula(mels):
    options = {"norm": "slaney", "mel_scale": "slaney", "sampling_rate": 16000}
    expected = mel_filter_bank(201, mels, 0.0, 8000.0, **options).T
    torch.testing.assert_close(mel_filters(mels), torch.from_numpy(expected).float())


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("length", [1, 399, 16000, 23457, 480000, 500001])
def test_log_mel_against_whisper(mels, length):
    samples = noise(length) + tone(440.0, seconds=32)[:length]
    whisper = WhisperFeatureExtractor(feature_size=mels)
    expected = whisper(samples.numpy(), sampling_rate=16000, return_tensors="pt").input_features[0]
    found = log_mel(samples, mels=mels)
    assert found.shape == (mels, 3000) and found.dtype == torch.float32
    assert (found - expected).abs().max() < 1e-4


def test_log_mel_of_numpy_and_own_length():
    samples = noise(16000)
    found = log_mel(samples.numpy(), frames=None)
    whisper = WhisperFeatureExtractor()
    options = {"sampling_rate": 16000, "return_tensors": "pt", "padding": False}
    expected = whisper(samples.numpy(), **options).input_features[0]
    assert found.shape == (80, 100) and (found - expected).abs().max() < 1e-4
    assert log_mel(noise(10), frames=None).shape == (80, 2)
    assert log_mel(noise(16000), frames=50).shape == (80, 50)


def test_silence_is_finite_and_flat():
    found = log_mel(torch.zeros(16000))
    assert (found == found[0, 0]).all() and found[0, 0] == pytest.approx(-1.5)


@pytest.mark.parametrize("hertz", [1000.0, 3520.0, 6000.0])
def test_tone_peaks_in_the_filter_that_holds_it(hertz):
    found = log_mel(tone(hertz), frames=None)[:, 50]
    assert int(found.argmax()) == int(mel_filters(80)[:, round(hertz / 40)].argmax())


def test_ten_times_louder_adds_two_decades_before_scaling():
    x = noise(16000)
    difference = log_mel(10 * x, frames=None) - log_mel(x, frames=None)
    torch.testing.assert_close(difference, torch.full_like(difference, 2.0 / 4.0))


def test_log_mel_resamples():
    whole, half = log_mel(tone(440.0)), log_mel(tone(440.0, rate=8000), rate=8000)
    loud = whole > 0.0
    assert loud.any() and (whole - half)[loud].abs().max() < 0.2


@pytest.mark.parametrize("samples", [torch.zeros(0), torch.zeros(2, 9), torch.tensor([torch.nan])])
def test_log_mel_refuses_what_is_no_sound(samples):
    with pytest.raises(DataError):
        log_mel(samples)


# Resampling


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 44101])
@pytest.mark.parametrize("hertz", [100.0, 440.0, 3000.0])
def test_a_sine_stays_the_same_sine(rate, hertz):
    found = resample(tone(hertz, rate), rate)
    expected = tone(hertz)
    assert found.shape == expected.shape
    middle = slice(1000, -1000)  # the ends hear the silence outside
    assert (found - expected)[middle].abs().max() < 1e-3
    assert int(torch.fft.rfft(found).abs().argmax()) == int(hertz)


def test_what_16_khz_cannot_hold_is_removed():
    found = resample(tone(12000.0, 44100), 44100)
    assert found[1000:-1000].abs().max() < 1e-3  # unfiltered it would return at 4 kHz


@settings(max_examples=30, deadline=None)
@given(rate=st.integers(1000, 50000), length=st.integers(1, 400))
def test_length_and_finiteness_at_any_rate(rate, length):
    found = resample(noise(length), rate)
    assert len(found) == -(-length * 16000 // rate) and found.isfinite().all()


def test_constant_and_same_rate_are_kept():
    middle = resample(torch.ones(4000), 22050)[500:-500]
    torch.testing.assert_close(middle, torch.ones_like(middle))
    x = noise(100)
    assert resample(x, 16000) is x


@pytest.mark.parametrize("rate", [0, -1, 10**9])
def test_absurd_rate(rate):
    with pytest.raises(DataError, match="Hz"):
        resample(noise(10), rate)


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 192000])
@pytest.mark.parametrize("size", [1, 50, 1000])
def test_blocks_of_any_size_are_resampled_as_the_whole(rate, size):
    x = noise(2600)
    found = torch.cat([*resample_blocks(x.split(size), rate)])
    torch.testing.assert_close(found, resample(x, rate), atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [16000, 16001, 16159, 16320])
def test_powers_of_some_frames_are_those_of_the_whole(length):
    x = noise(length)
    whole, frames = log_mel(x, frames=None), length // 160
    for begin, end in ((0, 40), (1, 2), (37, 61), (frames - 1, frames)):
        part = scale_power(log_power(x, 80, begin, end), float(log_power(x, 80, 0, frames).max()))
        torch.testing.assert_close(part, whole[:, begin:end], atol=1e-5, rtol=0)


# Files


def read_blocks(path):
    """Samples and their rate, as they are in a file."""
    with open_sound(path) as (file, blocks):
        return torch.cat([*blocks]), file.samplerate


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_pcm_against_the_standard_library(bits, tmp_path):
    path = tmp_path / "pcm.wav"
    width, full = bits // 8, 2 ** (bits - 1)
    values = [-full, -1, 0, 1, full // 2, full - 1]
    shift = full if bits == 8 else 0
    raw = [(v + shift).to_bytes(width, "little", signed=bits > 8) for v in values]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(22050)
        file.writeframes(b"".join(raw))
    samples, rate = read_blocks(path)
    assert rate == 22050 and samples.dtype == torch.float32
    torch.testing.assert_close(samples, torch.tensor(values).double().div(full).float())


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("form", ["WAV", "WAVEX"])
def test_stereo_against_soundfile(subtype, form, tmp_path):
    path = tmp_path / "stereo.wav"
    stereo = torch.stack([tone(440.0), 0.3 * tone(660.0)], dim=1).numpy()
    soundfile.write(path, stereo, 44100, subtype=subtype, format=form)
    expected, _ = soundfile.read(path, dtype="float64")
    samples, rate = read_blocks(path)
    assert rate == 44100
    np.testing.assert_allclose(samples.numpy(), expected.mean(axis=1), atol=1e-7)


def test_flac_through_soundfile(tmp_path):
    path = tmp_path / "sound.flac"
    soundfile.write(path, tone(440.0).numpy(), 16000)
    samples, rate = read_blocks(path)
    assert rate == 16000 and (samples - tone(440.0)).abs().max() < 1e-4


def test_without_the_extra_it_says_what_to_install(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(RegardError, match="regard\\[audio\\]"):
        read_sound(written(b"fLaC" + b"\0" * 40, "a.flac"))


def test_other_chunks_odd_sizes_and_streams(written):
    raw = struct.pack("<2h", 16384, -16384)
    path = written(wav(raw, before=chunk(b"LIST", b"odd")))
    assert read_blocks(path)[0].tolist() == [0.5, -0.5]
    streamed = wav(raw).replace(b"data\x04\0\0\0", b"data\xff\xff\xff\xff")
    assert read_blocks(written(streamed))[0].tolist() == [0.5, -0.5]


GOOD = wav(struct.pack("<4h", 1, 2, 3, 4))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"RIFF",
        b"RIFX" + GOOD[4:],
        GOOD[:8] + b"AVI " + GOOD[12:],
        GOOD[:30],  # cut inside the format
        GOOD[:36],  # no data chunk
        GOOD[:-2],  # cut inside the data
        GOOD[:40] + struct.pack("<I", 2**31) + GOOD[44:],  # promises 2 GiB
        wav(b"\0" * 4, tag=85),  # MP3 inside WAV
        wav(b"\0" * 4, channels=0),
        wav(b"\0" * 4, rate=0),
        b"RIFF\0\0\0\0WAVE" + chunk(b"data", b"\0\0"),
        b"RIFF\0\0\0\0WAVE" + chunk(b"fmt ", b"\0" * 8),
    ],
)
def test_corrupt_files_name_the_file(content, written):
    with pytest.raises(DataError, match=r"sound\.wav"):
        read_sound(written(content))


def test_zero_length_and_not_a_number(written):
    with pytest.raises(DataError, match="sound.wav"):
        read_sound(written(wav(b"")))
    with pytest.raises(DataError, match="not a number"):
        read_sound(written(wav(struct.pack("<f", float("nan")), tag=3, bits=32)))


def test_missing_file_and_nonsense(written, tmp_path):
    with pytest.raises(DataError, match="raw sound, which has no header"):
        read_sound(written(b"\0" * 40, "tone.raw"))
    with pytest.raises(DataError, match="none.wav"):
        read_sound(tmp_path / "none.wav")
    with pytest.raises(DataError, match="nonsense"):
        read_sound(written(b"nonsense that is no sound at all", "nonsense.mp9"))


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, len(GOOD)), at=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255))
def test_damage_is_a_data_error_or_sound(cut, at, byte, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "damaged.wav"
    damaged = bytearray(GOOD)
    damaged[at] = byte
    path.write_bytes(damaged[:cut])
    try:
        samples = read_sound(path)
    except DataError:
        return
    assert samples.isfinite().all() and len(samples)


@pytest.mark.parametrize("htk", [False, True])
@pytest.mark.parametrize("area", [False, True])
def test_filters_and_powers_of_any_scale(htk, area):
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    x = torch.randn(22050, generator=torch.Generator().manual_seed(0))
    for mels, fft, hop, rate in (
        (128, 2048, 512, 22050),
        (40, 512, 160, 16000),
        (80, 400, 160, 16000),
    ):
        scale, norm = "htk" if htk else "slaney", "slaney" if area else None
        theirs = mel_filter_bank(fft // 2 + 1, mels, 0.0, rate / 2, rate, norm, scale)
        ours = mel_filters(mels, fft, rate, htk, area)
        assert np.abs(ours.numpy() - theirs.T).max() <= 1e-6 * theirs.max()
        options = dict(frame_length=fft, hop_length=hop, power=2.0, mel_filters=theirs)
        for pad in ("constant", "reflect"):
            expected = spectrogram(
                x.double().numpy(),
                window_function(fft, "hann"),
                pad_mode=pad,
                mel_floor=0.0,
                **options,
            )
            found = mel_power(x, ours, fft, hop, pad).numpy()
            assert np.abs(found - expected).max() <= 1e-5 * expected.max()


def test_powers_of_librosa():
    librosa = pytest.importorskip("librosa")
    x = torch.randn(30000, generator=torch.Generator().manual_seed(0))
    for htk, norm in ((False, "slaney"), (True, None)):
        expected = librosa.feature.melspectrogram(y=x.numpy(), htk=htk, norm=norm)
        filters = mel_filters(128, 2048, 22050, htk, norm is not None)
        found = mel_power(x, filters, 2048, 512, "constant").numpy()
        assert np.abs(found - expected).max() <= 1e-4 * expected.max()


def test_resampling_long_sound_takes_little_more_memory_than_the_sound() -> None:
    code = "import re, torch; from regard.data.sound import resample; status = '/proc/self/status'"
    code += "; peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open(status).read())[1]) / 1024"
    code += "; resample(torch.randn(4800), 48000); x = torch.randn(48000 * 300); before = peak()"
    code += "; resample(x, 48000); print(peak() - before)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert float(answer.stdout) < 4 * 48000 * 300 * 4 / 2**20  # MiB; once 8 to 45 times the sound


def test_long_sound_is_not_held_in_memory(tmp_path) -> None:
    """Twenty minutes, 77 MB as floats, where there are 48 MB."""
    path = tmp_path / "long.wav"
    with soundfile.SoundFile(path, "w", 16000, 2, "PCM_U8") as file:
        for n in range(20):
            tone = 0.1 * np.sin(np.arange(16000 * 60) * (n + 1) / 50)
            file.write(np.stack((tone, tone), 1))
    code = "import re, sys, resource, torch; from regard.data.sound import read_sound"
    code += "; read_sound(sys.argv[2]); text = open('/proc/self/status').read()"
    code += "; held = 1024 * int(re.search(r'VmData:\\s+(\\d+)', text)[1]) + 48 * 2**20"
    code += "; resource.setrlimit(resource.RLIMIT_DATA, (held, held))"
    code += "; x = read_sound(sys.argv[1]); print(len(x), float(x[::16000].abs().max()))"
    soundfile.write(tmp_path / "short.wav", np.zeros(480), 16000)
    answer = subprocess.run(
        [sys.executable, "-c", code, path, tmp_path / "short.wav"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not answer.returncode, answer.stderr
    assert int(answer.stdout.split()[0]) == 20 * 60 * 16000
    assert 0.05 < float(answer.stdout.split()[1]) < 0.11
