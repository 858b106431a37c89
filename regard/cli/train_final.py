"""The end of a run: `final/`, the receipt and the results."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard import __version__
from regard.cli.train_data import Data
from regard.kit import Kit
from regard.loading import load
from regard.receipt import NAME, make_receipt, write_receipt
from regard.train.average import last_checkpoints, write_average
from regard.train.checkpoint import fault_of, read_checkpoint, step_of
from regard.train.loop import Trainer, weight_hash

if TYPE_CHECKING:
    from regard.cli.train import Plan


def finish(
    plan: Plan, data: Data, kit: Kit, trainer: Trainer, say: Callable[[str], None]
) -> dict[str, Any]:
    """Write `final` and the receipt; returns the results."""
    final, draft = plan.folder / "final", plan.folder / ".final.part"
    last = weight_hash(kit.model)
    shutil.rmtree(draft, ignore_errors=True)
    told = write_final(kit, trainer, draft)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(draft, final)
    state = trainer.state
    results = {
        "steps": state.step,
        "tokens": state.tokens,
        "loss": last_loss(plan.folder / "metrics.jsonl"),
        "best_valid": state.best,
        "best_step": state.best_step,
        "final": told,
        "weights": weight_hash(load(final).model),
        "last_weights": last,
    }
    config = {k: v for k, v in plan.settings.values.items() if v is not None}
    place = {"device": plan.device, "threads": torch.get_num_threads()}
    if plan.device == "cuda":
        place["device_name"] = torch.cuda.get_device_name()
    versions = {"regard": __version__, "torch": torch.__version__}
    receipt = make_receipt(plan.command, config, data.hashes, results, versions, place)
    write_receipt(plan.folder / NAME, receipt)
    say(f"final: {told}")
    return results | {"out": str(plan.folder)}


def write_final(kit: Kit, trainer: Trainer, draft: Path) -> str:
    """Write the folder and say which weights it has: averaged, best, or last."""
    config, state, runs = trainer.config, trainer.state, trainer.checkpoints
    if config.average > 1:
        folders = last_checkpoints(runs, config.average, config.save_every, state.step)
        kit.save(draft)
        write_average(folders, draft)
        steps = ", ".join(str(step_of(folder)) for folder in folders)
        return f"average of the checkpoints of steps {steps}"
    best = None if state.best_step is None else runs / f"step-{state.best_step:06d}"
    taken = f"step {state.step}, the last"
    if best is not None and best.is_dir() and state.best_step != state.step:
        if fault_of(best) is None:
            take_weights(trainer, best)
            taken = f"step {state.best_step}, the best on validation ({state.best:.4f})"
        else:
            taken += f"; the best, {best.name}, is damaged"
    elif state.best_step == state.step:
        taken = f"step {state.step}, the last and the best on validation ({state.best:.4f})"
    with trainer.averaged():
        kit.save(draft)
    return taken + (f", running mean of the weights ({config.ema})" if config.ema else "")


@torch.no_grad()
def take_weights(trainer: Trainer, checkpoint: Path) -> None:
    """Give the model, and the running mean, the values of a checkpoint."""
    held = dict(load(checkpoint).model.named_parameters())
    for name, parameter in trainer.model.named_parameters():
        parameter.copy_(held[name])
    if trainer.mean is not None:
        tensors = read_checkpoint(checkpoint)[0]["mean"]
        for number, weight in enumerate(trainer.mean.weights):
            weight.copy_(tensors[str(number)])


def last_loss(path: Path) -> float | None:
    """The loss of the last line of metrics that has one."""
    lines = path.read_text().splitlines() if path.exists() else []
    losses = [made["loss"] for line in lines if "loss" in (made := json.loads(line))]
    return losses[-1] if losses else None
