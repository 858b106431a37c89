"""Edits: change an activation while the model runs. Zero, mean, patch, add, resample, draw.

An edit is a few tensors and flags, not a closure: `torch.compile` compiles a kind of edit once and
later ones of that kind, with other heads or values, run without compiling again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index as whole
from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import UsageError

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
                found = f"neuron {self.neuron.tolist()} at {name}"
                raise UsageError("editing an activation", found, f"0 to {width - 1}")
        if self.kind == "mean" and self.value is None and isinstance(owner, nn.RNNBase):
            found = f"the mean of a run at {name}, whose later steps are not known yet"
            raise UsageError(
                "editing an activation", found, "regard.mean(reference), of a run before"
            )
        made = replace(self, place=place)
        vectors = self.value is not None and self.value.dim() == (2 if self.kind == "draw" else 1)
        if place in ("q", "k", "v", "z") and self.value is not None and vectors:
            width = int(owner.width)  # type: ignore[arg-type]
            if self.value.shape[-1] % width == 0:  # one head, or heads side by side
                made.value = self.value.unflatten(-1, (-1, width))
        if self.kind == "mean" and self.value is not None:  # of another run, known beforehand
            made.kind, made.value = "replace", self.value.mean(made.over, keepdim=True)
        return made

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
        where = self.where(x)
        if self.kind == "draw":
            return replace(self, kind="replace", value=self.drawn(x))(x)
        self.check_shapes(x)
        if self.kind == "mean":
            return torch.where(where, x.mean(self.over, keepdim=True), x)
        if self.kind == "resample":
            return torch.where(where, x[self.others(x)], x)
        assert self.value is not None
        value = self.value.to(x)
        return torch.where(where, value if self.kind == "replace" else x + value, x)

    def check_shapes(self, x: Tensor) -> None:
        """Refuse a value or a mask that cannot be laid over the activation."""
        for name, given in (("value", self.value), ("mask", self.mask)):
            if given is None or fits(given, x):
                continue
            found = f"a {name} of shape {tuple(given.shape)} at {self.place}, {tuple(x.shape)}"
            fix = "prompts of as many tokens: `regard patch` shows those of a pair side by side"
            longer = given.dim() == x.dim() and given.shape[-1] == x.shape[-1]
            expected = "a shape that can be broadcast to the activation's"
            raise UsageError("editing an activation", found, expected, fix if longer else "")

    def drawn(self, x: Tensor) -> Tensor:
        """For each position a row of those that were drawn, from the first again after the last."""
        assert self.value is not None
        at = torch.arange(x.shape[1]) if self.columns is None else self.columns
        return self.value.to(x)[at.to(x.device) % len(self.value)]

    def others(self, x: Tensor) -> Tensor:
        """The row that each row of x takes its value from."""
        assert self.rows is not None
        if len(self.rows) != len(x):
            found = f"{len(self.rows)} rows to take from, in a batch of {len(x)}"
            raise UsageError("resampling", found, "as many")
        return self.rows.to(x.device)

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


def fits(value: Tensor, x: Tensor) -> bool:
    """Whether a value can be broadcast to x, and not the other way round."""
    sizes = zip(reversed(value.shape), reversed(x.shape), strict=False)
    return value.dim() <= x.dim() and all(size in (1, own) for size, own in sizes)


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


def choose(index: Indices) -> Tensor | None:
    """Indices as a tensor, so that another choice is no other program to the compiler."""
    if index is None:
        return None
    try:
        chosen = torch.tensor(
            [whole(n) for n in (index if isinstance(index, Sequence) else [index])]
        )
    except TypeError:
        chosen = torch.zeros(0)
    if len(chosen) == 0 or (chosen < 0).any():
        raise UsageError("editing an activation", f"index {index}", "whole numbers from 0 up")
    return chosen


def zero(head: Indices = None, position: Indices = None, neuron: Indices = None) -> Edit:
    """Set the chosen heads, positions or neurons to zero; without a choice, all."""
    value = torch.zeros(())
    return Edit("replace", value, choose(head), choose(position), choose(neuron))


def mean(
    reference: Tensor | None = None,
    head: Indices = None,
    position: Indices = None,
    neuron: Indices = None,
) -> Edit:
    """Replace by the mean over batch and positions, padding included, of `reference` or this run.

    Scores and patterns (B, H, T, S) belong to two positions each: their mean is over the batch.
    """
    return Edit("mean", reference, choose(head), choose(position), choose(neuron))


def patch(
    value: Tensor | float,
    head: Indices = None,
    position: Indices = None,
    neuron: Indices = None,
    mask: Tensor | None = None,
) -> Edit:
    """Replace by values from another run, broadcastable to the activation.

    A boolean `mask`, broadcastable too, says for each row what is replaced.
    """
    value = torch.as_tensor(value)
    return Edit("replace", value, choose(head), choose(position), choose(neuron), mask)


def add(
    value: Tensor | float, head: Indices = None, position: Indices = None, neuron: Indices = None
) -> Edit:
    """Add a value, such as a steering vector (D,)."""
    value = torch.as_tensor(value)
    return Edit("add", value, choose(head), choose(position), choose(neuron))


def resample(
    rows: Tensor | Sequence[int],
    reference: Tensor | None = None,
    head: Indices = None,
    position: Indices = None,
    neuron: Indices = None,
) -> Edit:
    """Give row i of a batch the value of row rows[i]: of the same run, or of `reference` (N, …).

    What the rows share stays, what is particular to one goes (Chan 2022). Rows must be as long as
    each other: at padding there is no value. `other_rows` draws them.
    """
    chosen = torch.as_tensor(rows, dtype=torch.long)
    where = choose(head), choose(position), choose(neuron)
    if reference is not None:
        return Edit("replace", reference[chosen], *where)
    if chosen.dim() != 1 or sorted(set(chosen.tolist()) - set(range(len(chosen)))):
        found = f"rows {chosen.tolist()}"
        raise UsageError("resampling", found, "for each row of the batch one of its rows")
    return Edit("resample", None, *where, rows=chosen)


def resample_from(
    bank: Tensor,
    seed: int = 0,
    head: Indices = None,
    position: Indices = None,
    neuron: Indices = None,
) -> Edit:
    """Give each position a row of `bank` (N, D), drawn at random: what passes the tap in a corpus.

    The same in any batch and while generating, unlike `resample`. `Extracted.tensor` makes banks.
    """
    if bank.dim() != 2 or not len(bank):
        found = f"a bank of shape {tuple(bank.shape)}"
        raise UsageError("resampling", found, "rows (N, D) of activations")
    order = torch.randperm(len(bank), generator=torch.Generator().manual_seed(seed))[:DRAWN]
    return Edit("draw", bank[order], choose(head), choose(position), choose(neuron))


def other_rows(count: int, seed: int = 0) -> Tensor:
    """For each of `count` rows another one, each once: a random cycle (Sattolo 1986)."""
    if count < 2:
        raise UsageError("resampling", f"{count} rows", "two or more")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator)
    made = torch.empty_like(order)
    made[order] = order.roll(1)
    return made
