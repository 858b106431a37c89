"""Watch induction heads form: a two-layer, attention-only model learns to continue repeats.

    python examples/induction.py [--steps 2000] [--device cpu|cuda] [--out NAME]

Sequences are random tokens, then the same ones again, of any period. At first the model can only
guess; then, within a few hundred steps, one head learns to look at the token before and another to
look for where the present token stood, and the loss of what is repeated falls off a cliff: the bump
of Olsson et al. (2022). What the heads do is measured as the model is trained, by the same taps.
--out writes all figures to NAME.json and, where there is matplotlib, the bump to NAME.png.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

import regard
from regard.look.capture import Board
from regard.look.circuit import CircuitConfig, find_circuit
from regard.look.goal import Goal
from regard.look.heads import best_heads, head_scores
from regard.look.patching import Pairs
from regard.look.picture import can_draw, draw_bump
from regard.look.repeats import random_repeats
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from regard.train.objectives import token_loss

COLUMNS = ("step", "loss", "previous", "induction")
VOCAB, LENGTH, ROWS = 64, 32, 64


def repeated(rows: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random tokens, written again and again, and what is to be predicted, each (B, 2 · LENGTH).

    Each row has a period of its own: else a head could look so many places back, and learn nothing.
    """
    once = torch.randint(VOCAB, (rows, LENGTH), generator=dice)
    period = torch.randint(LENGTH // 3, LENGTH + 1, (rows, 1), generator=dice)
    place = torch.arange(2 * LENGTH + 1).expand(rows, -1)
    ids = once.gather(1, place % period)
    labels = ids.masked_fill(place <= period, -100)  # the first time nothing can be known
    return ids[:, :-1], labels[:, 1:]


def train(steps: int, device: str) -> tuple[Board, list[tuple[int, float, float, float]]]:
    """The model, and at each measurement: step, loss of the repeat, best scores of heads."""
    model = Model.fresh(presets.gpt2(64, 2, 4, VOCAB, 2 * LENGTH)).to(device).train()
    board = Board(model)
    board.attach({"*.mlp.out": regard.zero()})  # attention only
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    dice, seen = torch.Generator().manual_seed(0), []
    test = random_repeats(range(VOCAB), LENGTH, 16, seed=1)
    for step in range(steps + 1):
        ids, labels = (part.to(device) for part in repeated(ROWS, dice))
        loss = token_loss(model, Batch(ids), labels)
        (loss.sum / loss.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            scores = head_scores(board, test)
            best = (best_heads(scores, by)[0] for by in ("previous", "induction"))
            previous, induction = ((head.previous, head.induction) for head in best)
            seen.append(
                (step, float(loss.plain / loss.tokens), previous[0] or 0, induction[1] or 0)
            )
            print("step {:5}  loss {:.3f}  previous {:.2f}  induction {:.2f}".format(*seen[-1]))
    model.eval()
    return board, seen


def pairs(count: int, device: str) -> Pairs:
    """… a b … a → b; in the twin the first a is another token."""
    dice = torch.Generator().manual_seed(2)
    once = torch.stack([torch.randperm(VOCAB, generator=dice)[: LENGTH + 1] for _ in range(count)])
    clean = torch.cat((once[:, :LENGTH], once[:, :9]), 1)
    corrupt = clean.clone()
    corrupt[:, 8] = once[:, LENGTH]
    goal = Goal(once[:, 9], once[:, 7])
    return Pairs(Batch(clean.to(device)), Batch(corrupt.to(device)), goal)


def write(
    name: str, figures: dict[str, object], seen: list[tuple[int, float, float, float]]
) -> None:
    """All figures as JSON, and their picture where it can be drawn."""
    Path(f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(f"figures: {name}.json")
    if can_draw():
        Path(f"{name}.png").write_bytes(draw_bump(seen))
        print(f"picture: {name}.png")
    else:
        print("no picture: matplotlib is missing (pip install matplotlib)")


def main() -> None:
    """Train, say which heads do it, and prove it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", metavar="NAME", help="write NAME.json and NAME.png")
    args = parser.parse_args()
    began = time.perf_counter()
    board, seen = train(args.steps, args.device)
    seconds = time.perf_counter() - began
    found = find_circuit(board, pairs(32, args.device), CircuitConfig(keep=0.8, mlps=False))
    share, random = found.certificate.faithfulness["resample"], found.certificate.random
    print(f"circuit: {', '.join(map(str, found.nodes))}")
    print(f"faithfulness {share.value:.2f} ({share.low:.2f} to {share.high:.2f})", end=", ")
    print(f"random circuits {random.value:.2f}; trained in {seconds:.0f} s")
    if args.out:
        figures = {
            "device": args.device,
            "seconds": seconds,
            "training": [dict(zip(COLUMNS, row, strict=True)) for row in seen],
            "circuit": [str(node) for node in found.nodes],
            "faithfulness": share._asdict(),
            "random": random._asdict(),
        }
        write(args.out, figures, seen)


if __name__ == "__main__":
    main()
