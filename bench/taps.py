"""What idle taps cost: time of one idle call × number of taps, as a share of a forward step.

    python bench/taps.py

runs a model of GPT-2's shape (12 blocks, width 768, float32, CPU) and prints JSON. The bar is
0.1 %. Calls are timed apart from the step, for the difference of two steps drowns in their noise.
"""

from __future__ import annotations

import json
import statistics
import timeit

import torch

from regard.core.tap import Tap, taps
from regard.model.batch import Batch
from regard.model.model import Model
from regard.model.presets import preset

SHAPES = [(1, 128), (4, 256)]
BAR = 0.001


def idle_call(repeats: int = 7, calls: int = 200_000) -> float:
    """Seconds that one idle tap adds: the call, less the loop that timeit runs around it."""
    tap, x = Tap(), torch.zeros(1)
    names = {"tap": tap, "x": x}
    call = min(timeit.repeat("tap(x)", globals=names, number=calls, repeat=repeats))
    loop = min(timeit.repeat("x", globals=names, number=calls, repeat=repeats))
    return (call - loop) / calls


def step(model: Model, batch: Batch, repeats: int = 5) -> float:
    """Median seconds of a forward pass."""
    model(batch)
    return statistics.median(timeit.repeat(lambda: model(batch), number=1, repeat=repeats))


@torch.no_grad()
def main() -> None:
    """Measure and print."""
    model = Model.fresh(preset("gpt2"))
    count, call = len(taps(model)), idle_call()
    rows = []
    for rows_of_batch, length in SHAPES:
        ids = torch.randint(0, 50257, (rows_of_batch, length))
        seconds = step(model, Batch(ids))
        share = call * count / seconds
        rows.append(
            {
                "batch": rows_of_batch,
                "length": length,
                "step_ms": round(seconds * 1e3, 2),
                "share": share,
                "percent": round(share * 100, 5),
                "below_bar": share < BAR,
            }
        )
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                "taps": count,
                "idle_call_ns": round(call * 1e9, 1),
                "bar_percent": BAR * 100,
                "steps": rows,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
