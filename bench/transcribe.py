"""Whisper here, in transformers and in faster-whisper: texts, word errors, times of words, speed.

    python bench/transcribe.py FOLDER CLIPS… [--truth speech.tsv] [--ct2 FOLDER] [--rounds N]

FOLDER is a Whisper folder with its tokenizer (`tools/whisper_pt.py tiny.en.pt FOLDER --tokens
gpt2.tiktoken`), CLIPS are sound files of at most 30 s, `--truth` a TSV with columns file and
transcript, `--ct2` the model in int8 for CTranslate2, where faster-whisper is installed. The peers
take turns, clip by clip, so that a neighbour on the machine disturbs all. Then twenty made clips of
silence and noise, which have no words.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import numpy as np
import torch

import regard
from regard.data.sound import read_sound
from regard.speech.ctc import edit_distance

Words = list[tuple[str, float, float]]
Answer = tuple[str, Words]


def word_errors(said: str, written: str) -> tuple[int, int]:
    """Words to change, put in or take out (Levenshtein), and words said; no case, no marks."""
    a, b = (re.sub(r"[^\w' ]", "", text.lower()).split() for text in (said, written))
    return edit_distance(a, b), len(a)


def ours(folder: str, precision: str) -> Callable[[str], Answer]:
    """This package."""
    from regard.loading import open_kit

    kit = open_kit(folder, precision)

    def run(path: str) -> Answer:
        got: Any = regard.transcribe(path, model=kit)
        return got.text, [(word.word, word.start, word.end) for word in got.words]

    return run


def transformers_peer(folder: str) -> Callable[[str], Answer]:
    """transformers' own generate, greedily, in float32, as it does by itself."""
    from tokenizers import Tokenizer
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    extract = WhisperFeatureExtractor.from_pretrained(folder)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")

    def run(path: str) -> Answer:
        samples = read_sound(path).numpy()
        given = extract(samples, sampling_rate=16000, return_tensors="pt").input_features
        return tokenizer.decode(model.generate(given)[0].tolist()).strip(), []

    return run


def faster_whisper_peer(folder: str, threads: int) -> Callable[[str], Answer]:
    """CTranslate2 in int8, greedily, with times of words."""
    from faster_whisper import WhisperModel

    model = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=threads)

    def run(path: str) -> Answer:
        samples = read_sound(path).numpy()
        how: dict[str, Any] = dict(beam_size=1, word_timestamps=True, language="en")
        segments, _ = model.transcribe(samples, condition_on_previous_text=False, **how)
        words: Words = []
        text = ""
        for segment in segments:
            text += segment.text
            words += [(word.word.strip(), word.start, word.end) for word in segment.words]
        return text.strip(), words

    return run


def made_clips() -> dict[str, torch.Tensor]:
    """Twenty sounds without speech, at 16 kHz."""
    draw, t = torch.Generator().manual_seed(0), torch.arange(5 * 16000) / 16000

    def noise(seconds: float, slope: float = 0.0) -> torch.Tensor:
        count = int(16000 * seconds)
        spectrum = torch.fft.rfft(torch.randn(count, generator=draw))
        shaped = torch.fft.irfft(
            spectrum / torch.arange(len(spectrum)).clamp(min=1) ** slope, count
        )
        return shaped / shaped.abs().max()

    clicks = torch.zeros(len(t))
    clicks[::8000] = 1.0
    clips = {f"silence {s} s": torch.zeros(int(16000 * s)) for s in (0.1, 1, 5, 30, 40)}
    clips |= {f"white {level}": level * noise(5) for level in (1e-3, 0.01, 0.1, 0.5)}
    clips |= {f"pink {level}": level * noise(5, 0.5) for level in (0.01, 0.1, 0.9)}
    clips |= {f"brown {level}": level * noise(5, 1.0) for level in (0.01, 0.5)}
    clips |= {"white 25 s": 0.05 * noise(25), "white 45 s": 0.05 * noise(45)}
    clips["hum"] = 0.1 * sum(torch.sin(2 * math.pi * 50 * k * t) / k for k in range(1, 9))
    clips["tone"] = 0.3 * torch.sin(2 * math.pi * 440 * t)
    clips["clicks"] = clicks
    clips["waves of noise"] = 0.3 * noise(5) * (1 + torch.sin(6 * math.pi * t)) / 2
    return clips


def words_of_nothing(folder: str, precision: str) -> dict[str, str]:
    """What is heard in the made clips, where anything is."""
    import tempfile

    import soundfile

    heard = {}
    with tempfile.TemporaryDirectory() as place:
        paths = []
        for name, samples in made_clips().items():
            paths.append(f"{place}/{name}.wav")
            soundfile.write(paths[-1], samples.numpy(), 16000, "FLOAT")
        for got in regard.transcribe(paths, model=folder, precision=precision):  # type: ignore[union-attr, arg-type]
            if got.words or got.text:
                heard[Path(got.file).stem] = got.text
    return heard


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("clips", nargs="+")
    parser.add_argument("--truth")
    parser.add_argument("--ct2")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    peers = {"transformers": transformers_peer(options.folder)}
    peers |= {name: ours(options.folder, name) for name in ("fp32", "int8")}
    if options.ct2:
        peers["faster-whisper"] = faster_whisper_peer(options.ct2, options.threads)
    answers: dict[str, dict[str, Answer]] = {name: {} for name in peers}
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for run in peers.values():
        run(options.clips[0])  # packs weights
    for _ in range(options.rounds):
        for name in peers:
            seconds[name].append(0.0)
        for clip in options.clips:
            for name, run in peers.items():
                began = time.perf_counter()
                answers[name][clip] = run(clip)
                seconds[name][-1] += time.perf_counter() - began
    truth = {}
    if options.truth:
        with open(options.truth, newline="") as file:
            rows = csv.DictReader(file, delimiter="\t")
            truth = {row["file"]: row["transcript"] for row in rows}
    report: dict[str, Any] = {"clips": len(options.clips)}
    for name in peers:
        report[name] = {"seconds": statistics.median(seconds[name])}
        same = [answers[name][c][0] == answers["transformers"][c][0] for c in options.clips]
        report[name]["texts of transformers"] = sum(same)
        known = [c for c in options.clips if Path(c).name in truth]
        counts = [word_errors(truth[Path(c).name], answers[name][c][0]) for c in known]
        if counts:
            report[name]["word errors"] = sum(e for e, _ in counts) / sum(n for _, n in counts)
    if options.ct2:
        gaps: list[float] = []
        for clip in options.clips:
            ours_, theirs = answers["fp32"][clip][1], answers["faster-whisper"][clip][1]
            if [w for w, *_ in ours_] == [w for w, *_ in theirs]:
                for a, b in zip(ours_, theirs, strict=True):
                    gaps += [abs(a[1] - b[1]), abs(a[2] - b[2])]
        report["word times"] = {
            "median gap": float(np.median(gaps)),
            "within 0.1 s": float(np.mean(np.array(gaps) <= 0.1 + 1e-9)),
            "compared": len(gaps),
        }
    for precision in ("fp32", "int8"):
        report[f"heard in silence and noise, {precision}"] = words_of_nothing(
            options.folder, precision
        )
    print(json.dumps(report, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
