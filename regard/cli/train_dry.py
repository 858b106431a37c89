"""`regard train … --dry-run`: what would run, without running it or writing into its folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from regard.cli.show import Show, human_bytes, human_count
from regard.cli.train_data import prepare
from regard.cli.train_init import open_init
from regard.heap import free_memory
from regard.model.config import ModelConfig
from regard.model.cost import RunShape, count_memory, disk_of, largest_tensor
from regard.model.model import empty_model
from regard.model.recurrent import model_class
from regard.train.cross_entropy import chunk_rows

if TYPE_CHECKING:
    from regard.cli.train import Plan

ITEM = 4  # bytes: weights, gradients and optimizer are float32


def dry_run(plan: Plan, show: Show) -> None:
    """Read and check the data, count, and print."""

    def warn(text: str) -> None:
        """Of what a run says, only what there is to be done about."""
        if text.startswith("warning:"):
            show.note(text)

    with TemporaryDirectory(prefix="regard-dry-") as name, show.progress("reading") as progress:
        data = prepare(plan.run, plan.train, Path(name), warn, progress)
        config, family = shape_of(plan, data.tokenizer.size)
        batches = data.train.count(0)
        sizes = dict(data.sizes)
    train = plan.train
    params = sum(p.numel() for p in empty_model(config, model_class(config)).parameters())
    found: dict[str, Any] = {
        "config": plan.settings.values,
        "data": sizes | {"vocabulary": data.tokenizer.size, "batches_per_epoch": batches},
        "model": {"family": family, "parameters": params},
        "run": {
            "out": str(plan.folder),
            "device": plan.device,
            "processes": plan.world.size,
            "steps": train.steps,
            "epochs": round(train.steps * train.accumulate / max(batches, 1), 2),
        },
        "memory_bytes": peak_memory(plan, config) if config.decoder or config.encoder else None,
        "memory_free": free_memory(plan.device),
        "disk_bytes": disk_need(plan, params),
        "disk_free": shutil.disk_usage(existing(plan.folder)).free,
    }
    if show.as_json:
        show.result(found)
    else:
        print_report(plan, found, show)


def shape_of(plan: Plan, vocab: int) -> tuple[ModelConfig, str | None]:
    """(config, architecture; None for regard's own) of what would be trained."""
    if plan.run.init is None:
        return plan.shape.build(vocab, plan.train.length)
    kit = open_init(plan.run.init, plan.run.kind, plan.train.length)
    return kit.model.config, kit.binding.architecture if kit.binding else None


def peak_memory(plan: Plan, config: ModelConfig) -> int:
    """Bytes of a step on one process, by formula, in float32; lower precisions keep less."""
    train, size = plan.train, plan.world.size
    rows = -(-max(train.batch_tokens // train.length, 1) // size)
    memory = count_memory(config, RunShape(rows, train.length, train.length, ITEM), train=True)
    # The loop scores in chunks: of the logits only one chunk is ever there.
    labels, vocab = rows * train.length, config.head.size or 0
    spared = 3 * (labels - chunk_rows(labels, max(vocab, 1), plan.device)) * vocab * ITEM
    share = size if train.shard else 1
    begins = 3 * memory.weights // share + sum(memory.parts.values()) - spared
    steps = 4 * memory.weights // share + 2 * largest_tensor(config) * ITEM
    return max(begins, steps) + (memory.weights // share if train.ema else 0)


def disk_need(plan: Plan, params: int) -> int:
    """Bytes of all checkpoints at once, the one being written, and `final`."""
    keep = max(plan.train.keep, plan.train.average)
    one, most = disk_of(ITEM * params, train=True, keep=keep)
    return most + (one // 3 * (keep + 2) if plan.train.ema else 0)


def existing(path: Path) -> Path:
    """The nearest folder above a path that is there."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def print_report(plan: Plan, found: dict[str, Any], show: Show) -> None:
    """The same for people."""
    show.line(plan.settings.toml().rstrip())
    data, run, model = found["data"], found["run"], found["model"]
    held = {"train": data["train"], "validation": data["valid"] or "none"}
    held |= {"vocabulary": f"{data['vocabulary']:,}"}
    show.fields("data", held | {"batches": f"{data['batches_per_epoch']:,} in an epoch"})
    family = model["family"] or "regard's own"
    count = human_count(model["parameters"])
    processes = f"{run['processes']} process{'es' if run['processes'] > 1 else ''}"
    free = found["memory_free"]
    memory = "not counted for recurrent models"
    if found["memory_bytes"] is not None:
        memory = f"about {human_bytes(found['memory_bytes'])} a process in float32"
    lines = {
        "model": f"{family}, {count} parameters",
        "place": f"{run['out']}, on {run['device']}, {processes}",
        "steps": f"{run['steps']:,}, {run['epochs']:,} epochs",
        "memory": memory + ("" if free is None else f", {human_bytes(free)} free"),
        "disk": f"about {human_bytes(found['disk_bytes'])} for checkpoints and final, "
        f"{human_bytes(found['disk_free'])} free",
    }
    show.fields("would run", lines)
    show.line("nothing was written")
