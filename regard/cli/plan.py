"""`regard plan`: FLOPs, memory and time of a run, part by part, before it is run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from regard.cli.doctor import choose_device, free_memory
from regard.cli.opening import open_config
from regard.cli.show import Show, human_bytes, human_count, human_time
from regard.cli.timing import OPTIMISER, Timer
from regard.errors import ResourceError, UsageError
from regard.model.config import ModelConfig, TextConfig
from regard.model.cost import PARTS, Run, count_flops, count_params, passes, table_size
from regard.model.memory import Memory, count_memory, fit_batch
from regard.model.presets import gpt2

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
        times = Timer(config, size, device, args.train, args.dtype).times(progress)
    found = as_data(config, size, memory, times, args)
    found |= {"device": device, "memory_limit": limit, "fits": not suggestion}
    found |= {"suggestion": suggestion or None}
    if show.as_json:
        show.result(found)
    else:
        print_report(found, show)
    if suggestion and args.require_fit:
        found_text = f"a peak of {human_bytes(memory.peak)}"
        expected = f"at most {human_bytes(limit or 0)}"
        raise ResourceError("planning a run", found_text, expected, suggestion)
    return 0


def read_shape(args: argparse.Namespace) -> ModelConfig:
    """The model: a preset, a checkpoint, or a decoder from --dim and the rest."""
    flags = [f"--{name}" for name in SHAPE if getattr(args, name) is not None]
    if args.path is not None:
        if flags:
            raise UsageError("planning a run", f"{args.path} and {flags[0]}", "one of the two")
        return open_config(args.path)
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


def read_run(args: argparse.Namespace, config: ModelConfig) -> Run:
    """Batch and lengths; without --length 512, or as many positions as there are."""

    def default(front: object) -> int:
        learned = isinstance(front, TextConfig) and front.position == "learned"
        return min(512, table_size(front)) if learned else 512  # type: ignore[arg-type]

    length = args.length or default(config.target or config.front)
    source = args.source or args.length or default(config.front)
    size = Run(args.batch or 1, length, source, ITEM[args.dtype])
    passes(config, size)  # a length past a learned table stops here
    return size


def find_limit(args: argparse.Namespace, device: str) -> int | None:
    """Bytes that the run may take."""
    if args.memory is not None:
        return int(args.memory * GIB)
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0])
    return free_memory()


def suggest(config: ModelConfig, size: Run, memory: Memory, limit: int | None, train: bool) -> str:
    """What fits where this does not; empty when it does."""
    if limit is None or memory.peak <= limit:
        return ""
    fit = fit_batch(config, size, limit, train)
    if fit is None:
        return "no batch fits: a smaller model, or a narrower --dtype"
    if fit.length == size.length:
        return f"the largest batch that fits is --batch {fit.batch}"
    return f"the largest that fits is --batch 1 --length {fit.length}"


def as_data(
    config: ModelConfig, size: Run, memory: Memory, times: dict[str, float], args: Any
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
