"""Regularisation after training: what it costs, and what it does in and out of domain.

    python bench/nv.py cost [--device cpu] [--sigma 0.3]
    python bench/nv.py curve MODEL FILE… [--strengths 0 0.1 0.3 1] [--lines 300] [--plot curve.png]
        [--points encoder:1,0,1 1,0.3,1e4]

`cost` takes the shapes of GPT-2, BERT and Marian with drawn weights: a text of 128 tokens is read,
and where they can, 32 tokens are written after it, for one row and for four; milliseconds, medians
of turns, plain and regularised, which take turns.

`curve` scores a model at each strength and at each point, temperatures μ,σ,α of all attention or of
one kind, on files: sentence pairs (.tsv) by BLEU, greedily, other texts by perplexity. Beside a
score stands its difference to the plain model's and the share of 1,000 paired bootstrap samples
(Koehn 2004), of sentences or of windows, in which it is better.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import torch

from regard.ambient import settings, track
from regard.data.pairs import read_tsv
from regard.data.text_files import evenly, read_lines
from regard.decode.scoring import score_rows
from regard.kit import Kit
from regard.loading import load
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import preset
from regard.nvib import conversion
from regard.nvib.config import Temperatures

DRAWS = 1000  # bootstrap samples
LENGTH = 512  # tokens of a window
SHAPES = ("gpt2", "bert-base", "transformer-base")


# Cost -------------------------------------------------------------------------------------------


def drawn_ids(model: Model, rows: int, length: int) -> Batch:
    """Random ids for a model."""
    ids = torch.randint(5, 30000, (rows, length), device=model.device)
    return Batch(ids) if model.config.target is None else Batch(ids, ids)


def ways_to_run(kit: Kit) -> dict[str, Callable[[], Any]]:
    """What is timed: reading a text, and writing 32 tokens after one."""
    model, batch = kit.model, drawn_ids(kit.model, 1, 128)
    ways: dict[str, Callable[[], Any]] = {"read 128": lambda: model(batch)}
    if model.decoder is not None:
        short = batch if batch.target is None else Batch(batch.inputs, batch.ids[:, :1])
        ways["write 32"] = lambda: kit.search(short, 32)
        four = short.tile(4)
        ways["write 32 × 4 rows"] = lambda: kit.search(four, 32)
    return ways


@torch.inference_mode()
def measure_cost(device: str, sigma: float, turns: int) -> list[dict[str, Any]]:
    """Medians of plain and regularised runs, which take turns."""
    rows = []
    for shape in SHAPES:
        kit = Kit(Model.fresh(preset(shape)).to(device))
        with torch.inference_mode(False), torch.no_grad():
            priors = conversion.measure(kit.model, [drawn_ids(kit.model, 4, 128)])
        conversion.PRIORS[kit.model] = {repr(None): priors}
        how = {"plain": 0.0, "nv": Temperatures(sigma=sigma, alpha=1.0)}
        for way, run in ways_to_run(kit).items():
            times: dict[str, list[float]] = {name: [] for name in how}
            for turn in range(turns + 1):
                for name, strength in how.items():
                    with torch.inference_mode(False):
                        conversion.attach(kit, strength)
                    for _ in range(1 + (device != "cpu")):  # on a GPU the first one is recorded
                        start = time.perf_counter()
                        run()
                        if device != "cpu":
                            torch.cuda.synchronize()
                        spent = time.perf_counter() - start
                    if turn:
                        times[name].append(spent)
            ms = {name: statistics.median(some) * 1e3 for name, some in times.items()}
            ratio = statistics.median(
                nv / plain for plain, nv in zip(times["plain"], times["nv"], strict=True)
            )
            row = {"shape": shape, "way": way, **{n: round(t, 2) for n, t in ms.items()}}
            rows.append(row | {"ratio": round(ratio, 3)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


# Curve ------------------------------------------------------------------------------------------


def bleu_parts(kit: Kit, file: str, lines: int, beams: int) -> list[list[float]]:
    """Counts of BLEU of each sentence: they are added up."""
    from sacrebleu.metrics import BLEU

    pairs = evenly(read_tsv(file), lines)
    texts = kit.translate([source for source, _ in pairs], beams=beams, doubt=False)
    bleu = BLEU()
    said = [" ".join(answer.text.split()) for answer in texts]
    return [
        bleu._extract_corpus_statistics([text], [[target]])[0]
        for text, (_, target) in zip(said, pairs, strict=True)
    ]


def bleu_of(parts: Sequence[Sequence[float]]) -> float:
    """BLEU of sentences, from their counts."""
    from sacrebleu.metrics import BLEU

    return float(
        BLEU()._compute_score_from_stats([sum(each) for each in zip(*parts, strict=True)]).score
    )


def nats_parts(kit: Kit, file: str, windows: int) -> list[list[float]]:
    """Negative log-likelihood and number of tokens of each window."""
    text = "\n".join(read_lines(file))
    if ".jsonl" in Path(file).suffixes:
        rows = (json.loads(line) for line in text.splitlines())
        text = "\n".join(" ".join(str(part) for part in row.values()) for row in rows)
    ids = kit.text_tokenizer.encode(text[: windows * LENGTH * 12])
    cut = [ids[n : n + LENGTH] for n in range(0, len(ids) - LENGTH, LENGTH)][:windows]
    scored = [score_rows(kit.model, [row])[0] for row in cut]
    return [[-sum(row), float(len(row))] for row in scored]


def perplexity_of(parts: Sequence[Sequence[float]]) -> float:
    """Perplexity of windows."""
    nats, count = (sum(each) for each in zip(*parts, strict=True))
    return math.exp(nats / count)


def wins(score: Callable[[Any], float], plain: Any, other: Any, higher: bool) -> float:
    """The share of samples, drawn with replacement, in which the other one is better."""
    draw, count = random.Random(0), 0
    for _ in range(DRAWS):
        chosen = draw.choices(range(len(plain)), k=len(plain))
        before, after = (score([parts[n] for n in chosen]) for parts in (plain, other))
        count += after > before if higher else after < before
    return count / DRAWS


def measure_curve(model: str, files: Sequence[str], points: dict[str, Any], asked: Any) -> Any:
    """A row for each point and file."""
    kit, rows = load(model, precision=None if asked.plain else "auto"), []
    plain: dict[str, Any] = {}
    for name, strength in track([*points.items()], "strengths"):
        conversion.attach(kit, strength, asked.text)
        for file in files:
            pairs = ".tsv" in Path(file).suffixes
            score = bleu_of if pairs else perplexity_of
            if pairs:
                parts = bleu_parts(kit, file, asked.lines, asked.beams)
            else:
                parts = nats_parts(kit, file, asked.windows)
            plain.setdefault(file, parts)
            value, before = score(parts), score(plain[file])
            better = wins(score, plain[file], parts, pairs)
            row = {"point": name, "file": Path(file).name, "score": round(value, 3)}
            row |= {"change": round(value - before, 3), "better": better, "of": len(parts)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def draw_curve(rows: Sequence[dict[str, Any]], place: str) -> None:
    """Change of each file's score over the points."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots()
    for file in dict.fromkeys(row["file"] for row in rows):
        own = [row for row in rows if row["file"] == file]
        share = [row["change"] / (row["score"] - row["change"]) for row in own]
        axis.plot([row["point"] for row in own], [100 * x for x in share], marker="o", label=file)
    axis.axhline(0, color="grey", linewidth=0.5)
    axis.set(xlabel="strength", ylabel="change of the score, %")
    axis.legend()
    figure.savefig(place, dpi=150, bbox_inches="tight")


def main() -> None:
    """Measure and print, a line of JSON for each figure."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("what", choices=("cost", "curve"))
    reader.add_argument("model", nargs="?")
    reader.add_argument("files", nargs="*")
    reader.add_argument("--device", default="cpu")
    reader.add_argument("--turns", type=int, default=9)
    reader.add_argument("--strengths", type=float, nargs="*", default=[0, 0.1, 0.2, 0.3, 0.5, 1])
    reader.add_argument("--points", nargs="*", default=[])
    reader.add_argument("--sigma", type=float, nargs="*", default=[0.0, 0.3])
    reader.add_argument("--lines", type=int, default=300)
    reader.add_argument("--windows", type=int, default=20)
    reader.add_argument("--beams", type=int, default=1)
    reader.add_argument("--plain", action="store_true", help="float32 maps, not int8")
    reader.add_argument("--text", nargs="*")
    reader.add_argument("--plot")
    asked = reader.parse_args()
    with settings(device=asked.device):
        if asked.what == "cost":
            for sigma in asked.sigma:
                measure_cost(asked.device, sigma, asked.turns)
            return
        points: dict[str, Any] = {str(s): s for s in asked.strengths}
        for point in asked.points:
            kind, _, numbers = point.rpartition(":")
            how = Temperatures(*map(float, numbers.split(",")))
            points[point] = {kind: how} if kind else how
        rows = measure_curve(asked.model, asked.files, points, asked)
        if asked.plot:
            draw_curve(rows, asked.plot)


if __name__ == "__main__":
    main()
