"""Universal approximation: the wider or deeper the MLPs of a block, the closer to any function.

    python examples/approximation.py [--steps 400] [--json FILE]

The MLP of a Transformer block, on one number: one hidden layer of enough neurons comes as near to a
continuous function as is wanted (Cybenko 1989, Hornik 1991); blocks of few neurons, one after the
other, do so too. A step is not continuous: its error shrinks in the mean and not at the jump.
It says nothing of what happens outside the interval, or whether training finds the weights.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.core.config import BlockConfig
from regard.core.mlp import MLP

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sin 2πx": lambda x: (2 * math.pi * x).sin(),
    "|x|": torch.abs,
    "x³ - x/2": lambda x: x**3 - x / 2,
    "step": lambda x: (x > 0.1).float(),
}
WIDTHS, DEPTHS, DIM = (1, 2, 4, 16, 64), (1, 2, 4), 2


class Blocks(nn.Module):
    """x → two numbers, x and 1; MLPs added one after the other; a weighted sum."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        config = BlockConfig(DIM, 1, width, norm="none", act="gelu")
        self.parts = nn.ModuleList(MLP(config) for _ in range(depth))
        self.out = nn.Linear(DIM, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N,) → (N,)."""
        stream = torch.stack((x, torch.ones_like(x)), -1)
        for part in self.parts:
            stream = stream + part(stream)
        return self.out(stream)[:, 0]


def error(name: str, width: int, depth: int, steps: int) -> float:
    """Root mean square error on points between those of training, the better of two seeds."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        model, f = Blocks(width, depth), FUNCTIONS[name]
        for part in model.parts:
            nn.init.normal_(part.get_submodule("up").weight, 0, 3)  # knees all over the interval
        x, fresh = torch.linspace(-1, 1, 129), torch.linspace(-1, 1, 128)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            loss = (model(x) - f(x)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rates.step()
        with torch.no_grad():
            found.append(float((model(fresh) - f(fresh)).square().mean().sqrt()))
    return min(found)


def curve(values: list[float]) -> str:
    """A bar for each value, on a logarithmic scale from 1 to 0.001."""
    return "".join("▁▂▃▄▅▆▇█"[min(7, max(0, round(7 + 7 / 3 * math.log10(v))))] for v in values)


def main() -> None:
    """Sweep, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--json", help="write all errors")
    args = parser.parse_args()
    made: dict[str, dict[str, list[float]]] = {}
    for what, sizes in (("width", WIDTHS), ("depth", DEPTHS)):
        fixed = "one MLP" if what == "width" else "MLPs of 4 neurons"
        print(f"error by {what}, {fixed}".ljust(34) + "".join(f"{size:>8}" for size in sizes))
        for name in FUNCTIONS:
            pairs = [(size, 1) if what == "width" else (4, size) for size in sizes]
            errors = [error(name, *pair, args.steps) for pair in pairs]
            made.setdefault(what, {})[name] = errors
            row = "".join(f"{value:8.4f}" for value in errors)
            print(f"  {name:<20}{curve(errors):<12}{row}", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps({"steps": args.steps, "error": made}, indent=1))


if __name__ == "__main__":
    main()
