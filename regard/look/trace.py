"""Trace: what passes taps while texts are written, with a cache, in batches and beams.

A search reads one column at a time, lets rows go that have ended and puts beams in other places.
A follower is told of both, so that the values of the winning text can be joined: at each position
they are those of one forward pass over the finished text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import UsageError
from regard.look.capture import Board, Station
from regard.look.edit import POSITION
from regard.look.names import resolve
from regard.model.batch import Batch

DOING = "capturing while a text is written"


@dataclass(frozen=True)
class Captured:
    """What passed the taps while one text was written."""

    ids: Tensor
    """(T,): what was read, the prompt first. The last new token is written but never read."""
    given: int
    """How many of them were there before."""
    source: Tensor | None
    """(S,): the source of an encoder-decoder that reads text."""
    values: dict[str, Tensor]
    """Tap → (T, …), of the source's tokens (S, …); scores and patterns (H, T, S)."""


@dataclass(frozen=True)
class Seen:
    """One call of the model."""

    ids: Tensor  # (N, t)
    real: Tensor | None  # (N, t)
    parent: Tensor | None  # (N,) row of the call before; None is the same row
    values: dict[str, Tensor]


@contextmanager
def capture(board: Board, patterns: str | Sequence[str]) -> Iterator[list[Captured]]:
    """Keep what passes taps inside the `with` block: one more for each text that is written.

    They come in the order in which searches are asked for them, each search's rows in theirs.
    """
    names = resolve(patterns, board.taps)
    for name in names:
        if name.partition(".")[0] not in ("encoder", "decoder"):
            found = f"{name}, which is computed for the next token only"
            raise UsageError(DOING, found, "taps of an encoder or a decoder", "run the whole text")
    if board.captured is not None:
        raise UsageError(DOING, "another capture around this one", "one at a time")
    with board.reading(names):
        board.captured, board.capturing = found_ = list[Captured](), names
        try:
            yield found_[0]
        finally:
            board.captured, board.capturing = None, []


@contextmanager
def following(board: Board, batch: Batch, strict: bool = False) -> Iterator[Follower | None]:
    """The follower of one search; None where nobody captures and no edit is of positions."""
    doing = "generation, which reads one column at a time"
    board.check_alone(doing, columns=strict)
    if strict and board.captured is not None:
        raise UsageError(DOING, "strict mode", "ordinary mode")
    placed = [
        edit
        for name, station in board.stations.items()
        for edit in station.edits
        if edit.of_positions and not of_source(name)
    ]
    if board.captured is None and not placed:
        yield None
        return
    follower = Follower(board, batch)
    try:
        yield follower
    finally:
        for edit in placed:
            edit.columns = None


def of_source(name: str) -> bool:
    """Whether a tap's positions are the source's in an encoder-decoder: it is read once."""
    memory = ".cross." in name and name.rpartition(".")[2] in ("k", "v")
    return name.startswith("encoder.") or memory


class Follower:
    """Told by a search what the model reads, and which rows go on (`decode/step.py: Listener`)."""

    def __init__(self, board: Board, batch: Batch) -> None:
        self.board, self.batch = board, batch
        self.lengths = torch.zeros(len(batch.ids), dtype=torch.long, device=batch.ids.device)
        self.calls: list[Seen] = []
        self.parent: Tensor | None = None

    def before(self, ids: Tensor, real: Tensor | None) -> None:
        """The model is about to read ids (N, t): edits of positions are told which these are."""
        kept = torch.ones_like(ids) if real is None else real.long()
        columns = self.lengths[:, None] + kept.cumsum(1) - 1
        columns = columns.masked_fill(kept == 0, -1)
        self.lengths = self.lengths + kept.sum(1)
        for name, station in self.board.stations.items():
            for edit in station.edits:
                if edit.of_positions and not of_source(name):
                    edit.columns = columns
        self.calls.append(Seen(ids, real, self.parent, {}))
        self.parent = None

    def after(self) -> None:
        """The model has read them: keep what the taps saw."""
        for name in self.board.capturing:
            station: Station = self.board.station(name)
            if station.seen is not None:
                self.calls[-1].values[name] = station.seen
                station.seen = None

    def select(self, rows: Tensor) -> None:
        """The search goes on with these rows."""
        self.lengths = self.lengths[rows]
        self.parent = rows if self.parent is None else self.parent[rows]

    def finish(self, written: Sequence[Sequence[int]]) -> None:
        """Join what belongs to the text written after each row of the batch."""
        if self.board.captured is None:
            return
        ids = [call.ids[:, -1].tolist() for call in self.calls]
        parents = [None if c.parent is None else c.parent.tolist() for c in self.calls]
        for row, tokens in enumerate(written):
            path = find_path(row, tokens, ids, parents)
            self.board.captured.append(self.join(row, path))

    def join(self, row: int, path: list[int]) -> Captured:
        """The values along a path: one row of each call."""
        source, real = self.source(row)
        calls = list(zip(self.calls, path, strict=False))
        ids = torch.cat([call.ids[n][kept(call, n)] for call, n in calls])
        values = {}
        for name in self.calls[0].values:
            held = [(c.values[name], n, kept(c, n)) for c, n in calls if name in c.values]
            if of_source(name):
                values[name] = source_values(name, held[0][0][row], real)
            elif name.rpartition(".")[2] in POSITION:
                cross = ".cross." in name
                parts = [x[n][:, own] for x, n, own in held]
                values[name] = join_keys(name, parts, real if cross else None)
                values[name] = values[name] if cross else values[name][:, :, : len(ids)]
            else:
                values[name] = torch.cat([x[n][own] for x, n, own in held])
        given = int(kept(self.calls[0], row).sum())
        return Captured(ids, given, source, values)

    def source(self, row: int) -> tuple[Tensor | None, Tensor | None]:
        """The ids and the mask of a source; None for what a model does not have."""
        batch = self.batch
        real = None if batch.source_mask is None else batch.source_mask[row]
        if batch.target is None or batch.inputs.dim() != 2:
            return None, real
        return (batch.inputs[row] if real is None else batch.inputs[row][real]), real


def kept(call: Seen, row: int) -> Tensor:
    """The columns of a call that hold tokens of a row."""
    whole = torch.ones_like(call.ids[row], dtype=torch.bool)
    return whole if call.real is None else call.real[row]


def source_values(name: str, x: Tensor, real: Tensor | None) -> Tensor:
    """What a tap of the source saw of one row, its padding left out."""
    if real is None:
        return x
    return x[:, real][:, :, real] if name.rpartition(".")[2] in POSITION else x[real]


def join_keys(name: str, parts: list[Tensor], real: Tensor | None) -> Tensor:
    """Scores or patterns (H, t, S) of several calls, each with more keys than the one before."""
    nothing = -torch.inf if name.endswith("scores") else 0.0
    most = max(part.shape[2] for part in parts)
    joined = torch.cat([pad(p, (0, most - p.shape[2]), value=nothing) for p in parts], 1)
    return joined if real is None else joined[:, :, real]


def find_path(
    row: int, tokens: Sequence[int], ids: list[list[int]], parents: list[list[int] | None]
) -> list[int]:
    """The rows that a text had in each call: those whose last ids are its tokens.

    Two groups of a diverse beam may hold the same words: all such rows are followed, and any of
    those that are left at the end will do.
    """
    here, steps = [row], [[row]]
    for call, token in enumerate(tokens[:-1], 1):
        above = parents[call]
        known = set(here)
        here = [
            n
            for n, id in enumerate(ids[call])
            if id == token and (n if above is None else above[n]) in known
        ]
        steps.append(here)
    at, path = steps[-1][0], list[int]()
    for call in range(len(steps) - 1, -1, -1):
        path.append(at)
        above = parents[call]
        at = at if above is None else above[at]
    return path[::-1]
