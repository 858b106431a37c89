"""Stations: what is attached to a tap while somebody reads or changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from regard.core.tap import taps
from regard.errors import UsageError
from regard.look.edit import Edit
from regard.look.names import resolve
from regard.model.batch import Batch
from regard.model.model import Model

if TYPE_CHECKING:
    from regard.look.trace import Captured

Edits = Mapping[str, Edit | Sequence[Edit]]
"""Name of a tap, or a pattern of names → what is done there."""


class Station:
    """Changes and remembers what passes a tap.

    One station lives as long as its tap, and holds its tensors in fields: attaching it again, or
    with other values, is the same program to `torch.compile`.
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


class Board:
    """A model under study: its taps, and what is attached to them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.taps = taps(model)
        self.stations: dict[str, Station] = {}
        self.captured: list[Captured] | None = None  # by `look/trace.py: capture`
        self.capturing: list[str] = []  # its taps

    def run(
        self, batch: Batch, taps: str | Iterable[str] = (), edits: Edits | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Scores, and what passed each tap; with gradients where torch's mode has them."""
        with self.editing(edits or {}), self.reading(taps) as stations:
            logits = self.model(batch)
            return logits, {name: s.seen for name, s in stations.items() if s.seen is not None}

    def station(self, name: str) -> Station:
        """The station of a tap, made when first asked for."""
        return self.stations.setdefault(name, Station())

    def settle(self, name: str) -> None:
        """Attach a station that has something to do, detach one that has not."""
        station = self.station(name)
        self.taps[name].fn = station if station.edits or station.readers else None

    def check_alone(self, doing: str, columns: bool = False) -> None:
        """Refuse edits by which one text would change with the company it is run in.

        With `columns` those of positions too: there a sequence is run in several calls.
        """
        expected = "edits that do not depend on what else is run"
        expected += ", the same at every position" if columns else ""
        for name, station in self.stations.items():
            for edit in station.edits:
                if edit.of_batch or (columns and edit.of_positions):
                    kind = f"{edit.kind} of a run" if edit.of_batch else "an edit of positions"
                    fix = "regard.mean(reference), regard.patch(value)"
                    raise UsageError(f"editing {name}", f"{kind}, in {doing}", expected, fix)

    def place(self, edits: Edits) -> dict[str, list[Edit]]:
        """Each tap that the patterns name, and its edits, checked."""
        placed: dict[str, list[Edit]] = {}
        for pattern, given in edits.items():
            listed = [given] if not isinstance(given, Sequence) else list(given)
            for name in resolve(pattern, self.taps):
                if not all(isinstance(edit, Edit) for edit in listed):
                    found = f"{given!r} at {name}"
                    raise UsageError("editing an activation", found, "regard.zero(…) or a relative")
                owner = self.model.get_submodule(name.rpartition(".")[0])
                placed.setdefault(name, []).extend(edit.at(name, owner) for edit in listed)
        return placed

    def attach(self, edits: Edits) -> dict[str, list[Edit]]:
        """Change activations from now on; what was attached, by the names of the taps."""
        placed = self.place(edits)
        for name, added in placed.items():
            self.station(name).edits += added
            self.settle(name)
        return placed

    @contextmanager
    def editing(self, edits: Edits) -> Iterator[None]:
        """Change activations inside the `with` block: tap name or pattern → edit or edits."""
        placed = self.attach(edits)
        try:
            yield
        finally:
            for name, added in placed.items():
                station = self.station(name)
                station.edits = [edit for edit in station.edits if edit not in added]
                self.settle(name)

    @contextmanager
    def reading(self, patterns: str | Iterable[str]) -> Iterator[dict[str, Station]]:
        """Remember what passes these taps inside the `with` block."""
        names = resolve(patterns, self.taps)
        for name in names:
            self.station(name).readers += 1
            self.settle(name)
        try:
            yield {name: self.station(name) for name in names}
        finally:
            for name in names:
                station = self.station(name)
                station.readers -= 1
                station.seen = None
                self.settle(name)
