"""Edits: change an activation while the model runs. Zero, mean, patch, add, resample, draw.

An edit is a few tensors and flags, not a closure: `torch.compile` compiles a kind of edit once and
later ones of that kind, with other heads or values, run without compiling again. Commands write
edits as `TAP=zero,head=3`; `parse_edits` reads that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index as to_int
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.errors import DataError, UsageError, check_known
from regard.look.activation_store import Extracted

Indices = int | Sequence[int] | None

# Where heads, positions and neurons lie in each place's tensor (ARCHITECTURE: shapes of taps).
HEAD = {"q": 2, "k": 2, "v": 2, "z": 2, "scores": 1, "pattern": 1}
POSITION = {"scores": 2, "pattern": 2}
DRAWN = 4096  # rows of a bank that are drawn: a text of more positions meets them again


@dataclass(eq=False)
class Edit:
    """Replace (or add to) the chosen part of an activation by a value or by its mean."""

    kind: Literal["replace", "add", "mean", "resample", "draw"]
    value: Tensor | None = None
    head: Tensor | None = None
    position: Tensor | None = None
    neuron: Tensor | None = None
    mask: Tensor | None = None
    """True at what is to change, broadcastable to the activation: a choice for each row."""
    place: str = ""
    """Last part of the tap's name; says which dimension is which."""
    columns: Tensor | None = None
    """(B, T): positions of what is read now, where a text is read in several calls."""
    rows: Tensor | None = None
    """(B,): resample: the row of the batch whose value each row takes."""

    def at(self, name: str, owner: nn.Module) -> Edit:
        """This edit for the tap `name` of `owner`; refuses a choice of heads it does not have."""
        place = name.rpartition(".")[2]
        if self.head is not None:
            count = getattr(owner, "groups" if place in ("k", "v") else "heads", 0)
            if place not in HEAD or int(self.head.max()) >= int(count):
                raise UsageError(
                    "editing an activation",
                    f"head {self.head.tolist()} at {name}",
                    f"heads 0 to {int(count) - 1}" if place in HEAD else f"a tap of {list(HEAD)}",
                )
        if self.neuron is not None:
            width = last_width(owner, place)
            if width is not None and int(self.neuron.max()) >= width:
                problem = f"neuron {self.neuron.tolist()} at {name}"
                raise UsageError("editing an activation", problem, f"0 to {width - 1}")
        if self.kind == "mean" and self.value is None and isinstance(owner, nn.RNNBase):
            problem = f"the mean of a run at {name}, whose later steps are not known yet"
            raise UsageError(
                "editing an activation", problem, "regard.mean(reference), of a run before"
            )
        placed = replace(self, place=place)
        vectors = self.value is not None and self.value.dim() == (2 if self.kind == "draw" else 1)
        if place in ("q", "k", "v", "z") and self.value is not None and vectors:
            width = int(owner.width)  # type: ignore[arg-type]
            if self.value.shape[-1] % width == 0:  # one head, or heads side by side
                placed.value = self.value.unflatten(-1, (-1, width))
        if self.kind == "mean" and self.value is not None:  # of another run, known beforehand
            placed.kind, placed.value = "replace", self.value.mean(placed.over, keepdim=True)
        return placed

    @property
    def of_positions(self) -> bool:
        """Whether it must be told which positions a call reads."""
        return self.position is not None or self.kind == "draw"

    @property
    def of_batch(self) -> bool:
        """Whether a text changes with what else is run."""
        return self.kind in ("mean", "resample")

    @property
    def over(self) -> tuple[int, ...]:
        """What a mean goes over: batch and positions; batch alone for each score of two tokens."""
        return (0,) if self.place in POSITION else (0, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """The activation with the chosen part changed."""
        where, value = self.where(x), self.value
        if self.kind == "draw":  # a row for each position, from the first again after the last
            assert value is not None
            at = torch.arange(x.shape[1]) if self.columns is None else self.columns
            drawn = value.to(x)[at.to(x.device) % len(value)]
            return replace(self, kind="replace", value=drawn)(x)
        self.check_shapes(x)
        if self.kind == "mean":
            return torch.where(where, x.mean(self.over, keepdim=True), x)
        if self.kind == "resample":
            assert self.rows is not None
            if len(self.rows) != len(x):
                problem = f"{len(self.rows)} rows to take from, in a batch of {len(x)}"
                raise UsageError("resampling", problem, "as many")
            return torch.where(where, x[self.rows.to(x.device)], x)
        assert value is not None
        value = value.to(x)
        return torch.where(where, value if self.kind == "replace" else x + value, x)

    def check_shapes(self, x: Tensor) -> None:
        """Refuse a value or a mask that cannot be laid over the activation."""
        for name, tensor in (("value", self.value), ("mask", self.mask)):
            if tensor is None:
                continue
            sizes = zip(reversed(tensor.shape), reversed(x.shape), strict=False)
            if tensor.dim() <= x.dim() and all(size in (1, own) for size, own in sizes):
                continue
            problem = f"a {name} of shape {tuple(tensor.shape)} at {self.place}, {tuple(x.shape)}"
            fix = "prompts of as many tokens: `regard look patch` shows a pair's side by side"
            longer = tensor.dim() == x.dim() and tensor.shape[-1] == x.shape[-1]
            expected = "a shape that can be broadcast to the activation's"
            raise UsageError("editing an activation", problem, expected, fix if longer else "")

    def where(self, x: Tensor) -> Tensor:
        """True at what is to change, broadcastable to x."""
        every = torch.ones((), dtype=torch.bool, device=x.device)
        chosen = every if self.mask is None else self.mask.to(x.device)
        for index, dim in (
            (self.head, HEAD.get(self.place, 0)),
            (self.position, POSITION.get(self.place, 1)),
            (self.neuron, x.dim() - 1),
        ):
            if index is not None:
                count = torch.arange(x.shape[dim], device=x.device)
                shape = [-1 if d == dim else 1 for d in range(x.dim())]
                if index is self.position and self.columns is not None:
                    count, shape[0] = self.columns, len(x)
                hit = (count[..., None] == index.to(x.device)).any(-1)
                chosen = chosen & hit.view(shape)
        return chosen


Edits = Mapping[str, Edit | Sequence[Edit]]
"""Name of a tap, or a pattern of names → what is done there."""


def last_width(owner: nn.Module, place: str) -> int | None:
    """Size of the last dimension at a place, where it is known before a run."""
    if place in ("q", "k", "v", "z"):
        return int(owner.width)  # type: ignore[arg-type]
    if place in ("pre", "post"):
        return int(owner.up.out_features)  # type: ignore[union-attr, arg-type]
    if isinstance(owner, nn.RNNBase):
        return owner.hidden_size
    maps = [module for module in owner.modules() if isinstance(module, nn.Linear)]
    return maps[-1].out_features if maps and place not in POSITION else None  # its last one writes


class Where(TypedDict, total=False):
    """What of an activation an edit changes; what is not named, all of it."""

    head: Indices
    position: Indices
    neuron: Indices


def choose(where: Where) -> dict[str, Any]:
    """Indices as tensors, so that another choice is no other program to the compiler."""
    chosen: dict[str, Tensor] = {}
    for name, index in where.items():
        if index is None:
            continue
        try:
            numbers = [to_int(n) for n in (index if isinstance(index, Sequence) else [index])]  # type: ignore[arg-type]
        except TypeError:
            numbers = []
        if not numbers or min(numbers) < 0:
            raise UsageError("editing an activation", f"index {index}", "whole numbers from 0 up")
        chosen[name] = torch.tensor(numbers)
    return chosen


def zero(**where: Unpack[Where]) -> Edit:
    """Set the chosen heads, positions or neurons to zero; without a choice, all."""
    return Edit("replace", torch.zeros(()), **choose(where))


def mean(reference: Tensor | None = None, **where: Unpack[Where]) -> Edit:
    """Replace by the mean over batch and positions, padding included, of `reference` or this run.

    Scores and patterns (B, H, T, S) belong to two positions each: their mean is over the batch.
    """
    return Edit("mean", reference, **choose(where))


def patch(value: Tensor | float, *, mask: Tensor | None = None, **where: Unpack[Where]) -> Edit:
    """Replace by values from another run, broadcastable to the activation.

    A boolean `mask`, broadcastable too, says for each row what is replaced.
    """
    return Edit("replace", torch.as_tensor(value), mask=mask, **choose(where))


def add(value: Tensor | float, **where: Unpack[Where]) -> Edit:
    """Add a value, such as a steering vector (D,)."""
    return Edit("add", torch.as_tensor(value), **choose(where))


def resample(
    rows: Tensor | Sequence[int], reference: Tensor | None = None, **where: Unpack[Where]
) -> Edit:
    """Give row i of a batch the value of row rows[i]: of the same run, or of `reference` (N, …).

    What the rows share stays, what is particular to one goes (Chan 2022). Rows must be as long as
    each other: at padding there is no value. `other_rows` draws them.
    """
    chosen = torch.as_tensor(rows, dtype=torch.long)
    if reference is not None:
        return Edit("replace", reference[chosen], **choose(where))
    if chosen.dim() != 1 or not set(chosen.tolist()) <= set(range(len(chosen))):
        problem = f"rows {chosen.tolist()}"
        raise UsageError("resampling", problem, "for each row of the batch one of its rows")
    return Edit("resample", rows=chosen, **choose(where))


def resample_from(bank: Tensor, seed: int = 0, **where: Unpack[Where]) -> Edit:
    """Give each position a row of `bank` (N, D), drawn at random: what passes the tap in a corpus.

    Any batch draws alike, and generation too, unlike `resample`; `Extracted.tensor` makes banks.
    """
    if bank.dim() != 2 or not len(bank):
        problem = f"a bank of shape {tuple(bank.shape)}"
        raise UsageError("resampling", problem, "rows (N, D) of activations")
    order = torch.randperm(len(bank), generator=torch.Generator().manual_seed(seed))[:DRAWN]
    return Edit("draw", bank[order], **choose(where))


def other_rows(count: int, seed: int = 0) -> Tensor:
    """For each of `count` rows another one, each once: a random cycle (Sattolo 1986)."""
    if count < 2:
        raise UsageError("resampling", f"{count} rows", "two or more")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator)
    others = torch.empty_like(order)
    others[order] = order.roll(1)
    return others


# Edits as commands write them ---------------------------------------------------------------------

OPTIONS = {
    "zero": (),
    "mean": (),
    "add": ("file", "minus", "scale"),
    "patch": ("file",),
    "resample": ("file", "seed"),
}
"""Each kind of edit, and the options it has beside the choices."""
CHOICES = ("head", "position", "neuron")
FORM = f"TAP={'|'.join(OPTIONS)}[,head=N+N][,position=N][,neuron=N][,file=F][,minus=F][,scale=X]"
PARSING = "reading an edit"


def parse_edits(edits: Edits | Sequence[str]) -> Edits:
    """Taps, or patterns of them, and what is done there, from texts such as `TAP=zero,head=3`.

    A mapping of edits that were made by `regard.zero(…)` and its relatives is returned as it is.
    """
    if isinstance(edits, Mapping):
        return edits
    parsed: dict[str, list[Edit]] = {}
    for text in edits:
        tap, equals, rest = text.partition("=")
        kind, *options = rest.split(",")
        if not tap or not equals:
            raise UsageError(PARSING, f"{text!r}", FORM)
        parsed.setdefault(tap, []).append(parse_edit(tap, kind, options, text))
    return parsed


def parse_edit(tap: str, kind: str, options: Sequence[str], text: str) -> Edit:
    """One edit from its words."""
    check_known(kind, OPTIONS, PARSING, f"{kind!r} in {text!r}")
    known = (*CHOICES, *OPTIONS[kind])
    values = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in known or not value:
            expected = f"{', '.join(f'{n}=' for n in known)} after {kind}"
            raise UsageError(PARSING, f"{option!r} in {text!r}", expected)
        values[name] = value

    def numbers(name: str, default: str = "") -> list[int]:
        parts = values.get(name, default).split("+")
        if not all(part.isdecimal() for part in parts):
            raise UsageError(PARSING, f"{values[name]!r} in {text!r}", "whole numbers joined by +")
        return [int(part) for part in parts]

    where: dict[str, Any] = {name: numbers(name) for name in CHOICES if name in values}
    if kind in ("zero", "mean"):
        return zero(**where) if kind == "zero" else mean(None, **where)
    if "file" not in values:
        expected = "a folder of `regard look extract`, whose rows are drawn"
        if kind != "resample":
            expected = f"the vector to {kind}: a .safetensors file or a folder of `look extract`"
        raise UsageError(PARSING, f"{text!r}", f"{kind},file=F, {expected}")
    if kind == "resample":
        store = Extracted(values["file"])
        bank = store.tensor(store.taps[0] if len(store.taps) == 1 else tap)
        return resample_from(bank, numbers("seed", "0")[0], **where)
    vector = read_vector(values["file"], tap)
    if kind == "patch":
        return patch(vector, **where)
    if "minus" in values:
        other = read_vector(values["minus"], tap)
        if vector.shape != other.shape:
            problem = f"{list(vector.shape)} less {list(other.shape)} in {text!r}"
            expected = "as many numbers in file= as in minus=, from the same tap"
            raise DataError(PARSING, problem, expected)
        vector = vector - other
    try:
        scale = float(values.get("scale", "1"))
    except ValueError:
        problem = f"scale {values['scale']!r} in {text!r}"
        raise UsageError(PARSING, problem, "a number") from None
    return add(vector * scale, **where)


def read_vector(path: str, tap: str) -> Tensor:
    """The one tensor of a safetensors file, or the mean of what was extracted at a tap."""
    doing, expected = f"reading the vector in {path}", "a .safetensors file with one tensor"
    if Path(path).is_dir():
        store = Extracted(path)
        return store.mean(store.taps[0] if len(store.taps) == 1 else tap)
    if not Path(path).is_file():
        raise DataError(doing, "no such file", expected)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise DataError(doing, str(error), expected) from None
    if len(tensors) != 1:
        raise DataError(doing, f"{len(tensors)} tensors: {', '.join(tensors)}", "one")
    (vector,) = tensors.values()
    return vector.float()
