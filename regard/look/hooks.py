"""Hooks: what is attached to a model's taps while somebody reads or changes activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from torch import Tensor

from regard.core.tap import TapFunction, taps
from regard.errors import UsageError
from regard.look.edits import DOING, Columns, Edit, Edits
from regard.look.tap_names import check_meaning, find_taps, listed, of_source
from regard.model.batch import Batch
from regard.model.fronts import TextFront
from regard.model.model import Model


class Hook:
    """Changes and remembers what passes a tap.

    One hook lives as long as its tap, and holds its tensors in fields: attaching it again, or with
    other values, is the same program to `torch.compile`.
    """

    def __init__(self) -> None:
        self.own: TapFunction | None = None  # that somebody set by hand: it comes first
        self.edits: list[Edit] = []
        self.readers = 0
        self.grad = False  # whether readers ask for gradients, also where weights are frozen
        self.seen: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Edit first, then remember, so that one reads what the model goes on with."""
        if self.own is not None:
            x = self.own(x)
        for edit in self.edits:
            x = edit(x)
        if self.readers:
            self.seen = x = x.requires_grad_() if self.grad and not x.requires_grad else x
        return x


class HookedModel:
    """A model and the hooks on its taps: run it while activations are read and changed.

    Hooks belong to the taps, so that several of these on one model do not disturb each other.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.taps = taps(model)
        self.keep: Callable[[Batch, Sequence[Sequence[int]]], None] | None = None
        """Told of texts that were written after the rows of a batch (`activations.py: capture`)."""

    def run(
        self,
        batch: Batch,
        taps: str | Iterable[str] = (),
        edits: Edits | None = None,
        grad: bool = False,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Scores, and what passed each tap; with gradients where torch's mode has them.

        With `grad` what passes taps has them also where weights are frozen.
        """
        with self.editing(edits or {}), self.reading(taps) as hooks:
            for hook in hooks.values():
                hook.grad = grad
            logits = self.model(batch)
            return logits, {name: h.seen for name, h in hooks.items() if h.seen is not None}

    def find(self, patterns: str | Iterable[str]) -> list[str]:
        """The taps that patterns name, in the model's order (`tap_names.py`)."""
        model, wanted = self.model, listed(patterns)
        rotary = any(stack.rotary is not None for stack in model.stacks)
        added = getattr(model.reader, "positions", None) is not None
        for pattern in wanted:
            check_meaning(pattern, ("rotary",) * rotary + ("added",) * added)
        return find_taps(wanted, self.taps)

    def hook(self, name: str) -> Hook:
        """The hook of a tap, made when first asked for."""
        tap = self.taps[name]
        if tap.hook is None:
            tap.hook = Hook()
        return cast(Hook, tap.hook)

    def update(self, name: str) -> None:
        """Attach a hook that has something to do, detach one that has not: idle taps are free."""
        hook, tap = self.hook(name), self.taps[name]
        if tap.fn is not hook:
            hook.own = tap.fn
        tap.fn = hook if hook.edits or hook.readers else hook.own

    def check_alone(self, doing: str) -> None:
        """Refuse edits by which one text would change with the company it is run in."""
        for name, tap in self.taps.items():
            for edit in [] if tap.hook is None else tap.hook.edits:
                if edit.kind == "mean":
                    expected = "edits that do not depend on what else is run"
                    fix = "regard.mean(reference), regard.patch(value)"
                    problem = f"the mean of a run, in {doing}"
                    raise UsageError(f"editing {name}", problem, expected, fix)

    def place(self, edits: Edits) -> dict[str, list[Edit]]:
        """Each tap that the patterns name, and its edits, checked."""
        placed: dict[str, list[Edit]] = {}
        for pattern, wanted in edits.items():
            several = list(wanted) if isinstance(wanted, Sequence) else [wanted]
            for name in self.find(pattern):
                owner = self.model.get_submodule(name.rpartition(".")[0])
                front = self.model.front if of_source(name) else self.model.reader
                columns = getattr(front, "listener", None) or Columns()
                if isinstance(front, TextFront):
                    front.listener = columns
                for each in several:
                    maker = getattr(each, "__module__", "") == Edit.__module__  # zero, not zero()
                    plain = callable(each) and not isinstance(each, Edit) and not maker
                    edit = Edit("function", function=each) if plain else each
                    if not isinstance(edit, Edit):
                        expected = "regard.zero(…) or a relative, or a function of the activation"
                        raise UsageError(DOING, f"{wanted!r} at {name}", expected)
                    here = edit.at(name, owner)
                    here.columns = columns
                    placed.setdefault(name, []).append(here)
        return placed

    @contextmanager
    def editing(self, edits: Edits) -> Iterator[None]:
        """Change activations inside the `with` block: tap name or pattern → edit or edits."""
        placed = self.place(edits)
        for name, added in placed.items():
            self.hook(name).edits += added
            self.update(name)
        try:
            yield
        finally:
            for name, added in placed.items():
                hook = self.hook(name)
                hook.edits = [edit for edit in hook.edits if edit not in added]
                self.update(name)
            hooks = [tap.hook for tap in self.taps.values() if tap.hook] if placed else []
            if placed and not any(hook.edits for hook in hooks):
                for front in (self.model.front, self.model.reader):
                    if isinstance(front, TextFront):
                        front.listener = None

    @contextmanager
    def reading(self, patterns: str | Iterable[str]) -> Iterator[dict[str, Hook]]:
        """Remember what passes these taps inside the `with` block."""
        names = self.find(patterns)
        for name in names:
            self.hook(name).readers += 1
            self.update(name)
        try:
            yield {name: self.hook(name) for name in names}
        finally:
            for name in names:
                hook = self.hook(name)
                hook.readers -= 1
                hook.seen, hook.grad = None, False
                self.update(name)
