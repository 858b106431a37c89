"""`regard plan` beside the truth: peak memory and time of ten runs, predicted and measured.

    python bench/plan.py [--json] [--threads N] [--only NAME]

Each run is a process of its own. Memory is the highest resident set from the building of the model
to the end of the first pass, less what the process held before. Time is the quickest of several
passes; predictions and passes take turns, so that a neighbour on the machine disturbs both.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # runs from the source tree

ROUNDS, PASSES = 5, 3


class Case(NamedTuple):
    """One run to be predicted."""

    preset: str
    batch: int
    length: int
    train: bool = False

    @property
    def name(self) -> str:
        """As the table shows it."""
        return f"{self.preset} {self.batch} × {self.length}{' train' if self.train else ''}"


CASES = (
    Case("gpt2", 1, 128),
    Case("gpt2", 4, 256),
    Case("gpt2", 1, 1024),
    Case("smollm2-135m", 1, 512),
    Case("bert-base", 4, 128),
    Case("transformer-base", 8, 64),
    Case("t5-small", 4, 128),
    Case("vit-b16", 4, 197),
    Case("gpt2", 2, 128, train=True),
    Case("llama-15m", 8, 128, train=True),
)


def read_status(key: str) -> int:
    """Bytes of a line in /proc/self/status, such as VmRSS or VmHWM (its peak)."""
    found = re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def measure(case: Case, threads: int) -> dict[str, Any]:
    """Run one case in this process: predictions, peak and seconds."""
    import torch

    from regard.model.cost import RunShape, count_memory
    from regard.model.model import Model
    from regard.model.presets import preset
    from regard.model.timing import Timer

    torch.set_num_threads(threads)
    config, run = preset(case.preset), RunShape(case.batch, case.length, case.length)
    warm = torch.nn.Linear(64, 64)
    torch.nn.functional.cross_entropy(warm(torch.rand(64, 64)), torch.zeros(64).long()).backward()
    torch.optim.AdamW(warm.parameters()).step()  # libraries are loaded before memory is counted
    before = read_status("VmRSS")
    with torch.device("meta"):
        model = Model(config)
    model.to_empty(device="cpu")
    model.tie()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.02)
    work = make_work(model, case)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the building
    for _ in range(2):  # the second has the optimiser's state from its start
        work()
    peak = read_status("VmHWM") - before
    seconds, predicted = [], []
    for _ in range(ROUNDS):
        for _ in range(PASSES):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        predicted.append(sum(Timer(config, run, "cpu", case.train).times().values()))
    return {
        "case": case.name,
        "threads": threads,
        "bytes_predicted": count_memory(config, run, case.train).peak,
        "bytes_measured": peak,
        "seconds_predicted": min(predicted),
        "seconds_measured": min(seconds),
    }


def make_work(model: Any, case: Case) -> Any:
    """One forward pass, or one training step with AdamW."""
    import torch
    import torch.nn.functional as F

    from regard.model.batch import Batch

    front = model.config.front
    if front.kind == "image":
        batch = Batch(torch.rand(case.batch, front.channels, front.height, front.width))
    else:
        ids = torch.randint(1000, (case.batch, case.length))
        batch = Batch(ids, None if model.config.target is None else ids)
    if not case.train:
        model.eval()
        return torch.no_grad()(lambda: model(batch) is None)  # the scores are let go at once
    model.train()
    optimiser = torch.optim.AdamW(model.parameters())

    def loss() -> Any:
        return F.cross_entropy(model(batch).flatten(0, 1), batch.ids.flatten())

    def step() -> None:
        loss().backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def report(rows: list[dict[str, Any]]) -> None:
    """The table and the summary line."""
    print(f"{'run':32}{'peak MiB':>10}{'predicted':>11}{'ratio':>7}", end="")
    print(f"{'seconds':>10}{'predicted':>11}{'ratio':>7}")
    for row in rows:
        memory, clock = ratios(row)
        print(f"{row['case']:32}{row['bytes_measured'] / 2**20:10.0f}", end="")
        print(f"{row['bytes_predicted'] / 2**20:11.0f}{memory:7.2f}", end="")
        print(f"{row['seconds_measured']:10.3f}{row['seconds_predicted']:11.3f}{clock:7.2f}")
    good = [all(abs(ratio - 1) <= 0.2 for ratio in ratios(row)) for row in rows]
    for n, what in enumerate(("memory", "time")):
        close = sum(abs(ratios(row)[n] - 1) <= 0.2 for row in rows)
        print(f"{what} within 20 %: {close} of {len(rows)}")
    print(f"within 20 %: {sum(good)} of {len(rows)}")


def ratios(row: dict[str, Any]) -> tuple[float, float]:
    """Predicted over measured, of memory and of time."""
    memory = row["bytes_predicted"] / row["bytes_measured"]
    return memory, row["seconds_predicted"] / row["seconds_measured"]


def main() -> int:
    """Measure each case in a fresh process and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--threads", type=int, default=1, help="of torch (1: neighbours hurt less)")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)  # in the fresh process
    args = parser.parse_args()
    if args.case is not None:
        print(json.dumps(measure(CASES[args.case], args.threads)))
        return 0
    rows = []
    for number, case in enumerate(CASES):
        if args.only not in case.name:
            continue
        print(case.name, file=sys.stderr)
        command = [sys.executable, __file__, "--case", str(number), "--threads", str(args.threads)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        if args.json:
            print(json.dumps(rows[-1]), flush=True)
    if not args.json:
        report(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
