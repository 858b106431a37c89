"""Join spoken digits to strings of one to five: join_digits.py fsdd-train.tar.xz OUT.tar COUNT.

Clips are named digit_speaker_index.flac (FSDD). A string is of one speaker, with 0 to 0.15 s of
faint noise between digits, and takes at most `--seconds`; OUT.tar has the clips in 16-bit FLAC and
OUT.tsv the list for `regard train sound OUT.tsv OUT.tar --transcripts`.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import soundfile


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("clips", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--seconds", type=float, default=60.0, help="longer ones are drawn again")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dice, voices, rate = np.random.default_rng(options.seed), defaultdict(list), 8000
    with tarfile.open(options.clips) as archive:
        for member in archive:
            digit, speaker, _ = Path(member.name).stem.split("_")
            samples, rate = soundfile.read(io.BytesIO(archive.extractfile(member).read()))
            voices[speaker].append((digit, samples))
    rows = ["file\ttranscript"]
    with tarfile.open(options.out, "w") as archive:
        while len(rows) <= options.count:
            clips = voices[dice.choice(sorted(voices))]
            chosen = [clips[n] for n in dice.integers(len(clips), size=dice.integers(1, 6))]
            parts = []
            for _, samples in chosen:
                parts += [2e-4 * dice.standard_normal(dice.integers(0, int(0.15 * rate))), samples]
            joined, out, name = np.concatenate(parts), io.BytesIO(), f"{len(rows) - 1:05}.flac"
            if len(joined) > options.seconds * rate:
                continue
            soundfile.write(out, joined, rate, format="FLAC", subtype="PCM_16")
            member = tarfile.TarInfo(name)
            member.size = len(out.getvalue())
            out.seek(0)
            archive.addfile(member, out)
            rows.append(f"{name}\t{''.join(digit for digit, _ in chosen)}")
    options.out.with_suffix(".tsv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
