"""A trained translator goes on by minimum risk: what a beam finds is weighed by its BLEU.

    python recipes/minimum_risk.py fr-en OUT --train FILE SHARE [FILE SHARE …] --dev dev-*.tsv
        [--minutes 5] [--device cuda]

Files hold source TAB target, a line each; SHARE is how often a sentence is drawn from the file. Of
each source the beam's candidates y are found, with their sentence BLEU against the target, and
what is minimised is the expected loss of BLEU under the model's own weights of them (Shen 2016;
Edunov 2018),

    Σ_y q(y) (1 − BLEU(y)),   q ∝ exp(τ log p(y) / lp(y)),

with the search's length penalty lp, and beside it the cross-entropy of the target. BLEU of the
development sets is printed now and then; OUT is the running mean of the weights where their mean
was best, in int8, as the folder that it began with.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard.data.pairs import all_pairs
from regard.decode.beam import BeamConfig, length_penalty
from regard.decode.loop import search_kit
from regard.decode.step import Hypothesis
from regard.evaluate.bleu import bleu_chrf
from regard.kit import Kit
from regard.model.batch import Batch, id_batch, pad_rows
from regard.model.model import Memory
from regard.train.objectives import compile_blocks
from regard.train.optim import build_optimizer
from regard.train.trainer import with_dropout
from regard.translation.config import TranslateConfig

IGNORED = -100
SEARCHED = 512  # sources of a search
LONGEST = 80  # tokens of a side
PENALTY = length_penalty("gnmt", TranslateConfig.alpha)
TOKEN = re.compile(r"\w+|[^\w\s]")


class Pair(NamedTuple):
    """A source and its target in ids, the end token last, and the target's text."""

    source: list[int]
    target: list[int]
    text: str


class Judged(NamedTuple):
    """Candidates of a source, each with its end token and the BLEU it has."""

    pair: Pair
    candidates: list[list[int]]
    bleu: list[float]


# Risk -------------------------------------------------------------------------------------------


def ngrams(tokens: Sequence[str]) -> list[Counter[tuple[str, ...]]]:
    """Counts of n-grams of one to four tokens."""
    return [
        Counter(tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1))
        for n in range(1, 5)
    ]


def sentence_bleu(text: str, reference: str) -> float:
    """BLEU of one sentence, 0 to 1; n-grams above one count one more (Lin and Och 2004)."""
    said, wanted = TOKEN.findall(text), TOKEN.findall(reference)
    if not said or not wanted:
        return float(said == wanted)
    both = zip(ngrams(said), ngrams(wanted), strict=True)
    log = 0.0
    for n, (own, theirs) in enumerate(both):
        right, count = sum((own & theirs).values()) + (n > 0), sum(own.values()) + (n > 0)
        if not right:
            return 0.0
        log += math.log(right / count) / 4
    return math.exp(min(0.0, 1 - len(wanted) / len(said)) + log)


class Judge:
    """What a process that judges has."""

    tokenizer: Any


def open_judge(folder: str) -> None:
    """Open the tokenizer, once in a process."""
    Judge.tokenizer = regard.load(folder).tokenizer


def judge(rows: Sequence[Sequence[list[int]]], references: Sequence[str]) -> list[list[float]]:
    """BLEU of the candidates, in ids, for each reference."""
    decode = Judge.tokenizer.decode
    return [
        [sentence_bleu(decode(row, side="target"), reference) for row in some]
        for some, reference in zip(rows, references, strict=True)
    ]


def risk_loss(logprobs: Tensor, lengths: Tensor, bleu: Tensor, sharpness: float) -> Tensor:
    """The expected loss of BLEU of each source, all (B, candidates) → (B,)."""
    penalty = ((5 + lengths) / 6) ** TranslateConfig.alpha
    weights = (sharpness * logprobs / penalty).softmax(-1)
    return (weights * (1 - bleu)).sum(-1)


# Model ------------------------------------------------------------------------------------------


def search(kit: Kit, sources: Sequence[list[int]], width: int, count: int) -> list[Any]:
    """Hypotheses of each source, those of like length together."""
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    answers: list[list[Hypothesis]] = [[] for _ in sources]
    how = BeamConfig(width, count, PENALTY)
    for at in range(0, len(order), SEARCHED):
        some = order[at : at + SEARCHED]
        limit = 16 + len(sources[some[-1]]) * 5 // 4
        batch = kit.batch([sources[n] for n in some])
        for n, row in zip(some, search_kit(kit, batch, limit, how), strict=True):
            answers[n] = row
    return answers


def loss(
    model: Any, judged: Sequence[Judged], start: int, given: argparse.Namespace
) -> tuple[Tensor, Tensor, Tensor]:
    """(what is minimised, the risk, the cross-entropy of a target's token) of a batch."""
    device = model.device
    memory = model.encode(id_batch([j.pair.source for j in judged]).to(device))
    each = 1 + len(judged[0].candidates)
    rows = [row for j in judged for row in (j.pair.target, *j.candidates)]
    labels, _ = pad_rows(rows, IGNORED)
    labels = labels.to(device)
    target = F.pad(labels[:, :-1], (1, 0), value=start).clamp(min=0)
    mask = memory.real
    repeated = Memory(
        memory.x.repeat_interleave(each, 0),
        None if mask is None else mask.repeat_interleave(each, 0),
    )
    hidden = model.decode(Batch(target), repeated)
    kept = labels != IGNORED
    logits = model.head.out(model.head.prepare(hidden)[kept]).float()
    log = logits.log_softmax(-1)
    right = log.gather(-1, labels[kept][:, None])[:, 0]
    first = torch.arange(len(rows), device=device) % each == 0
    inside = first[:, None].expand_as(kept)[kept]  # tokens of targets
    smooth = 0.9 * right[inside] + 0.1 * log[inside].mean(-1)
    plain = -smooth.sum() / inside.sum()
    sums = torch.zeros(labels.shape, device=device).masked_scatter(kept, right).sum(1)
    sums, lengths = (x.view(-1, each)[:, 1:] for x in (sums, kept.sum(1).float()))
    bleu = torch.tensor([j.bleu for j in judged], device=device)
    risk = risk_loss(sums, lengths, bleu, given.sharpness).mean()
    return given.risk * risk + plain, risk.detach(), plain.detach()


def cut(judged: Sequence[Judged], rows: int) -> Iterator[Sequence[Judged]]:
    """Batches of so many sources, fewer of long ones, as memory has room for their scores."""
    at = 0
    while at < len(judged):
        longest = max(len(j.pair.target) for j in judged[at : at + rows])
        yield judged[at : (at := at + max(1, min(rows, 30 * rows // longest)))]


@torch.no_grad()
def dev_bleu(kit: Kit, files: dict[str, list[tuple[str, str]]]) -> list[float]:
    """BLEU of each development set."""
    scores = []
    for pairs in files.values():
        sources = kit.text_tokenizer.encode_batch([source for source, _ in pairs])
        answers = search(kit, sources, 5, 1)
        texts = [kit.text(row[0].tokens) for row in answers]
        scores.append(bleu_chrf(texts, [target for _, target in pairs]).bleu)
    return scores


def read(kit: Kit, given: argparse.Namespace) -> Iterator[list[Pair]]:
    """Chunks of pairs, drawn from the files by their shares."""
    draw = random.Random(given.seed)
    names, shares = given.train[::2], [float(share) for share in given.train[1::2]]
    lines = [list(all_pairs([name])) for name in names]
    stop = min(kit.stops)
    while True:
        files = draw.choices(range(len(names)), shares, k=given.chunk)
        some = [draw.choice(lines[n]) for n in files]
        encode = kit.text_tokenizer.encode_batch
        sources = encode([source for source, _ in some])
        targets = encode([target for _, target in some], side="target")
        rows = zip(sources, targets, [target for _, target in some], strict=True)
        pairs = (Pair(a, b if b[-1:] == [stop] else [*b, stop], text) for a, b, text in rows)
        yield [pair for pair in pairs if max(len(pair.source), len(pair.target)) <= LONGEST]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE SHARE")
    parser.add_argument("--dev", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--risk", type=float, default=10.0, help="weight beside the cross-entropy")
    parser.add_argument("--sharpness", type=float, default=1.0)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--rows", type=int, default=256, help="sources of a step")
    parser.add_argument("--chunk", type=int, default=4096, help="sources that are searched at once")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--ema", type=float, default=0.99)
    parser.add_argument("--every", type=int, default=12, help="chunks between validations")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    device, cuda = given.device, given.device == "cuda"
    kit = regard.load(given.folder, precision=None, device=device)
    finder = regard.load(given.folder, precision="bf16" if cuda else "fp32", device=device)
    finder = replace(finder, driver="plain")  # too many shapes to record
    model = with_dropout(kit.model, given.dropout)
    if cuda:
        compile_blocks(model)
    config = regard.TrainConfig(lr=given.lr, beta2=0.98, weight_decay=0.01, precision="bf16")
    optimizer = build_optimizer(model, config)
    weights = list(model.parameters())
    mean = [weight.detach().clone() for weight in weights]
    start = int(kit.batch([[1]]).ids[0, 0])
    files = {name: list(all_pairs([name])) for name in given.dev}

    def show(now: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for own, weight in zip(finder.model.parameters(), now, strict=True):
                own.copy_(weight)

    chunks, begun, step = read(kit, given), time.perf_counter(), 0
    best, best_weights = 0.0, [weight.cpu() for weight in mean]
    waiting: list[Any] = []
    low = torch.autocast("cuda", torch.bfloat16, enabled=cuda)
    opened = {"initializer": open_judge, "initargs": (given.folder,)}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.processes, spawn, **opened) as pool:
        for number in range(1 << 30):
            over = time.perf_counter() - begun > 60 * given.minutes
            if number % given.every == 0 or over:
                show(mean)
                scores = dev_bleu(finder, files)
                total = sum(scores) / len(scores)
                told = " ".join(f"{score:.2f}" for score in scores)
                took = time.perf_counter() - begun
                print(f"{took:5.0f} s, step {step}: BLEU {total:.2f} = {told}", flush=True)
                if total > best:
                    best, best_weights = total, [weight.cpu().clone() for weight in mean]
            if over:
                break
            show(weights)
            chunk = next(chunks)
            found = search(finder, [p.source for p in chunk], *[given.candidates] * 2)
            found = [[h.tokens for h in row if h.finished] for row in found]
            parts = [slice(at, at + 256) for at in range(0, len(chunk), 256)]
            jobs = [pool.submit(judge, found[p], [c.text for c in chunk[p]]) for p in parts]
            waiting.append((chunk, found, jobs))
            if len(waiting) < 2:
                continue  # the judges work while the next candidates are searched
            chunk, found, jobs = waiting.pop(0)
            scores_of = [row for job in jobs for row in job.result()]
            judged = [
                Judged(pair, rows, bleu)
                for pair, rows, bleu in zip(chunk, found, scores_of, strict=True)
                if len(rows) == given.candidates
            ]
            judged.sort(key=lambda j: len(j.pair.target))
            batches = [*cut(judged, given.rows)]
            random.Random(number).shuffle(batches)
            model.train()
            totals = torch.zeros(2, device=device)
            for batch in batches:
                step += 1
                with low:
                    value, *figures = loss(model, batch, start, given)
                value.backward()
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                for group in optimizer.param_groups:
                    group["lr"] = given.lr * min(1.0, step / 50)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                with torch.no_grad():
                    torch._foreach_lerp_(mean, weights, 1 - min(given.ema, step / (step + 10)))
                totals += torch.stack(figures) / len(batches)
            model.eval()
            risk, plain = totals.tolist()
            took = time.perf_counter() - begun
            if number % 4 == 0:
                tops = sum(j.bleu[0] for j in judged) / len(judged)
                print(
                    f"{took:5.0f} s, step {step}: risk {risk:.4f}, cross-entropy {plain:.4f}, "
                    f"best candidate {100 * tops:.1f}, {len(judged)} sources",
                    flush=True,
                )
    with torch.no_grad():
        for weight, chosen in zip(weights, best_weights, strict=True):
            weight.copy_(chosen)
    with_dropout(kit.model, 0.0)
    regard.export("int8", replace(kit, model=kit.model.cpu()), given.out)
    print(f"best {best:.2f}, written to {given.out}")


if __name__ == "__main__":
    main()
