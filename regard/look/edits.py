"""Edits: change an activation while the model runs: zero, mean, patch, add, or any function of
it.

An edit is a few tensors and flags, not a closure: `torch.compile` compiles a kind of edit once and
later ones of that kind, with other heads or values, run without compiling again. Commands write
edits as `TAP=zero,head=3`; `parse_edits` reads that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.errors import DataError, UsageError, check_known, check_names
from regard.look.activation_store import Extracted

Indices = Any
"""A whole number, several (a list, a range, an array, a tensor, also of booleans), or a slice;
negative ones count from the end."""

# Where heads, positions and neurons lie in each place's tensor (ARCHITECTURE: shapes of taps).
HEAD = {"q": 2, "k": 2, "v": 2, "z": 2, "scores": 1, "pattern": 1}
POSITION = {"scores": 2, "pattern": 2}
DOING = "editing an activation"


class Columns:
    """Told by a front which tokens it reads: the position of each in its text, −1 at padding."""

    def __init__(self) -> None:
        self.positions: Tensor | None = None  # (B or 1, T); None where there is no text
        self.cached = False
        """Whether they go on after what was read before."""

    def __call__(self, positions: Tensor, real: Tensor | None, cached: bool) -> None:
        """A front reads tokens at these positions (B or 1, T), and padding where not `real`."""
        self.positions = positions if real is None else positions.masked_fill(~real, -1)
        self.cached = cached


@dataclass(eq=False)
class Edit:
    """Replace (or add to) the chosen part of an activation by a value or by its mean."""

    kind: Literal["replace", "add", "mean", "function"]
    value: Tensor | None = None
    head: Tensor | slice | None = None
    position: Tensor | slice | None = None
    neuron: Tensor | slice | None = None
    mask: Tensor | None = None
    """True at what is to change, broadcastable to the activation: a choice for each row."""
    function: Callable[[Tensor], Tensor] | None = None
    place: str = ""
    """Last part of the tap's name; says which dimension is which."""
    columns: Columns = field(default_factory=Columns)
    compact: bool = False
    """Of a recurrent cell, which reads each row without its padding."""

    def at(self, name: str, owner: nn.Module) -> Edit:
        """This edit for the tap `name` of `owner`; refuses heads and neurons it does not have."""
        place = name.rpartition(".")[2]
        if self.head is not None:
            count = getattr(owner, "groups" if place in ("k", "v") else "heads", 0)
            expected = f"heads 0 to {int(count) - 1}" if place in HEAD else f"a tap of {list(HEAD)}"
            check_index("head", self.head, int(count) if place in HEAD else 0, name, expected)
        if self.neuron is not None and (width := last_width(owner, place)) is not None:
            check_index("neuron", self.neuron, width, name, f"0 to {width - 1}")
        cell = isinstance(owner, nn.RNNBase)
        if self.kind == "mean" and self.value is None and cell:
            problem = f"the mean of a run at {name}, whose later steps are not known yet"
            raise UsageError(DOING, problem, "regard.mean(reference), of a run before")
        placed = replace(self, place=place, compact=cell)
        if place in ("q", "k", "v", "z") and self.value is not None and self.value.dim() == 1:
            width = int(owner.width)  # type: ignore[arg-type]
            if self.value.shape[-1] % width == 0:  # one head, or heads side by side
                placed.value = self.value.unflatten(-1, (-1, width))
        if self.kind == "mean" and self.value is not None:  # of another run, known beforehand
            own = 3 if place in POSITION else 2 if place in HEAD else 1  # its own dimensions
            leading = tuple(range(self.value.dim() - own))
            placed.kind = "replace"
            placed.value = self.value.mean(leading) if leading else self.value
        return placed

    def __call__(self, x: Tensor) -> Tensor:
        """The activation with the chosen part changed."""
        if self.function is not None:
            return self.apply(self.function, x)
        self.check_shapes(x)
        value = self.mean_of(x) if self.value is None else self.value.to(x)
        return torch.where(self.where(x), x + value if self.kind == "add" else value, x)

    def apply(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """What a function of the user's makes of the activation, if that is one like it."""
        changed: Any = function(x)
        if isinstance(changed, Tensor) and changed.shape == x.shape:
            return changed
        tensor = isinstance(changed, Tensor)
        kind = f"a tensor {tuple(changed.shape)}" if tensor else type(changed).__name__
        problem = f"a function that gives {kind} at {self.place}"
        raise UsageError(DOING, problem, f"a tensor {tuple(x.shape)}, like its argument")

    def positions(self, x: Tensor) -> Tensor:
        """The position (B or 1, T) of each vector of the activation in its text, −1 at padding."""
        count, held = x.shape[POSITION.get(self.place, 1)], self.columns.positions
        every = torch.arange(count, device=x.device)[None]
        if held is None:
            return every
        if self.compact:
            length = (held >= 0).sum(1, keepdim=True)
            return torch.where(every < length, held.amax(1, keepdim=True) + 1 - length + every, -1)
        return held if held.shape[1] == count else held.amax(1, keepdim=True)  # the last token's

    def mean_of(self, x: Tensor) -> Tensor:
        """The mean over all vectors that are no padding; of scores of whole texts, over these.

        Each score of two tokens (B, H, T, S) has its own, over the batch.
        """
        if x.dim() == 2:
            return x.mean(0)
        over = (0,) if self.place in POSITION else (0, 1)
        real = self.spread_out(self.positions(x).expand(len(x), -1) >= 0, x)
        total = torch.where(real, x, 0).sum(over, keepdim=True)
        return total / real.sum(over, keepdim=True).clamp(min=1)

    def spread_out(self, chosen: Tensor, x: Tensor) -> Tensor:
        """A choice of positions (B or 1, T), laid over the dimensions of the activation."""
        dim = POSITION.get(self.place, 1)
        if x.dim() == 2:
            problem = f"a choice of positions at {self.place}, {tuple(x.shape)}"
            raise UsageError(DOING, problem, "a tap that holds a vector for each token")
        return chosen.view([len(chosen), *(-1 if d == dim else 1 for d in range(1, x.dim()))])

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
            raise UsageError(DOING, problem, expected, fix if longer else "")

    def where(self, x: Tensor) -> Tensor:
        """True at what is to change, broadcastable to x."""
        every = torch.ones((), dtype=torch.bool, device=x.device)
        chosen = every if self.mask is None else self.mask.to(x.device)
        for index, dim in ((self.head, HEAD.get(self.place, 0)), (self.neuron, x.dim() - 1)):
            if index is not None:
                count = x.shape[dim]
                hit = choose(index, torch.arange(count, device=x.device), count)
                chosen = chosen & hit.view([-1 if d == dim else 1 for d in range(x.dim())])
        if self.position is not None:
            places, held = self.positions(x), self.columns.positions
            length = (places if held is None else held).amax(1, keepdim=True) + 1
            self.check_position(self.position, length)
            chosen = chosen & self.spread_out(choose(self.position, places, length), x)
        return chosen

    def check_position(self, position: Tensor | slice, length: Tensor) -> None:
        """Refuse what no text of the batch has; texts that are being written grow still."""
        if torch.compiler.is_compiling():
            return
        first = position.start or 0 if isinstance(position, slice) else int(position.min())
        last = position.stop or 0 if isinstance(position, slice) else int(position.max())
        if self.columns.cached:
            if min(first, last) < 0:
                problem = f"position {min(first, last)} of a text that is being written"
                raise UsageError(DOING, problem, "positions from 0 up")
        elif not isinstance(position, slice):
            check_index("position", position, int(length.max()), self.place, "a token of the text")


Edits = Mapping[str, Edit | Callable[[Tensor], Tensor] | Sequence[Any]]
"""Name of a tap, or a pattern of names → what is done there: an edit, a function, or several."""


def choose(index: Tensor | slice, places: Tensor, size: Tensor | int) -> Tensor:
    """Which of the places, numbers below `size`, an index means; negative ones from the end."""
    if isinstance(index, slice):
        start, stop = index.start or 0, index.stop
        start = start if start >= 0 else size + start
        chosen = (places >= 0) & (places >= start) & ((places - start) % (index.step or 1) == 0)
        return chosen if stop is None else chosen & (places < (stop if stop >= 0 else size + stop))
    index = index.to(places.device)
    index = torch.where(index < 0, index + size, index)  # (n,), or (B, n)
    hit = places[..., None] == (index if index.dim() == 1 else index[:, None])
    return hit.any(-1) & (places >= 0)


def check_index(what: str, index: Tensor | slice, count: int, name: str, expected: str) -> None:
    """Refuse numbers that are not below `count`, nor as far from the end; slices fit any."""
    listed = index if isinstance(index, slice) else index.tolist()
    fits = isinstance(listed, slice) or all(-count <= n < count for n in listed)
    if not count or not fits:
        raise UsageError(DOING, f"{what} {listed} at {name}", expected)


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


def read_indices(where: Where) -> dict[str, Any]:
    """Indices as tensors, so that another choice is no other program to the compiler; or slices."""
    check_names(where, CHOICES, DOING, "what is chosen")
    chosen: dict[str, Tensor | slice] = {}
    for name, index in where.items():
        if index is None:
            continue
        if not isinstance(index, slice):
            try:
                index = torch.as_tensor(index).cpu()
            except (TypeError, ValueError, RuntimeError):
                index = torch.zeros(0)
            index = index.nonzero()[:, 0] if index.dtype == torch.bool and index.dim() else index
            index = index.reshape(-1) if index.dim() < 2 else torch.zeros(0)
        bad = isinstance(index, Tensor) and (index.is_floating_point() or not len(index))
        if bad or (isinstance(index, slice) and (index.step or 1) < 1):
            expected = "a whole number, several, or a slice that goes up"
            raise UsageError(DOING, f"{name} {where[name]!r}", expected)  # type: ignore[literal-required]
        chosen[name] = index
    return chosen


def read_values(value: Any, kind: str) -> Tensor:
    """Numbers that an edit works with, as a tensor."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        expected = "a tensor, a number, or a list of them"
        raise UsageError(DOING, f"regard.{kind}({value!r})", expected) from None


def zero(**where: Unpack[Where]) -> Edit:
    """Set the chosen heads, positions or neurons to zero; without a choice, all."""
    return Edit("replace", torch.zeros(()), **read_indices(where))


def mean(reference: Tensor | None = None, **where: Unpack[Where]) -> Edit:
    """Replace by the mean over batch and positions of this run without padding, or of `reference`.

    That is an activation of another run, such as `seen[tap][mask]`, of its real tokens.
    Scores and patterns (B, H, T, S) belong to two positions each: their mean is over the batch.
    """
    value = None if reference is None else read_values(reference, "mean")
    return Edit("mean", value, **read_indices(where))


def patch(value: Tensor | float, *, mask: Tensor | None = None, **where: Unpack[Where]) -> Edit:
    """Replace by values from another run, broadcastable to the activation.

    A boolean `mask`, broadcastable too, says for each row what is replaced.
    """
    return Edit("replace", read_values(value, "patch"), mask=mask, **read_indices(where))


def add(value: Tensor | float, **where: Unpack[Where]) -> Edit:
    """Add a value, such as a steering vector (D,)."""
    return Edit("add", read_values(value, "add"), **read_indices(where))


# Edits as commands write them ---------------------------------------------------------------------

OPTIONS = {"zero": (), "mean": (), "add": ("file", "scale"), "patch": ("file",)}
"""Each kind of edit, and the options it has beside the choices."""
CHOICES = ("head", "position", "neuron")
FORM = f"TAP={'|'.join(OPTIONS)}[,head=N+N][,position=N][,neuron=N][,file=F][,scale=X]"
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
    values = dict(option.partition("=")[::2] for option in options)
    known = (*CHOICES, *OPTIONS[kind])
    check_names(values, known, PARSING, f"{', '.join(f'{n}=' for n in known)} after {kind}")

    def numbers(name: str) -> list[int]:
        parts = values[name].split("+")
        if not all(part.removeprefix("-").isdecimal() for part in parts):
            raise UsageError(PARSING, f"{values[name]!r} in {text!r}", "whole numbers joined by +")
        return [int(part) for part in parts]

    where: dict[str, Any] = {name: numbers(name) for name in CHOICES if name in values}
    if kind in ("zero", "mean"):
        return zero(**where) if kind == "zero" else mean(None, **where)
    if "file" not in values:
        expected = f"the vector to {kind}: a .safetensors file or a folder of `look extract`"
        raise UsageError(PARSING, f"{text!r}", f"{kind},file=F, {expected}")
    vector = read_vector(values["file"], tap)
    if kind == "patch":
        return patch(vector, **where)
    try:
        scale = float(values.get("scale", "1"))
    except ValueError:
        raise UsageError(PARSING, f"scale {values['scale']!r} in {text!r}", "a number") from None
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
