"""Weights as whole numbers in a file: a quarter of the bytes of float32.

NAME is written as NAME.int8, whole numbers n from −127 to 127, and NAME.peak, the largest absolute
weight of each output in float32: w = n / 127 · peak, at most peak / 254 away. The peak itself comes
back to the bit, so that restored weights give the same n and peak when they are stored again, and
when they are packed for int8 products (`model/int8.py`), as the weights that they came from. The
names are others than NAME's, lest another program take the numbers for weights.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from regard.errors import DataError
from regard.model.int8 import LEVELS, peaks, to_levels

STORED = "stored"  # the key of config.json that announces such names
INT8 = "int8"  # its value
WHOLE, PEAK = ".int8", ".peak"
Shapes = dict[str, tuple[int, ...]]


def to_whole(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (N, K) → whole numbers (N, K) in int8 and peaks (N, 1) in float32."""
    weight = weight.float()
    peak = peaks(weight)
    if not bool(peak.isfinite().all()):
        raise DataError("storing weights as int8", "an inf or a NaN", "finite weights")
    return to_levels(weight)[0], peak


def from_whole(whole: Tensor, peak: Tensor) -> Tensor:
    """The weight in float32; peak is (N, 1), or (1, N) where a family stores (K, N)."""
    return whole.float().div_(LEVELS).mul_(peak)


def join_pairs(shapes: Shapes, path: Path) -> tuple[Shapes, set[str]]:
    """Shapes under the names of the weights, and which of them are pairs."""
    pairs = [name.removesuffix(end) for name in shapes for end in (WHOLE, PEAK) if ends(name, end)]
    found = dict.fromkeys(pairs)  # in the file's order: the heap of a load is the same every time
    for name in found:
        for end in (WHOLE, PEAK):
            if name + end not in shapes:
                raise broken(path, f"{name} has no {name + end}")
        whole, peak = shapes[name + WHOLE], shapes[name + PEAK]
        if len(whole) != 2 or peak not in ((whole[0], 1), (1, whole[1])):
            raise broken(path, f"{name + WHOLE} {whole} and {name + PEAK} {peak}")
        if name in shapes:
            raise broken(path, f"{name} and {name + WHOLE}, twice the same weight")
    kept = {n: s for n, s in shapes.items() if not ends(n, WHOLE) and not ends(n, PEAK)}
    return kept | {name: shapes[name + WHOLE] for name in found}, set(found)


def check_kinds(whole: Tensor, peak: Tensor, name: str, path: Path) -> None:
    """Refuse a pair whose numbers are of another kind."""
    if whole.dtype != torch.int8 or peak.dtype != torch.float32:
        raise broken(path, f"{name} as {whole.dtype} with peaks of {peak.dtype}")


def ends(name: str, end: str) -> bool:
    """Whether a tensor's name is a weight's name with this ending."""
    return name.endswith(end) and name != end


def broken(path: Path, found: str) -> DataError:
    """The error for a pair that is not one."""
    wanted = f"NAME{WHOLE} (N, K) in int8 and NAME{PEAK} (N, 1) in float32 for each stored weight"
    return DataError(f"opening {path}", found, wanted, "write the folder again, or copy it whole")
