"""What strict mode costs: its time as a ratio to ordinary mode's, on the same work.

    python bench/strict.py [repeats]

GPT-2's shape reads 512 tokens and writes 64; BERT's shape reads batches of 16 texts, of equal and
of unequal length. Strict mode computes no padding, so that it may even be the faster one there.
The two modes take turns, so that a busy machine slows both; ratios are of medians.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

from regard.kit import Kit
from regard.model.model import Model
from regard.model.presets import preset

Work = Callable[[bool], object]


def prefill(kit: Kit) -> Work:
    """Read 512 tokens at once."""
    ids = torch.randint(0, 50257, (1, 512))
    return lambda strict: kit.logits(ids, strict=strict)


def decode(kit: Kit) -> Work:
    """Write 64 tokens after a prompt of 32, one at a time through a cache."""
    ids = torch.randint(0, 50257, (1, 96))

    def work(strict: bool) -> None:
        cache = kit.cache(1, 96, strict=strict)
        kit.logits(ids[:, :32], cache=cache, strict=strict)
        for column in range(32, 96):
            kit.logits(ids[:, column : column + 1], cache=cache, strict=strict)

    return work


def encode(kit: Kit, shortest: int) -> Work:
    """Read 16 texts of `shortest` to 128 tokens, padded on the right."""
    ids = torch.randint(0, 30522, (16, 128))
    lengths = torch.linspace(shortest, 128, 16).long()
    mask = torch.arange(128) < lengths[:, None]
    return lambda strict: kit.logits(ids, mask=mask, strict=strict)


def measure(work: Work, repeats: int) -> tuple[float, float]:
    """Median seconds in ordinary and in strict mode, taken in turns."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(repeats + 1):
        for strict in (False, True):
            start = time.perf_counter()
            work(strict)
            if turn:  # the first turn warms up
                times[strict].append(time.perf_counter() - start)
    return statistics.median(times[False]), statistics.median(times[True])


def main(repeats: int = 5) -> None:
    """Measure and print a table, then JSON."""
    torch.manual_seed(0)
    gpt2, bert = (Kit(Model.fresh(preset(name))) for name in ("gpt2", "bert-base"))
    works = {
        "GPT-2 shape, prefill of 512 tokens": prefill(gpt2),
        "GPT-2 shape, 64 steps of decoding": decode(gpt2),
        "BERT shape, 16 texts of 128 tokens": encode(bert, 128),
        "BERT shape, 16 texts of 16 to 128 tokens": encode(bert, 16),
    }
    rows = []
    print(f"{'work':42}{'ordinary':>12}{'strict':>12}{'ratio':>8}")
    for name, work in works.items():
        ordinary, strict = measure(work, repeats)
        rows.append({"work": name, "ordinary_s": ordinary, "strict_s": strict})
        rows[-1]["ratio"] = strict / ordinary
        print(f"{name:42}{ordinary * 1e3:9.1f} ms{strict * 1e3:9.1f} ms{strict / ordinary:8.2f}")
    settings = {"torch": torch.__version__, "threads": torch.get_num_threads(), "repeats": repeats}
    print(json.dumps(settings | {"rows": rows}, indent=2))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
