"""`--edit TAP=KIND,…`: edits of a command, in force as long as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.errors import DataError, UsageError, check_known
from regard.look.edits import Edit, add, mean, patch, resample_from, zero
from regard.look.activation_store import Extracted

DOING = "reading --edit"
KINDS = {
    "zero": (),
    "mean": (),
    "add": ("file", "minus", "scale"),
    "patch": ("file",),
    "resample": ("file", "seed"),
}
"""Each kind, and the options it has beside the choices."""
CHOICES = ("head", "position", "neuron")
FORM = f"TAP={'|'.join(KINDS)}[,head=N+N][,position=N][,neuron=N][,file=F][,minus=F][,scale=X]"


def read_edits(given: Sequence[str]) -> dict[str, list[Edit]]:
    """Taps, or patterns of them, and what is to be done there."""
    made: dict[str, list[Edit]] = {}
    for text in given:
        tap, equals, rest = text.partition("=")
        kind, *options = rest.split(",")
        if not tap or not equals:
            raise UsageError(DOING, f"{text!r}", FORM)
        made.setdefault(tap, []).append(read_edit(tap, kind, options, text))
    return made


def read_edit(tap: str, kind: str, options: Sequence[str], text: str) -> Edit:
    """One edit from its words."""
    check_known(kind, KINDS, DOING, f"{kind!r} in {text!r}")
    known = (*CHOICES, *KINDS[kind])
    found = {}
    for option in options:
        name, equals, value = option.partition("=")
        if name not in known or not equals or not value:
            expected = f"{', '.join(f'{n}=' for n in known)} after {kind}"
            raise UsageError(DOING, f"{option!r} in {text!r}", expected)
        found[name] = value
    where: dict[str, Any] = {name: whole(found[name], text) for name in CHOICES if name in found}
    if kind in ("zero", "mean"):
        return zero(**where) if kind == "zero" else mean(None, **where)
    if "file" not in found:
        expected = "a folder of `regard extract`, whose rows are drawn"
        if kind != "resample":
            expected = f"the vector to {kind}, a .safetensors file or a folder of `regard extract`"
        raise UsageError(DOING, f"{text!r}", f"{kind},file=F, {expected}")
    if kind == "resample":
        (seed,) = whole(found.get("seed", "0"), text)[:1]
        return resample_from(read_rows(found["file"], tap), seed, **where)
    vector = read_vector(found["file"], tap)
    if kind == "patch":
        return patch(vector, **where)
    if "minus" in found:
        vector = subtract(vector, read_vector(found["minus"], tap), text)
    return add(vector * scale(found.get("scale", "1"), text), **where)


def subtract(vector: Tensor, other: Tensor, text: str) -> Tensor:
    """The difference of two vectors of one tap."""
    if vector.shape != other.shape:
        found = f"{list(vector.shape)} less {list(other.shape)} in {text!r}"
        raise DataError(DOING, found, "as many numbers in file= as in minus=, from the same tap")
    return vector - other


def whole(text: str, given: str) -> list[int]:
    """Numbers joined by +."""
    if not all(part.isdecimal() for part in text.split("+")):
        raise UsageError(DOING, f"{text!r} in {given!r}", "whole numbers joined by +")
    return [int(part) for part in text.split("+")]


def scale(text: str, given: str) -> float:
    """How much of a vector."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(DOING, f"scale {text!r} in {given!r}", "a number") from None


def read_rows(path: str, tap: str) -> Tensor:
    """What `regard extract` took at a tap (N, D)."""
    made = Extracted(path)
    return made.tensor(made.taps[0] if len(made.taps) == 1 else tap)


def read_vector(path: str, tap: str) -> Tensor:
    """The one tensor of a safetensors file, or the mean of what `regard extract` took at a tap."""
    doing = f"reading the vector in {path}"
    if Path(path).is_dir():
        made = Extracted(path)
        return made.mean(made.taps[0] if len(made.taps) == 1 else tap)
    if not Path(path).is_file():
        raise DataError(doing, "no such file", "a .safetensors file with one tensor")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise DataError(doing, str(error), "a .safetensors file with one tensor") from None
    if len(tensors) != 1:
        raise DataError(doing, f"{len(tensors)} tensors: {', '.join(tensors)}", "one")
    (vector,) = tensors.values()
    return vector.float()
