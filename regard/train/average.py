"""Average of the weights of the last checkpoints (Vaswani 2017, 6.1), one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.train.checkpoint import fault_of, list_checkpoints, step_of


def last_checkpoints(runs: Path, count: int, every: int, last: int) -> list[Path]:
    """The newest `count` whole checkpoints: those at multiples of `every`, and the last step's."""
    if count < 1:
        raise UsageError("averaging checkpoints", f"the last {count}", "1 or more")
    found = list_checkpoints(runs)
    regular = [p for p in found if step_of(p) % every == 0 or step_of(p) == last]
    whole = [path for path in regular if step_of(path) <= last and fault_of(path) is None]
    if not whole:
        raise DataError(f"averaging the checkpoints of {runs}", "no whole one", "at least one")
    return whole[-count:]


def average_folders(folders: Sequence[Path]) -> Callable[[str], Tensor]:
    """A function from the name of a tensor to its mean over the folders, summed in float64.

    Only one tensor of one folder is in memory at a time, beside its sum.
    """
    files = [shards(folder) for folder in folders]

    def mean(name: str) -> Tensor:
        total: Tensor | None = None
        kind = torch.float32
        for folder, held in zip(folders, files, strict=True):
            if name not in held:
                raise DataError(f"averaging {folder}", f"no tensor {name!r}", "the same names")
            with safe_open(held[name], framework="pt") as file:
                tensor: Tensor = file.get_tensor(name)
            kind = tensor.dtype
            if total is None:
                total = tensor.double()
            elif total.shape != tensor.shape:
                found = f"{name!r} of shape {tuple(tensor.shape)}"
                raise DataError(f"averaging {folder}", found, f"{tuple(total.shape)}")
            else:
                total += tensor.double()
        assert total is not None
        return (total / len(folders)).to(kind)

    return mean


def shards(folder: Path) -> dict[str, Path]:
    """Which file of a folder holds each tensor."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found |= dict.fromkeys(file.keys(), path)
    if not found:
        raise DataError(f"averaging {folder}", "no safetensors", "a checkpoint of regard")
    return found


def write_average(folders: Sequence[Path], out: Path) -> None:
    """Overwrite the weights in `out`, a copy of one of the folders, by the mean over all."""
    from safetensors.torch import save_file

    mean = average_folders(folders)
    for path in sorted(out.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names, notes = list(file.keys()), file.metadata()
        draft = path.with_suffix(".part")
        save_file({name: mean(name) for name in names}, draft, metadata=notes)
        draft.replace(path)
