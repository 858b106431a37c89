"""How fast a GPU decodes: GPT-2's shape writes, and an encoder-decoder (6+6, 512) translates.

    python bench/gpu_decode.py [--drivers plain,fixed,compiled] [--check] [--profile]

prints tokens or sentences per second beside the bars, then JSON; bf16, greedy or beam 5, every row
to its full length. `--check` compares the recorded steps with ordinary ones, `--profile`
lists the kernels that take most of the time. `--device cpu --small` runs the same on tiny models.
The functions `decode_peers` and `translate_peers` give the same models to other benches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from regard.decode.beam import BeamConfig
from regard.decode.loop import Driver, run_search
from regard.decode.sampling import Ends, SampleConfig
from regard.model import presets
from regard.model.batch import Batch
from regard.model.config import ModelConfig
from regard.model.model import Model

NAMES: dict[Driver, str] = {
    "plain": "regard plain",
    "fixed": "regard",
    "compiled": "regard compiled",
}


class Row(NamedTuple):
    """One figure to reach: rows at once, width of the beam, and items per second."""

    work: str
    rows: int
    beams: int
    bar: float


ROWS = [
    Row("generate", 1, 1, 2600),
    Row("generate", 64, 1, 96_000),
    Row("translate", 1, 1, 68),
    Row("translate", 1, 5, 52),
    Row("translate", 512, 1, 11_300),
    Row("translate", 512, 5, 6750),
]

# Models -----------------------------------------------------------------------------------------


def build(config: ModelConfig, device: str, dtype: torch.dtype) -> Model:
    """A model with random weights."""
    return Model.fresh(config).to(device, dtype).eval()


def answers(model: Model, batch: Batch, new: int, beams: int, driver: Driver) -> Tensor:
    """New ids (B, new), nothing ending a row before."""
    how = BeamConfig(beams) if beams > 1 else None
    found = run_search(model, batch, new, how, Ends(), driver=driver)
    return torch.tensor([row[0].tokens for row in found])


def go_on(model: Model, driver: Driver, ids: Tensor, new: int) -> Tensor:
    """What a decoder writes after ids (B, T)."""
    return answers(model, Batch(ids), new, 1, driver)


def translate(model: Model, driver: Driver, source: Tensor, beams: int, new: int) -> Tensor:
    """What an encoder-decoder writes for ids (B, S)."""
    start = torch.zeros(len(source), 1, dtype=torch.long, device=source.device)
    return answers(model, Batch(source, start), new, beams, driver)


def decode_peers(vocab: int) -> Iterator[tuple[str, Callable[[Tensor, int], Tensor]]]:
    """Greedy generation with GPT-2's shape: (name, function of ids and the number of new ones)."""
    model = build(presets.gpt2(768, 12, 12, vocab=vocab), "cuda", torch.bfloat16)
    for driver in ("fixed", "compiled"):
        yield NAMES[driver], partial(go_on, model, driver)


def translate_peers(vocab: int) -> Iterator[tuple[str, Callable[[Tensor, int, int], Tensor]]]:
    """Translation, 6+6 layers of 512: (name, function of source, width of the beam, new ids)."""
    model = build(presets.transformer(512, 6, 8, vocab), "cuda", torch.bfloat16)
    for driver in ("fixed", "compiled"):
        yield NAMES[driver], partial(translate, model, driver)


# Time -------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Seconds of the first call, which records, and the median of those after the second."""
    times = []
    for _ in range(repeats + 2):
        sync()
        start = time.perf_counter()
        work()
        sync()
        times.append(time.perf_counter() - start)
    return times[0], statistics.median(times[2:])


def sync() -> None:
    """Wait for the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def works(args: argparse.Namespace) -> Iterator[tuple[Row, int, Callable[[Driver], Tensor]]]:
    """Each row with the number of items in one call and the call."""
    dtype = torch.float32 if args.device == "cpu" else torch.bfloat16
    gpt2 = presets.gpt2(64, 2, 4, vocab=500) if args.small else presets.gpt2(768, 12, 12)
    pair = presets.transformer(*((64, 2, 4, 500) if args.small else (512, 6, 8, 32_000)))
    models = {"generate": build(gpt2, args.device, dtype)}
    models["translate"] = build(pair, args.device, dtype)
    for row in ROWS:
        rows = min(row.rows, 4) if args.small else row.rows
        model, vocab = models[row.work], 500 if args.small else 32_000
        ids = torch.randint(3, vocab, (rows, 32 if row.work == "generate" else 24))
        ids = ids.to(args.device)
        new = (16 if args.small else 256) if row.work == "generate" else 32
        if row.work == "generate":
            yield row, rows * new, partial(call_go_on, model, ids, new)
        else:
            yield row, rows, partial(call_translate, model, ids, row.beams, new)


def call_go_on(model: Model, ids: Tensor, new: int, driver: Driver) -> Tensor:
    """`go_on` with the driver last."""
    return go_on(model, driver, ids, new)


def call_translate(model: Model, ids: Tensor, beams: int, new: int, driver: Driver) -> Tensor:
    """`translate` with the driver last."""
    return translate(model, driver, ids, beams, new)


def measure(args: argparse.Namespace) -> None:
    """Time each row with each driver; a table, then JSON."""
    found = []
    print(f"{'work':12}{'rows':>6}{'beam':>6}{'driver':>10}{'first s':>9}{'per s':>12}{'bar':>9}")
    for row, items, call in works(args):
        for driver in args.drivers.split(","):
            first, median = seconds(partial(call, driver), args.repeats)
            rate = items / median
            found.append({**row._asdict(), "driver": driver, "first_s": first, "per_s": rate})
            print(
                f"{row.work:12}{row.rows:6}{row.beams:6}{driver:>10}{first:9.2f}{rate:12,.0f}"
                f"{row.bar:9,.0f}{'' if rate >= row.bar else '  below'}",
                flush=True,
            )
    device = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print(json.dumps({"torch": torch.__version__, "device": device, "rows": found}))


def profile(args: argparse.Namespace) -> None:
    """The fifteen kernels that take most of the time of one call, and how many there are."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if args.device == "cuda" else []
    order = "self_device_time_total" if args.device == "cuda" else "self_cpu_time_total"
    for row, _, call in works(args):
        for driver in args.drivers.split(","):
            for _ in range(2):
                call(driver)
            with torch.profiler.profile(activities=kinds) as seen:
                call(driver)
                sync()
            print(f"\n{row.work}, {row.rows} rows, beam {row.beams}, {driver}")
            print(seen.key_averages().table(sort_by=order, row_limit=15, max_name_column_width=70))


# The same answers -------------------------------------------------------------------------------


def check(args: argparse.Namespace) -> None:
    """Recorded against ordinary steps on models whose weights make them talk.

    Fails if tokens differ in float64. In float32 a few rows may: rounding decides near ties.
    """
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    configs = {
        "gpt2": presets.gpt2(128, 3, 4, vocab=1000, length=512),
        "llama": presets.llama(128, 3, 4, 2, 256, 1000, 512),
        "transformer": presets.transformer(128, 3, 4, 1000),
        "t5": presets.t5(128, 3, 4, 256, head_dim=32, vocab=1000),
    }
    hows = {
        "greedy": None,
        "sample": SampleConfig(temperature=1.3, top_p=0.95, seed=5),
        "beam 5": BeamConfig(5, 3),
        "groups": BeamConfig(6, 3, groups=3, diversity=0.5),
    }
    bad = 0
    for (name, config), dtype in product(configs.items(), (torch.float64, torch.float32)):
        model = talkative(build(config, args.device, dtype))
        for (how, search), padded in product(hows.items(), (False, True)):
            limits = [40 + 3 * n for n in range(24)] if padded else 70
            batch = check_batch(model, padded, args.device)
            call = partial(run_search, model, batch, limits, search, Ends({7, 8, 9}))
            plain = call(driver="plain")
            for driver in args.drivers.split(","):
                pairs = [
                    pair for _ in range(2) for pair in zip(plain, call(driver=driver), strict=True)
                ]
                other = sum([h.tokens for h in a] != [h.tokens for h in b] for a, b in pairs)
                bad += other if dtype == torch.float64 else 0
                print(f"{name:12}{how:8}{dtype!s:15}padded={padded!s:6}{driver:>9}: {other} differ")
    print("all equal in float64" if not bad else f"{bad} rows differ in float64")
    sys.exit(1 if bad else 0)


@torch.no_grad()
def talkative(model: Model) -> Model:
    """Weights large enough that the next token depends on those before."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=1.5 * parameter.shape[-1] ** -0.5)
    return model


def check_batch(model: Model, padded: bool, device: str) -> Batch:
    """24 rows; with padding on the left if so wished."""
    ids = torch.randint(10, 1000, (24, 21), device=device)
    mask = torch.arange(21, device=device) >= torch.arange(24, device=device)[:, None] % 20
    real = mask if padded else None
    if model.config.target is None:
        return Batch(ids, mask=real)
    start = torch.zeros(24, 1, dtype=torch.long, device=device)
    return Batch(ids, start, source_mask=real)


def main() -> None:
    """Read the flags and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, to try the script")
    parser.add_argument("--drivers", default="fixed,compiled", help="plain, fixed, compiled")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        check(args)
    (profile if args.profile else measure)(args)


if __name__ == "__main__":
    main()
