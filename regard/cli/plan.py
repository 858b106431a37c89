"""`regard plan`: FLOPs, memory, time, disk and energy of a run, before it is run."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.ambient import choose_device
from regard.cli.show import Show, human_bytes, human_count, human_time
from regard.cli.timing import OPTIMISER, Timer
from regard.errors import ResourceError, UsageError
from regard.heap import free_memory
from regard.interop.weights import outline
from regard.loading import find_source
from regard.model.config import ModelConfig, TextConfig
from regard.model.cost import (
    PARTS,
    MemoryCost,
    RunShape,
    count_disk,
    count_flops,
    count_memory,
    count_params,
    fit_batch,
    passes,
    table_size,
)
from regard.model.presets import gpt2, preset

GIB = 2**30
ITEM = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
SHAPE = ("dim", "depth", "heads", "hidden", "vocab")


def run(args: argparse.Namespace, show: Show) -> int:
    """Print a table of parts; 4 when it does not fit and --require-fit asks."""
    config = read_shape(args)
    size = read_run(args, config)
    device = choose_device(args.device)
    memory, limit = count_memory(config, size, args.train), find_limit(args, device)
    suggestion = suggest(config, size, memory, limit, args.train)
    with show.progress("planning") as progress:
        try:
            times = Timer(config, size, device, args.train, args.dtype).times(progress)
        except RuntimeError as error:  # torch's word for a block that this machine cannot hold
            if not suggestion:
                raise
            raise too_large(memory, limit, suggestion) from error
    found = as_data(config, size, memory, times, args)
    found |= {"device": device, "memory_limit": limit, "fits": not suggestion}
    found |= {"suggestion": suggestion or None}
    found["whole"] = whole_run(config, size, found["total"]["seconds"], device, args)
    if show.as_json:
        show.result(found)
    else:
        print_report(found, show)
    if suggestion and args.require_fit:
        raise too_large(memory, limit, suggestion)
    needed, free = found["whole"]["disk_bytes"], found["whole"]["disk_free"]
    if needed > free and args.require_fit:
        fix = "another disk, or a smaller --keep"
        raise ResourceError(
            "planning a run", f"{human_bytes(free)} of disk", human_bytes(needed), fix
        )
    return 0


def too_large(memory: MemoryCost, limit: int | None, suggestion: str) -> ResourceError:
    """What is missing, and what would fit."""
    found, expected = f"a peak of {human_bytes(memory.peak)}", f"at most {human_bytes(limit or 0)}"
    return ResourceError("planning a run", found, expected, suggestion)


def read_shape(args: argparse.Namespace) -> ModelConfig:
    """The model: a preset, a checkpoint, or a decoder from --dim and the rest."""
    flags = [f"--{name}" for name in SHAPE if getattr(args, name) is not None]
    if args.path is not None:
        if flags:
            raise UsageError("planning a run", f"{args.path} and {flags[0]}", "one of the two")
        source = find_source(args.path)
        return preset(args.path) if source is None else outline(source)[0].config
    if args.dim is None:
        raise UsageError(
            "planning a run",
            "no model",
            "a preset, a checkpoint, or --dim",
            "regard plan gpt2, or regard plan --dim 1024 --length 8192",
        )
    heads = args.heads or max(args.dim // 64, 1)
    length = args.length or 512
    config = gpt2(args.dim, args.depth or 12, heads, args.vocab or 50257, length)
    assert config.decoder is not None
    block = replace(config.decoder.block, hidden=args.hidden or 4 * args.dim)
    return replace(config, decoder=replace(config.decoder, block=block))


def read_run(args: argparse.Namespace, config: ModelConfig) -> RunShape:
    """Batch and lengths; without --length 512, or as many positions as there are."""

    def default(front: object) -> int:
        learned = isinstance(front, TextConfig) and front.position == "learned"
        return min(512, table_size(front)) if learned else 512  # type: ignore[arg-type]

    length = args.length or default(config.target or config.front)
    source = args.source or args.length or default(config.front)
    size = RunShape(args.batch or 1, length, source, ITEM[args.dtype])
    passes(config, size)  # a length past a learned table stops here
    return size


def find_limit(args: argparse.Namespace, device: str) -> int | None:
    """Bytes that the run may take."""
    return free_memory(device) if args.memory is None else int(args.memory * GIB)


def suggest(
    config: ModelConfig, size: RunShape, memory: MemoryCost, limit: int | None, train: bool
) -> str:
    """What fits where this does not; empty when it does."""
    if limit is None or memory.peak <= limit:
        return ""
    fit = fit_batch(config, size, limit, train)
    if fit is None:
        return "no batch fits: a smaller model, or a narrower --dtype"
    if fit.length == size.length:
        return f"the largest batch that fits is --batch {fit.batch}"
    return f"the largest that fits is --batch 1 --length {fit.length}"


def whole_run(
    config: ModelConfig, size: RunShape, seconds: float, device: str, args: argparse.Namespace
) -> dict[str, Any]:
    """Time, disk and energy of all steps."""
    checkpoint, disk = count_disk(config, size, args.train, args.keep)
    watts = args.watts if args.watts is not None else find_watts(device)
    joules = None if watts is None else watts * seconds * args.steps
    return {
        "steps": args.steps,
        "seconds": seconds * args.steps,
        "checkpoint_bytes": checkpoint,
        "disk_bytes": disk,
        "disk_free": shutil.disk_usage(".").free,
        "watts": watts,
        "joules": joules,
    }


def find_watts(device: str) -> float | None:
    """The power that the system lets a device draw; None where it does not say."""
    try:
        if device == "cuda":
            asked = ["nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
            done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20)
            return float(done.stdout.splitlines()[0])
        limits = Path("/sys/class/powercap").glob("intel-rapl:?/constraint_0_power_limit_uw")
        return sum(int(limit.read_text()) for limit in limits) / 1e6 or None
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def as_data(
    config: ModelConfig, size: RunShape, memory: MemoryCost, times: dict[str, float], args: Any
) -> dict[str, Any]:
    """The plan as plain data: FLOPs, bytes and seconds."""
    flops = count_flops(config, size, args.train)
    parts = {
        part: {"flops": flops.get(part), "bytes": memory.parts.get(part), "seconds": times[part]}
        for part in (*PARTS, *([OPTIMISER] if args.train else []))
    }
    if args.train:
        parts[OPTIMISER]["bytes"] = memory.optimiser
    return {
        "model": args.path or f"decoder of dim {args.dim}",
        "run": {
            "batch": size.batch,
            "tokens": {one.name: one.tokens for one in passes(config, size)},
            "dtype": args.dtype,
            "train": args.train,
        },
        "parameters": sum(count_params(config).values()),
        "parts": parts,
        "total": {
            "flops": sum(flops.values()),
            "weight_bytes": memory.weights,
            "gradient_bytes": memory.gradients,
            "optimiser_bytes": memory.optimiser,
            "peak_bytes": memory.peak,
            "seconds": sum(times.values()),
        },
    }


def print_report(found: dict[str, Any], show: Show) -> None:
    """The same for people."""
    size, total = found["run"], found["total"]
    rows = [
        (
            part,
            "" if costs["flops"] is None else human_count(costs["flops"]),
            human_bytes(costs["bytes"]),
            human_time(costs["seconds"]),
        )
        for part, costs in found["parts"].items()
    ]
    rows.append(("total", human_count(total["flops"]), "", human_time(total["seconds"])))
    tokens = ", ".join(f"{count:,} tokens in the {name}" for name, count in size["tokens"].items())
    what = "one training step" if size["train"] else "one forward pass"
    title = f"{what} of {found['model']}: batch {size['batch']}, {tokens}, {size['dtype']}"
    kept = "kept" if size["train"] else "alive"
    show.table(title, ("part", "FLOPs", f"memory {kept}", "time"), rows)
    lines = {
        "parameters": f"{found['parameters']:,}",
        "weights": human_bytes(total["weight_bytes"]),
    }
    if size["train"]:
        lines["gradients"] = human_bytes(total["gradient_bytes"])
        lines["AdamW"] = human_bytes(total["optimiser_bytes"])
    lines["peak memory"] = human_bytes(total["peak_bytes"])
    limit = found["memory_limit"]
    if limit is not None:
        lines["fits"] = f"yes, into {human_bytes(limit)}" if found["fits"] else "NO"
    if not found["fits"]:
        lines["fits"] = f"NO: there are {human_bytes(limit)}; {found['suggestion']}"
    speed = total["flops"] / max(total["seconds"], 1e-9)
    lines["speed"] = f"{human_count(speed)}FLOP/s on {found['device']}, by timing one block here"
    show.fields("in all", lines)
    show.fields(
        f"{found['whole']['steps']:,} of them", describe_whole(found["whole"], size["train"])
    )


def describe_whole(whole: dict[str, Any], train: bool) -> dict[str, str]:
    """Time, disk and energy for people."""
    disk, free = human_bytes(whole["disk_bytes"]), human_bytes(whole["disk_free"])
    of = f" ({human_bytes(whole['checkpoint_bytes'])} a checkpoint)" if train else ""
    short = "; NOT ENOUGH" if whole["disk_bytes"] > whole["disk_free"] else ""
    energy = "not known: give --watts"
    if whole["joules"] is not None:
        energy = f"at most {whole['joules'] / 3.6e6:,.3g} kWh, at {whole['watts']:,.0f} W"
    return {
        "time": human_time(whole["seconds"]),
        "disk": f"{disk}{of}, {free} are free here{short}",
        "energy": energy,
    }
