"""Gather: lay what taps saw in single strict runs back into the shape of the batch."""

from __future__ import annotations

from torch import Tensor

from regard.look.capture import Station
from regard.model.batch import Batch
from regard.model.strict import Part


class Gather:
    """Called after each run of strict mode; `seen` holds whole activations, zeros at padding."""

    def __init__(self, stations: dict[str, Station], batch: Batch) -> None:
        self.stations, self.batch = stations, batch
        self.pair = batch.target is not None
        self.seen: dict[str, Tensor] = {}

    def __call__(self, part: Part) -> None:
        """Take over what each tap saw in this run."""
        for name, station in self.stations.items():
            if station.seen is not None and part.encoder == self.reads_source(name):
                self.place(name, station.seen, part)
                station.seen = None

    def reads_source(self, name: str) -> bool:
        """Whether a tap belongs to the encoder of an encoder-decoder."""
        return self.pair and name.startswith("encoder.")

    def place(self, name: str, x: Tensor, part: Part) -> None:
        """Copy one run's activation (1, …) to its row and columns."""
        kind, cross = name.rpartition(".")[2], ".cross." in name
        keys = part.source if cross and part.source is not None else part.keys
        width = self.width(part.encoder, len(part.keys))
        span = self.width(cross or part.encoder, len(keys))
        if kind in ("scores", "pattern"):  # (1, H, T, S)
            out = self.whole(name, x, (x.shape[1], width, span))
            used = keys[: x.shape[3]]
            rows = x[0][:, part.places, : len(used)]
            out[part.row][:, part.columns[:, None], used] = rows
        elif cross and kind in ("k", "v"):  # (1, S, G, K), in a sequence's first run only
            self.whole(name, x, (span, *x.shape[2:]))[part.row, keys] = x[0]
        elif x.dim() == 2:  # (1, V): a head that takes one position
            self.whole(name, x, x.shape[1:])[part.row] = x[0]
        else:
            out = self.whole(name, x, (width, *x.shape[2:]))
            out[part.row, part.columns] = x[0, part.places]

    def width(self, source: bool, found: int) -> int:
        """Columns of the batch; of pixels and mel, which have no padding, what the run had."""
        data = self.batch.inputs if source else self.batch.ids
        return data.shape[1] if data.dim() == 2 else found

    def whole(self, name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The activation of the whole batch, made at a tap's first run."""
        if name not in self.seen:
            self.seen[name] = x.new_zeros((len(self.batch.ids), *shape))
        return self.seen[name]
