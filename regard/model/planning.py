"""FLOPs, memory, time, disk and energy of a run before it is run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from regard.ambient import choose_device
from regard.errors import ResourceError
from regard.heap import free_memory
from regard.model import cost
from regard.model.config import FrontConfig, ModelConfig, TextConfig
from regard.model.cost import MemoryCost, RunShape, passes
from regard.model.results import PartCost, Plan, PlannedRun, TotalCost, WholeRun
from regard.model.timing import OPTIMISER, Timer
from regard.result import human_bytes

ITEM = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}  # bytes of one number


def plan_run(
    name: str,
    config: ModelConfig,
    batch: int,
    length: int | None,
    source: int | None,
    dtype: str,
    train: bool,
    steps: int,
    keep: int,
    memory_limit: int | None,
    watts: float | None,
) -> Plan:
    """Count and time one step, or one forward pass, and multiply."""
    device = choose_device()
    read = source or length or usual_length(config.front)
    length = length or usual_length(config.target or config.front)
    shape = RunShape(batch, length, read, ITEM[dtype])
    tokens = {one.name: one.tokens for one in passes(config, shape)}  # a length past a table stops
    memory = cost.count_memory(config, shape, train)
    limit = free_memory(device) if memory_limit is None else memory_limit
    suggestion = suggest_fit(config, shape, memory, limit, train)
    try:
        times = Timer(config, shape, device, train, dtype).times()
    except RuntimeError as error:  # torch's word for a block that this machine cannot hold
        if not suggestion:
            raise
        raise too_large(memory.peak, limit, suggestion) from error
    flops = cost.count_flops(config, shape, train)
    held = memory.parts | {OPTIMISER: memory.optimiser}
    seconds = sum(times.values())
    held_bytes = memory.weights, memory.gradients, memory.optimiser, memory.peak
    disk = cost.disk_of(memory.weights, memory.optimiser, keep)  # of a checkpoint, of all
    watts = find_watts(device) if watts is None else watts
    joules = None if watts is None else watts * seconds * steps
    return Plan(
        model=name,
        run=PlannedRun(batch, tokens, dtype, train),
        parameters=cost.count_params(config),
        costs={
            part: PartCost(flops.get(part), held.get(part), times[part])
            for part in (*cost.PARTS, *([OPTIMISER] if train else []))
        },
        total=TotalCost(sum(flops.values()), *held_bytes, seconds),
        device=device,
        memory_limit=limit,
        fits=not suggestion,
        suggestion=suggestion or None,
        whole=WholeRun(steps, seconds * steps, *disk, shutil.disk_usage(".").free, watts, joules),
    )


def usual_length(front: FrontConfig) -> int:
    """512 tokens, or as many as a learned table has."""
    learned = isinstance(front, TextConfig) and front.position == "learned"
    return min(512, cost.table_size(front)) if learned else 512  # type: ignore[arg-type]


def suggest_fit(
    config: ModelConfig, shape: RunShape, memory: MemoryCost, limit: int | None, train: bool
) -> str:
    """What fits where this does not; empty when it does."""
    if limit is None or memory.peak <= limit:
        return ""
    fit = cost.fit_batch(config, shape, limit, train)
    if fit is None:
        return "no batch fits: a smaller model, or a narrower --dtype"
    if fit.length == shape.length:
        return f"the largest batch that fits is --batch {fit.batch}"
    return f"the largest that fits is --batch 1 --length {fit.length}"


def too_large(peak: int, limit: int | None, suggestion: str) -> ResourceError:
    """What is missing, and what would fit."""
    fault, expected = f"a peak of {human_bytes(peak)}", f"at most {human_bytes(limit or 0)}"
    return ResourceError("planning a run", fault, expected, suggestion)


def require_fit(plan: Plan) -> None:
    """Stop at a plan that does not fit into the memory or onto the disk."""
    if plan.suggestion:
        raise too_large(plan.total.peak_bytes, plan.memory_limit, plan.suggestion)
    needed, free = plan.whole.disk_bytes, plan.whole.disk_free
    if needed > free:
        fix = "another disk, or a smaller --keep"
        fault = f"{human_bytes(free)} of disk"
        raise ResourceError("planning a run", fault, human_bytes(needed), fix)


def find_watts(device: str) -> float | None:
    """The power that the system lets a device draw; None where it does not say."""
    try:
        if device == "cuda":
            query = ["nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
            done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20)
            return float(done.stdout.splitlines()[0])
        limits = Path("/sys/class/powercap").glob("intel-rapl:?/constraint_0_power_limit_uw")
        return sum(int(limit.read_text()) for limit in limits) / 1e6 or None
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
