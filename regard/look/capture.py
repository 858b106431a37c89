"""Stations: what is attached to a tap while somebody reads or changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor

from regard.core.tap import Tap
from regard.errors import UsageError
from regard.look.edit import Edit


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
    """The taps of one model and their stations."""

    def __init__(self, taps: dict[str, Tap]) -> None:
        self.taps = taps
        self.stations: dict[str, Station] = {}

    def station(self, name: str) -> Station:
        """The station of a tap, made when first asked for."""
        return self.stations.setdefault(name, Station())

    def settle(self, name: str) -> None:
        """Attach a station that has something to do, detach one that has not."""
        station = self.station(name)
        self.taps[name].fn = station if station.edits or station.readers else None

    def check_everywhere(self, doing: str) -> None:
        """Refuse edits that mean one call's columns where a sequence is run in several calls."""
        for name, station in self.stations.items():
            for edit in station.edits:
                if edit.position is not None or edit.kind == "mean":
                    raise UsageError(
                        f"editing {name}",
                        f"an edit of positions or to the mean of a run, in {doing}",
                        "edits that are the same at every position",
                        "use run or logits in ordinary mode for this edit",
                    )

    @contextmanager
    def editing(self, edits: dict[str, list[Edit]]) -> Iterator[None]:
        """Apply edits (tap name → edits) inside the `with` block."""
        for name, added in edits.items():
            self.station(name).edits += added
            self.settle(name)
        try:
            yield
        finally:
            for name, added in edits.items():
                station = self.station(name)
                station.edits = [edit for edit in station.edits if edit not in added]
                self.settle(name)

    @contextmanager
    def reading(self, names: Iterable[str]) -> Iterator[dict[str, Station]]:
        """Remember what passes these taps inside the `with` block."""
        names = list(names)
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
