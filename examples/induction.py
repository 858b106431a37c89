"""Watch induction heads form: a two-layer, attention-only model learns to continue repeats.

    python examples/induction.py [--steps 2000] [--device cpu|cuda] [--out NAME] [--text FILE]

Sequences are random tokens, then the same ones again, of any period. At first the model can only
guess; then, within a few hundred steps, one head learns to look at the token before and another to
look for where the present token stood, and the loss of what is repeated falls off a cliff: the bump
of Olsson et al. (2022). What the heads do is measured as the model is trained, by the same taps.
With --text a wider model learns to write a text, such as WikiText, cut into 4,096 pieces, and the
loss is that of held-out text; nothing tells it to repeat, and the heads form all the same.
--out writes all figures to NAME.json and, where there is matplotlib, the bump to NAME.png.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from regard.data.text_files import read_lines
from regard.errors import UsageError
from regard.look.circuit_search import CircuitConfig, find_circuit
from regard.look.head_scores import best_heads, random_repeats, score_heads
from regard.look.hooks import HookedModel
from regard.look.patching import Goal, Pairs
from regard.model import presets
from regard.model.batch import Batch
from regard.model.model import Model
from regard.result import new_figure
from regard.tokens.trainers import train_tokenizer
from regard.train.objectives import token_loss

COLUMNS = ("step", "loss", "previous", "induction")
VOCAB, LENGTH, ROWS = 64, 32, 64
Row = tuple[int, float, float, float]


class Repeats:
    """Random tokens, written again and again; each row has a period of its own.

    Else a head could look so many places back, and learn nothing.
    """

    shape = presets.gpt2(64, 2, 4, VOCAB, 2 * LENGTH)
    rate = 2e-3

    def draw(self, rows: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
        """What is read and what is to be predicted, each (B, 2 · LENGTH)."""
        once = torch.randint(VOCAB, (rows, LENGTH), generator=dice)
        period = torch.randint(LENGTH // 3, LENGTH + 1, (rows, 1), generator=dice)
        place = torch.arange(2 * LENGTH + 1).expand(rows, -1)
        ids = once.gather(1, place % period)
        labels = ids.masked_fill(place <= period, -100)  # the first time nothing can be known
        return ids[:, :-1], labels[:, 1:]

    held = draw  # there is no end of them


class Pages:
    """Stretches of a text; the last tenth is held out."""

    shape = presets.gpt2(256, 2, 8, 4096, 256)
    rate = 1e-3

    def __init__(self, path: str) -> None:
        lines = list(read_lines(path))
        tokenizer = train_tokenizer(lines, "bpe", 4096)
        rows = tokenizer.encode_batch([f"{line}\n" for line in lines])
        ids = torch.tensor([id for row in rows for id in row])
        self.train, self.test = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]

    def cut(self, ids: Tensor, rows: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
        """Stretches from anywhere, and the same one token on, each (B, 256)."""
        start = torch.randint(len(ids) - 257, (rows, 1), generator=dice)
        found = ids[start + torch.arange(257)]
        return found[:, :-1], found[:, 1:]

    def draw(self, rows: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
        """To learn from."""
        return self.cut(self.train, rows, dice)

    def held(self, rows: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
        """To measure on."""
        return self.cut(self.test, rows, dice)


def draw_bump(rows: list[Row], file: str) -> None:
    """A picture of training: by step the loss, and the best score of a head of two kinds."""
    figure = new_figure(7, 4.5)
    left = figure.subplots()
    right = left.twinx()
    steps = [row[0] for row in rows]
    left.plot(steps, [row[1] for row in rows], color="black", label="loss")
    for n, (name, colour) in enumerate((("previous token", "tab:blue"), ("induction", "tab:red"))):
        right.plot(steps, [row[2 + n] for row in rows], color=colour, label=name)
    left.set(xlabel="step", ylabel="loss, nats")
    right.set(ylabel="best score of a head", ylim=(0, 1))
    figure.legend(loc="outside upper center", ncols=3)
    figure.savefig(file, dpi=150)


def train(data: Repeats | Pages, steps: int, device: str) -> tuple[HookedModel, list[Row]]:
    """The model, and at each measurement: step, loss, best scores of heads."""
    torch.manual_seed(0)
    model = Model.fresh(data.shape).to(device).train()
    hooked = HookedModel(model)
    for name, weight in model.named_parameters():
        if ".mlp.down." in name:  # attention only: no MLP ever writes
            weight.data.zero_()
            weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=data.rate, weight_decay=0.0)
    dice, seen = torch.Generator().manual_seed(0), []
    asked = [part.to(device) for part in data.held(ROWS, torch.Generator().manual_seed(1))]
    length = min(data.shape.front.length // 2, 100)
    test = random_repeats(range(data.shape.front.vocab), length, 16, seed=1)
    for step in range(steps + 1):
        ids, labels = (part.to(device) for part in data.draw(ROWS, dice))
        loss = token_loss(model, Batch(ids), labels)
        (loss.sum / loss.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            with torch.no_grad():
                loss = token_loss(model, Batch(asked[0]), asked[1])
            scores = score_heads(hooked, test)
            best = (best_heads(scores, by)[0] for by in ("previous", "induction"))
            previous, induction = ((head.previous, head.induction) for head in best)
            seen.append(
                (step, float(loss.plain / loss.tokens), previous[0] or 0, induction[1] or 0)
            )
            print("step {:5}  loss {:.3f}  previous {:.2f}  induction {:.2f}".format(*seen[-1]))
    model.eval()
    return hooked, seen


def pairs(count: int, device: str) -> Pairs:
    """… a b … a → b; in the twin the first a is another token."""
    dice = torch.Generator().manual_seed(2)
    once = torch.stack([torch.randperm(VOCAB, generator=dice)[: LENGTH + 1] for _ in range(count)])
    clean = torch.cat((once[:, :LENGTH], once[:, :9]), 1)
    corrupt = clean.clone()
    corrupt[:, 8] = once[:, LENGTH]
    goal = Goal(once[:, 9], once[:, 7])
    return Pairs(Batch(clean.to(device)), Batch(corrupt.to(device)), goal)


def prove(hooked: HookedModel, device: str) -> dict[str, object]:
    """The circuit, and what it is worth."""
    found = find_circuit(hooked, pairs(32, device), CircuitConfig(keep=0.8, mlps=False))
    share, random = found.certificate.faithfulness["resample"], found.certificate.random
    print(f"circuit: {', '.join(str(node) for node in found.nodes)}")
    print(f"faithfulness {share.value:.2f} ({share.low:.2f} to {share.high:.2f})", end=", ")
    print(f"random circuits {random.value:.2f}")
    nodes = [str(node) for node in found.nodes]
    return {"circuit": nodes, "faithfulness": share.to_dict(), "random": random.to_dict()}


def write(name: str, figures: dict[str, object], seen: list[Row]) -> None:
    """All figures as JSON, and their picture where it can be drawn."""
    Path(f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(f"figures: {name}.json")
    try:
        draw_bump(seen, f"{name}.png")
        print(f"picture: {name}.png")
    except UsageError as error:
        print(f"no picture: {error}")


def main() -> None:
    """Train, say which heads do it, and prove it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", metavar="NAME", help="write NAME.json and NAME.png")
    parser.add_argument("--text", metavar="FILE", help="learn this text, not random repeats")
    args = parser.parse_args()
    data = Pages(args.text) if args.text else Repeats()
    began = time.perf_counter()
    hooked, seen = train(data, args.steps, args.device)
    seconds = time.perf_counter() - began
    print(f"trained in {seconds:.0f} s")
    figures: dict[str, object] = {
        "device": args.device,
        "seconds": seconds,
        "training": [dict(zip(COLUMNS, row, strict=True)) for row in seen],
    }
    if not args.text:
        figures |= prove(hooked, args.device)
    if args.out:
        write(args.out, figures, seen)


if __name__ == "__main__":
    main()
