"""The end of a run: `final/`, the receipt and the results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard import __version__
from regard.cli.train_data import Data
from regard.cli.train_init import init_hashes
from regard.kit import Kit
from regard.loading import load_kit
from regard.model.model import Model
from regard.receipt import NAME, make_receipt, write_receipt
from regard.train.checkpoint import (
    fault_of,
    last_checkpoints,
    read_checkpoint,
    step_of,
    weight_hash,
    write_average,
)
from regard.train.loop import Trainer, read_metrics

if TYPE_CHECKING:
    from regard.cli.train import Plan


def finish(
    plan: Plan, data: Data, kit: Kit, trainer: Trainer, say: Callable[[str], None]
) -> dict[str, Any]:
    """Write `final` and the receipt from the run's checkpoints; returns the results."""
    final, draft = plan.folder / "final", plan.folder / ".final.part"
    state = trainer.state
    last = load_kit(trainer.checkpoints / f"step-{state.step:06d}").model
    shutil.rmtree(draft, ignore_errors=True)
    told = write_final(kit, trainer, draft)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(draft, final)
    losses = [line["loss"] for line in read_metrics(plan.folder) if "loss" in line]
    results = {
        "steps": state.step,
        "tokens": state.tokens,
        "loss": losses[-1] if losses else None,
        "best_valid": state.best,
        "best_step": state.best_step,
        "final": told,
        "weights": weight_hash(load_kit(final).model),
        "last_weights": weight_hash(last),
    }
    config = {k: v for k, v in plan.settings.values.items() if v is not None}
    place = {"device": plan.device, "threads": torch.get_num_threads()}
    if plan.device == "cuda":
        place["device_name"] = torch.cuda.get_device_name()
    if plan.world.size > 1:
        place["processes"] = plan.world.size
    inputs = data.hashes | init_hashes(plan.run.init)
    versions = {"regard": __version__, "torch": torch.__version__}
    receipt = make_receipt(plan.command, config, inputs, results, versions, place)
    write_receipt(plan.folder / NAME, receipt)
    say(f"final: {told}")
    return results | {"out": str(plan.folder)}


def write_final(kit: Kit, trainer: Trainer, draft: Path) -> str:
    """Write the folder and say which weights it has: averaged, best, or last."""
    config, state, runs = trainer.config, trainer.state, trainer.checkpoints
    if config.average > 1:
        folders = last_checkpoints(runs, config.average, config.save_every, state.step)
        replace(kit, model=load_kit(folders[-1]).model).save(draft)
        write_average(folders, draft)
        steps = ", ".join(str(step_of(folder)) for folder in folders)
        return f"average of the checkpoints of steps {steps}"
    chosen, taken = runs / f"step-{state.step:06d}", f"step {state.step}, the last"
    best = None if state.best_step is None else runs / f"step-{state.best_step:06d}"
    if best == chosen:
        taken += f" and the best on validation ({state.best:.4f})"
    elif best is not None and best.is_dir():
        if fault_of(best) is None:
            chosen = best
            taken = f"step {state.best_step}, the best on validation ({state.best:.4f})"
        else:
            taken += f"; the best, {best.name}, is damaged"
    model = load_kit(chosen).model
    if config.ema:
        take_mean(model, chosen)
        taken += f", running mean of the weights ({config.ema})"
    replace(kit, model=model).save(draft)
    return taken


@torch.no_grad()
def take_mean(model: Model, checkpoint: Path) -> None:
    """Give a model the running mean that a checkpoint holds."""
    tensors = read_checkpoint(checkpoint)[0]["mean"]
    for number, parameter in enumerate(model.parameters()):
        parameter.copy_(tensors[str(number)])
