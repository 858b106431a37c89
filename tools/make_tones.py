"""Make the sounds that regard ships to try things on.

    python tools/make_tones.py    writes regard/speech/tones.tar.xz and tones-test.tar.xz

Five classes, 0.4 s at 8 kHz in 8 bits: steady, rising and falling tones, a trill and a chord of
three; pitch, loudness and onset are random.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import soundfile

RATE, SECONDS = 8000, 0.4


def make_clip(kind: str, dice: np.random.Generator) -> np.ndarray:
    """Samples (S) in −1 to 1."""
    time = np.arange(int(RATE * SECONDS)) / RATE
    pitch, bend = dice.uniform(250, 1100), dice.uniform(1.5, 2.2)
    slope = {"rise": bend, "fall": 1 / bend}.get(kind, 1.0)
    hertz = pitch * slope ** (time / SECONDS)
    if kind == "trill":
        hertz = np.where(time * dice.uniform(14, 20) % 1 < 0.5, pitch, pitch * 1.26)
    parts = (1, 1.26, 1.5) if kind == "chord" else (1,)
    phase = 2 * np.pi * np.cumsum(hertz) / RATE
    tone = sum(np.sin(phase * part + dice.uniform(0, 6)) for part in parts) / len(parts)
    begin = dice.uniform(0, 0.05)
    shape = np.clip((time - begin) / 0.01, 0, 1) * np.clip((SECONDS - time) / 0.02, 0, 1)
    return dice.uniform(0.2, 0.8) * tone * shape


if __name__ == "__main__":
    room = Path(__file__).resolve().parent.parent / "regard/speech"
    for name, seed, count in (("tones", 0, 120), ("tones-test", 1, 40)):
        dice, kinds = np.random.default_rng(seed), "steady rise fall trill chord".split()
        with tarfile.open(room / f"{name}.tar.xz", "w:xz") as archive:
            for number in range(count):
                kind, out = kinds[number % len(kinds)], io.BytesIO()
                clip = make_clip(kind, dice)
                soundfile.write(out, clip, RATE, format="FLAC", subtype="PCM_S8")
                member = tarfile.TarInfo(f"{kind}/{number:03}.flac")
                member.size = len(out.getvalue())
                out.seek(0)
                archive.addfile(member, out)
