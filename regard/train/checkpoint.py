"""Checkpoints: everything a run is at a step, written so that a crash never costs the last one.

A checkpoint is a folder that `regard.load` opens, plus `trainer/`: optimizer, generators, place in
the data. It is written under another name, synced and renamed; `trainer/whole.json` holds the hash
of every file, so a damaged one is seen and the one before it is taken. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import DataError, ResourceError
from regard.files import file_hash, sync
from regard.model.model import Model
from regard.train.distributed import part_of

NAME = re.compile(r"step-(\d+)")
WHOLE = "trainer/whole.json"


def optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, Tensor]]:
    """The optimizer's state under the names of the parameters: `exp_avg/front.tokens.weight`."""
    names = {id(p): name for name, p in model.named_parameters()}
    for p, state in optimizer.state.items():
        for key, value in state.items():
            yield f"{key}/{names[id(p)]}", torch.as_tensor(value)


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """The inverse of `optimizer_tensors`, on the device of each parameter."""
    parameters = dict(model.named_parameters())
    for path, tensor in tensors.items():
        key, _, name = path.partition("/")
        place = parameters[name]
        # Fused AdamW keeps its step count, the one number among tensors, beside the parameter.
        held = part_of(tensor, place) if tensor.dim() else tensor.to(place.device)
        optimizer.state[place][key] = held


def generator_states() -> dict[str, Tensor]:
    """The random generators of the process; what data is drawn needs none."""
    tensors = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["cuda"] = torch.cuda.get_rng_state()
    return tensors


def restore_generators(tensors: dict[str, Tensor]) -> None:
    """The inverse of `generator_states`."""
    torch.set_rng_state(tensors["cpu"])
    if torch.cuda.is_available() and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"])


def write_checkpoint(
    runs: Path,
    step: int,
    save: Callable[[Path], None],
    tensors: dict[str, dict[str, Tensor]],
    state: dict[str, Any],
) -> Path:
    """Write `runs`/step-…: `save` writes the model, `tensors` are files of `trainer/`."""
    final, part = runs / f"step-{step:06d}", runs / f".part-{step:06d}"
    try:
        shutil.rmtree(part, ignore_errors=True)
        (part / "trainer").mkdir(parents=True)
        save(part)
        for name, held in tensors.items():
            save_file(held, part / "trainer" / f"{name}.safetensors")
        (part / "trainer" / "state.json").write_text(json.dumps(state))
        hashes = {str(f.relative_to(part)): file_hash(f) for f in files_of(part)}
        (part / WHOLE).write_text(json.dumps(hashes, indent=1))
        for file in [*files_of(part), part / "trainer", part]:
            sync(file)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(part, final)
        sync(runs)
    except (OSError, SafetensorError, ResourceError) as error:  # safetensors wraps a full disk
        written = sum(file.stat().st_size for file in files_of(part)) if part.exists() else 0
        shutil.rmtree(part, ignore_errors=True)
        size = sum(t.nbytes for named in tensors.values() for t in named.values())
        free = shutil.disk_usage(runs).free
        cause = error.__cause__ or error
        why = getattr(cause, "strerror", None) or str(cause)
        raise ResourceError(
            f"writing the checkpoint of step {step}",
            f"{why} ({written:,} bytes were written, {free:,} are free)",
            f"about {size * 3 // 2:,} bytes of room; earlier checkpoints are untouched",
            f"free some space under {runs} and go on with --resume {runs.parent}",
        ) from error
    return final


def find_checkpoint(runs: Path, say: Callable[[str], None]) -> Path | None:
    """The newest whole checkpoint; what was wrong with newer ones is said.

    What a killed process had not finished writing is cleared away.
    """
    for part in runs.glob(".part-*"):
        shutil.rmtree(part, ignore_errors=True)
    for path in reversed(list_checkpoints(runs)):
        if (fault := fault_of(path)) is None:
            return path
        say(f"left aside: {path.name}: {fault}")
    return None


def list_checkpoints(runs: Path) -> list[Path]:
    """The checkpoints of a run by step, whole or not."""
    return sorted((p for p in runs.glob("step-*") if NAME.fullmatch(p.name)), key=step_of)


def step_of(path: Path) -> int:
    """The step that a checkpoint's name says."""
    return int(path.name.removeprefix("step-"))


def fault_of(path: Path) -> str | None:
    """What is wrong with a checkpoint, None when every file has its hash."""
    try:
        for name, wanted in json.loads((path / WHOLE).read_text()).items():
            if file_hash(path / name) != wanted:
                return f"{name} is damaged"
    except (OSError, ValueError) as error:
        return f"{WHOLE} cannot be read ({error})"
    return None


def read_checkpoint(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """(tensors of each file of `trainer/`, the rest of the state)."""
    try:
        state = json.loads((path / "trainer" / "state.json").read_text())
        files = sorted((path / "trainer").glob("*.safetensors"))
        return {file.stem: load_file(file) for file in files}, state
    except (OSError, ValueError) as error:
        raise DataError(f"reading {path}", str(error), "a checkpoint of regard") from error


def prune(runs: Path, step: int, keep: int, best: int | None, every: int = 1) -> None:
    """Delete all but the newest `keep` at multiples of `every`, that of this step, and the best.

    One that is written out of turn, on a signal or a new best, does not push out a regular one:
    so the checkpoints that are averaged do not depend on how often a run was stopped. Those of
    later steps were damaged, or the run would have gone on from them: they push out none either.
    """
    there = [path for path in list_checkpoints(runs) if step_of(path) <= step]
    regular = [path for path in there if step_of(path) % every == 0]
    kept = {*regular[-keep:], *there[-1:]}
    for path in there:
        if path not in kept and step_of(path) != best:
            shutil.rmtree(path)


def files_of(folder: Path) -> list[Path]:
    """All files below a folder."""
    return sorted(p for p in folder.rglob("*") if p.is_file())


def weight_hash(model: nn.Module) -> str:
    """SHA-256 over all parameters, by name: equal hashes, equal bits."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# Average of the weights of the last checkpoints (Vaswani 2017, 6.1) ------------------------------


def last_checkpoints(runs: Path, count: int, every: int, last: int) -> list[Path]:
    """The newest `count` whole checkpoints: those at multiples of `every`, and the last step's."""
    regular = [p for p in list_checkpoints(runs) if step_of(p) % every == 0 or step_of(p) == last]
    whole = [path for path in regular if step_of(path) <= last and fault_of(path) is None]
    if not whole:
        raise DataError(f"averaging the checkpoints of {runs}", "no whole one", "at least one")
    return whole[-count:]


@torch.no_grad()
def average_checkpoints(folders: Sequence[Path], load: Callable[[Path], Model]) -> Model:
    """A model with the mean of the weights of several, summed in float64."""
    model = load(folders[-1])
    sums = [parameter.double() for parameter in model.parameters()]
    for folder in folders[:-1]:
        for total, parameter in zip(sums, load(folder).parameters(), strict=True):
            total += parameter
    for total, parameter in zip(sums, model.parameters(), strict=True):
        parameter.copy_(total / len(folders))
    return model
