"""Generation on a CPU in float32, bf16 and int8, beside each other or beside peers.

    python bench/cpu_generate.py [--json] [--batch N] [--prompt N] [--tokens N] [--rounds N]

measures regard alone: new tokens per CPU-second at one thread, the precisions taking turns, so that
a neighbour on the machine disturbs all. A harness that races peers takes this file as it is: PEERS
maps a name to a factory, a factory takes the settings (batch, prompt, tokens, threads) and returns
a function that writes once and says how many tokens it wrote.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

from bench.race import Run, race


def prepare(settings: dict[str, Any], precision: str | None) -> Run:
    """GPT-2 124M with fresh weights, ready to continue random prompts greedily."""
    import torch

    from regard.decode.loop import run_search
    from regard.model.batch import Batch
    from regard.model.model import Model
    from regard.model.precision import set_precision
    from regard.model.presets import preset

    torch.set_num_threads(settings["threads"])
    model = Model.fresh(preset("gpt2"))
    set_precision(model, precision)
    draw = torch.Generator().manual_seed(0)
    batch = Batch(torch.randint(50257, (settings["batch"], settings["prompt"]), generator=draw))

    def run() -> int:
        found = run_search(model, batch, settings["tokens"])
        return sum(len(row[0].tokens) for row in found)

    return run


PEERS: dict[str, Callable[[dict[str, Any]], Run]] = {
    "regard-plain": partial(prepare, precision=None),
    "regard-int8": partial(prepare, precision="int8"),
}


def main() -> int:
    """Race the precisions and print tokens per CPU-second."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    for name, number in (("batch", 1), ("prompt", 32), ("tokens", 128), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N")
    args = parser.parse_args()
    settings = {name: getattr(args, name) for name in ("batch", "prompt", "tokens")}
    runs = {name: make(settings | {"threads": 1}) for name, make in PEERS.items()}
    race(runs, args.rounds, settings, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
