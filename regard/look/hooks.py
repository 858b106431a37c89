"""Hooks: what is attached to a model's taps while somebody reads or changes activations."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from regard.core.attention import Attention
from regard.core.tap import taps
from regard.errors import UsageError, nearest
from regard.look.edits import Edit, Edits, zero
from regard.look.tap_names import find_taps
from regard.model.batch import Batch
from regard.model.model import Model

if TYPE_CHECKING:
    from regard.look.activations import Captured


class Hook:
    """Changes and remembers what passes a tap.

    One hook lives as long as its tap, and holds its tensors in fields: attaching it again, or with
    other values, is the same program to `torch.compile`.
    """

    def __init__(self) -> None:
        self.edits: list[Edit] = []
        self.readers = 0
        self.seen: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Edit first, then remember, so that one reads what the model goes on with."""
        for edit in self.edits:
            x = edit(x)
        if self.readers:
            self.seen = x
        return x


class HookedModel:
    """A model and the hooks on its taps: run it while activations are read and changed."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.taps = taps(model)
        self.hooks: dict[str, Hook] = {}
        self.captured: list[Captured] | None = None  # by `look/activations.py: capture`
        self.capturing: list[str] = []  # its taps

    def run(
        self, batch: Batch, taps: str | Iterable[str] = (), edits: Edits | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Scores, and what passed each tap; with gradients where torch's mode has them."""
        with self.editing(edits or {}), self.reading(taps) as hooks:
            logits = self.model(batch)
            return logits, {name: h.seen for name, h in hooks.items() if h.seen is not None}

    def hook(self, name: str) -> Hook:
        """The hook of a tap, made when first asked for."""
        return self.hooks.setdefault(name, Hook())

    def update(self, name: str) -> None:
        """Attach a hook that has something to do, detach one that has not: idle taps are free."""
        hook = self.hook(name)
        self.taps[name].fn = hook if hook.edits or hook.readers else None

    def check_alone(self, doing: str, columns: bool = False) -> None:
        """Refuse edits by which one text would change with the company it is run in.

        With `columns` those of positions too: there a sequence is run in several calls.
        """
        expected = "edits that do not depend on what else is run"
        expected += ", the same at every position" if columns else ""
        for name, hook in self.hooks.items():
            for edit in hook.edits:
                if edit.of_batch or (columns and edit.of_positions):
                    kind = f"{edit.kind} of a run" if edit.of_batch else "an edit of positions"
                    fix = "regard.mean(reference), regard.patch(value)"
                    raise UsageError(f"editing {name}", f"{kind}, in {doing}", expected, fix)

    def place(self, edits: Edits) -> dict[str, list[Edit]]:
        """Each tap that the patterns name, and its edits, checked."""
        placed: dict[str, list[Edit]] = {}
        for pattern, wanted in edits.items():
            listed = list(wanted) if isinstance(wanted, Sequence) else [wanted]
            for name in find_taps(pattern, self.taps):
                if not all(isinstance(edit, Edit) for edit in listed):
                    problem = f"{wanted!r} at {name}"
                    raise UsageError(
                        "editing an activation", problem, "regard.zero(…) or a relative"
                    )
                owner = self.model.get_submodule(name.rpartition(".")[0])
                placed.setdefault(name, []).extend(edit.at(name, owner) for edit in listed)
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

    @contextmanager
    def reading(self, patterns: str | Iterable[str]) -> Iterator[dict[str, Hook]]:
        """Remember what passes these taps inside the `with` block."""
        names = find_taps(patterns, self.taps)
        for name in names:
            self.hook(name).readers += 1
            self.update(name)
        try:
            yield {name: self.hook(name) for name in names}
        finally:
            for name in names:
                hook = self.hook(name)
                hook.readers -= 1
                hook.seen = None
                self.update(name)


def head_mask(
    hooked: HookedModel, heads: str | Sequence[str], keep: bool = False
) -> dict[str, list[Edit]]:
    """Edits that switch heads off by name (Michel 2019); with `keep`, all the others.

    A head is called by its tap and number, `decoder.blocks.9.attn.z.6`, or `decoder.9.attn.6`, and
    in a model of one stack `9.6`. `*` stands for anything.
    """
    names: dict[tuple[str, int], list[str]] = {}
    for path, module in hooked.model.named_modules():
        if isinstance(module, Attention):
            stack, _, layer, kind = path.split(".")
            for head in range(module.heads):
                called = [f"{path}.z.{head}", f"{stack}.{layer}.{kind}.{head}"]
                called += [f"{layer}.{head}"] if len(hooked.model.stacks) == 1 else []
                names[f"{path}.z", head] = called
    if not names:
        raise UsageError("masking heads", "a model without attention", "one with heads")
    chosen: set[tuple[str, int]] = set()
    for pattern in [heads] if isinstance(heads, str) else heads:
        hits = {head for head, called in names.items() if fnmatch.filter(called, pattern)}
        if not hits:
            close = nearest(pattern, [name for called in names.values() for name in called])
            close = close or ", ".join(called[-1] for called in [*names.values()][:3])
            problem = f"no head is called {pattern!r}"
            raise UsageError("masking heads", problem, f"a name such as {close}")
        chosen |= hits
    off: dict[str, list[int]] = {}
    for tap, head in names:
        if ((tap, head) in chosen) != keep:
            off.setdefault(tap, []).append(head)
    return {tap: [zero(head=numbers)] for tap, numbers in off.items()}
