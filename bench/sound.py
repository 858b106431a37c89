"""Classes of sounds and strings of digits, here and by transformers' AST in a plain loop.

    python bench/sound.py [--data shared/data/audio] [--only fsdd speakers esc ctc] [--dev]
                          [--device cuda] [--together 6] [--minutes M | --epochs N]
                          [--models frames patches ast whisper] [--whisper FOLDER]

* fsdd: spoken digits, the official 2,700 clips to train on and 300 to test;
* speakers: all 3,000, each of the six speakers left out in turn;
* esc: ESC-10, each of the five folds left out in turn;
* ctc: strings of one to five digits (`tools/join_digits.py`) by CTC: letters that are wrong. The
  model is small and learns strings of 2 s at most, on one core; longer ones it reads in windows.

`frames` (Whisper's form) and `patches` (AST's) learn from nothing by `regard.train.sound`; `ast` is
transformers' ASTForAudioClassification of the shape of `patches`, from nothing too, on the same
clips as often, without augmentation; `whisper` is a new head on a frozen Whisper (esc). Every run
is a process; the weights after the last step are tested, once. `--dev` keeps the test clips out and
scores clips of the training part, for choices: indices 5 to 9, another speaker, another fold.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import numpy as np
import torch
import torch.nn.functional as F

import regard

ROOT = Path(__file__).resolve().parent.parent
SPEAKERS = "george jackson lucas nicolas theo yweweler".split()
FOLDS = list("12345")
SHAPE = dict(dim=192, depth=6, heads=6, drop_path=0.1)
PATCHES = dict(mels=128, patch=16, stride=10)
BARS = {"fsdd": "98.5", "speakers": "85 in the mean", "esc": "85, whisper 92", "ctc": "3 at most"}


@dataclass(frozen=True)
class Part:
    """How one of the tasks is learnt."""

    splits: list[str]
    models: list[str]
    epochs: int
    shape: dict[str, Any]
    train: dict[str, Any] = field(default_factory=dict)


DIGITS = dict(seconds=1.0, shift=0.2, stretch=0.15, pitch=4, mask_mels=24, mask_seconds=0.15)
NOISES = dict(seconds=5.0, shift=2.0, stretch=0.1, pitch=4, mask_mels=32, mask_seconds=1.0)
STRINGS = dict(transcripts=True, dim=96, depth=3, heads=4, mels=40, rows=32, drop_path=0.0)
STRINGS |= dict(seconds=2.4, shift=0.1, stretch=0.15, pitch=2, mask_mels=8, mask_seconds=0.1)
CLASSIFIERS = ["frames", "patches", "ast"]
PARTS = {
    "fsdd": Part(["official"], CLASSIFIERS, 60, DIGITS | dict(mixup=0.5)),
    "speakers": Part(SPEAKERS, CLASSIFIERS, 60, DIGITS | dict(mixup=0.5)),
    "esc": Part(FOLDS, [*CLASSIFIERS, "whisper"], 200, NOISES | dict(mixup=0.5, rows=16)),
    "ctc": Part(["joined"], ["frames"], 6, STRINGS),
}


@dataclass(frozen=True)
class Clips:
    """Some clips of archives, with what they are."""

    archives: list[Path]
    rows: list[tuple[str, str]]

    def paths(self, place: Path) -> list[str]:
        """What `regard.train.sound` reads: a list, and the archives."""
        head = "file\tlabel\n"
        place.write_text(head + "".join(f"{file}\t{label}\n" for file, label in self.rows))
        return [str(place), *map(str, self.archives)]


def members(archive: Path) -> list[str]:
    """The names of its clips."""
    with tarfile.open(archive) as opened:
        return sorted(member.name for member in opened if member.isfile())


def split_digits(data: Path, speaker: str | None, dev: bool) -> tuple[Clips, Clips]:
    """Spoken digits to train on and to test."""
    archives = [data / "fsdd-train.tar.xz", data / "fsdd-test.tar.xz"]
    names = [name for archive in archives for name in members(archive)]
    other = None if speaker is None else SPEAKERS[(SPEAKERS.index(speaker) + 1) % len(SPEAKERS)]
    parts: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in names:
        digit, who, index = Path(name).stem.split("_")
        if speaker is not None:
            part = "test" if who == speaker else "dev" if dev and who == other else "train"
        else:
            part = "test" if int(index) < 5 else "dev" if dev and int(index) < 10 else "train"
        parts[part].append((name, digit))
    return Clips(archives, parts["train"]), Clips(archives, parts["dev" if dev else "test"])


def split_noises(data: Path, fold: str, dev: bool) -> tuple[Clips, Clips]:
    """Sounds of ESC-10 to train on and to test."""
    with open(data / "esc10.tsv", newline="") as file:
        rows = [(r["file"], r["category"], r["fold"]) for r in csv.DictReader(file, delimiter="\t")]
    judged = str(int(fold) % 5 + 1) if dev else fold
    archives = [data / f"esc10-{n}of5.tar.xz" for n in FOLDS]
    train = [(file, label) for file, label, n in rows if n not in (fold, judged)]
    return Clips(archives, train), Clips(archives, [(f, c) for f, c, n in rows if n == judged])


def join_digits(data: Path, place: Path, dev: bool, counts: list[int]) -> list[list[str]]:
    """Strings of digits to train on and to test: each a list and an archive."""
    sources = [data / "fsdd-train.tar.xz", data / "fsdd-test.tar.xz"]
    if dev:  # parts of the training clips
        with tarfile.open(sources[0]) as archive:
            clips = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
        sources = [place / "train.tar", place / "dev.tar"]
        for source, wanted in zip(sources, (False, True), strict=True):
            with tarfile.open(source, "w") as archive:
                for name, content in clips.items():
                    if (int(Path(name).stem.split("_")[2]) < 10) == wanted:
                        member = tarfile.TarInfo(name)
                        member.size = len(content)
                        archive.addfile(member, io.BytesIO(content))
    made = []
    for seed, (source, count) in enumerate(zip(sources, counts, strict=True)):
        out = place / f"joined-{seed}.tar"
        tool = [sys.executable, str(ROOT / "tools/join_digits.py"), source, out, str(count)]
        most = [] if seed else ["--seconds", "2"]
        subprocess.run([*tool, "--seed", str(seed), *most], check=True)
        made.append([str(out.with_suffix(".tsv")), str(out)])
    return made


def learn(
    part: Part, model: str, train: list[str], test: list[str], place: Path, given: Any
) -> dict[str, Any]:
    """A run of `regard.train.sound`, and its score."""
    epochs = given.epochs or part.epochs
    shape = SHAPE | part.shape | (PATCHES | {"reads": "patches"} if model == "patches" else {})
    how = dict(precision=given.precision, compile=given.compile, minutes=given.minutes) | part.train
    data = regard.DataConfig(holdout=0.0)
    if model == "whisper":
        shape = part.shape | {"freeze": ("front", "encoder"), "rows": 32}
        epochs, how = given.epochs or 40, how | dict(lr=3e-3)
        data = regard.DataConfig(holdout=0.0, init=given.whisper)
    if given.minutes:
        how["eval_every"] = 0
    own = regard.train.SoundConfig(**shape | {"epochs": None if given.minutes else epochs})
    config = regard.TrainConfig(**{name: value for name, value in how.items() if value})
    began = time.perf_counter()
    run: Any = regard.train.sound(train, out=place / "run", config=config, shape=own, data=data)
    found = {"steps": run.steps, "loss": run.loss, "train_s": time.perf_counter() - began}
    scores: Any = regard.evaluate.sound(run.path, test)
    found["parameters"] = sum(p.numel() for p in run.kit.model.parameters())
    if not part.shape.get("transcripts"):
        return found | {"score": 100 * scores.accuracy, "count": scores.count}
    beams: Any = regard.evaluate.sound(run.path, test, beam=8)
    found |= {"score": 100 * scores.letter_error_rate, "beam_8": 100 * beams.letter_error_rate}
    return found | {"whole": 100 * scores.accuracy, "count": scores.count}


def learn_ast(part: Part, train: list[str], test: list[str], given: Any) -> dict[str, Any]:
    """transformers' AST in a plain loop: AdamW, warm-up, cosine, smoothing, no augmentation."""
    from transformers import ASTConfig, ASTForAudioClassification

    from regard.data.example_store import leave_out
    from regard.speech.sound_files import Hearing, read_clips

    torch.manual_seed(0)
    hearing = Hearing("kaldi", PATCHES["mels"], int(100 * part.shape["seconds"]))
    read = [list(leave_out(read_clips(paths, hearing), print_error)) for paths in (train, test)]
    names = sorted({label for _, label, _ in read[0]})
    (x, y), (held, gold) = (
        (
            torch.from_numpy(np.concatenate([sound for *_, sound in clips])).mT.to(given.device),
            torch.tensor([names.index(label) for _, label, _ in clips], device=given.device),
        )
        for clips in read
    )  # (B, frames, mels)
    std, mean = torch.std_mean(x)
    x, held = (x - mean) / (2 * std), (held - mean) / (2 * std)
    model: Any = ASTForAudioClassification(
        ASTConfig(
            hidden_size=SHAPE["dim"],
            num_hidden_layers=SHAPE["depth"],
            num_attention_heads=SHAPE["heads"],
            intermediate_size=4 * SHAPE["dim"],
            patch_size=PATCHES["patch"],
            frequency_stride=PATCHES["stride"],
            time_stride=PATCHES["stride"],
            num_mel_bins=PATCHES["mels"],
            max_length=x.shape[1],
            num_labels=len(names),
        )
    ).to(given.device)
    rows, epochs, began = part.shape.get("rows", 64), given.epochs or part.epochs, time.monotonic()
    steps, seconds = epochs * (len(x) // rows), 60 * (given.minutes or 0)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0.05)
    number, order = 0, torch.empty(0, dtype=torch.long)
    low = torch.bfloat16 if given.precision == "bf16" else None
    while (done := (time.monotonic() - began) / seconds if seconds else number / steps) < 1:
        if len(order) < rows:
            order = torch.randperm(len(x))
        batch, order = order[:rows].to(given.device), order[rows:]
        share = min(1, done / 0.1) * (0.505 + 0.495 * math.cos(math.pi * done))
        optimizer.param_groups[0]["lr"] = 5e-4 * share
        with torch.autocast(given.device, low, enabled=low is not None):
            scores = model(x[batch]).logits
        loss = F.cross_entropy(scores.float(), y[batch], label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        number += 1
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(some).logits.argmax(-1) for some in held.split(64)])
    found = {"steps": number, "loss": float(loss.detach()), "train_s": time.monotonic() - began}
    found["parameters"] = sum(p.numel() for p in model.parameters())
    return found | {"score": 100 * float((answers == gold).float().mean()), "count": len(gold)}


def print_error(line: str) -> None:
    """To stderr."""
    print(line, file=sys.stderr)


def work(job: str, given: Any) -> dict[str, Any]:
    """One run and its test."""
    name, split, model = job.split("/")
    part, data = PARTS[name], Path(given.data)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if name == "ctc":
            train, test = join_digits(data, place, given.dev, given.strings)
        else:
            divide: Callable[..., tuple[Clips, Clips]]
            divide = split_noises if name == "esc" else split_digits
            parts = divide(data, None if split == "official" else split, given.dev)
            train, test = (clips.paths(place / f"{n}.tsv") for n, clips in enumerate(parts))
        with regard.settings(device=given.device, quiet=True, progress=False, seed=given.seed):
            if model == "ast":
                found = learn_ast(part, train, test, given)
            else:
                found = learn(part, model, train, test, place, given)
    return {"part": name, "split": split, "model": model, "dev": given.dev} | found


def start(job: str) -> dict[str, Any]:
    """The same in a process of its own; its line of JSON is printed."""
    command = [sys.executable, __file__, *sys.argv[1:], "--job", job]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        print_error(f"{job}: exit code {ended.returncode}")
        return {}
    print(ended.stdout.strip().splitlines()[-1], flush=True)
    found: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    """Mean and worst of each part and model."""
    yield f"{'':22}{'mean':>8}{'worst':>8}  {'runs':>4}{'steps':>8}{'seconds':>9}  bar"
    for name in PARTS:
        for model in PARTS[name].models:
            runs = [run for run in results if (run["part"], run["model"]) == (name, model)]
            if runs:
                scores = [run["score"] for run in runs]
                worst = max(scores) if name == "ctc" else min(scores)
                seconds = np.mean([run["train_s"] for run in runs])
                yield (
                    f"{name + ' ' + model:22}{np.mean(scores):8.2f}{worst:8.2f}  {len(runs):4}"
                    f"{runs[0]['steps']:8,}{seconds:9.0f}  {BARS[name]}"
                )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", default="shared/data/audio")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="+", choices=[*CLASSIFIERS, "whisper"])
    parser.add_argument("--splits", nargs="+", help="some speakers or folds alone")
    parser.add_argument("--whisper", help="a folder of Whisper, for esc on its frozen encoder")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--minutes", type=float, help="of each run, instead of epochs")
    parser.add_argument("--epochs", type=int, help="instead of those of each part")
    parser.add_argument("--strings", nargs=2, type=int, default=[12000, 1000], help="ctc's clips")
    parser.add_argument("--together", type=int, default=1, help="runs at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dev", action="store_true")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        print(json.dumps(work(given.job, given)))
        return 0
    models = given.models or [*CLASSIFIERS, *["whisper"] * bool(given.whisper)]
    jobs = [
        f"{name}/{split}/{model}"
        for name in given.only
        for model in PARTS[name].models
        for split in PARTS[name].splits
        if model in models and split in (given.splits or [split])
    ]
    os.environ.setdefault("OMP_NUM_THREADS", "1" if given.together > 1 else str(os.cpu_count()))
    with ThreadPoolExecutor(given.together) as pool:
        results = list(pool.map(start, jobs))
    print("\n".join(table([run for run in results if run])))
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
