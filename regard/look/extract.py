"""Extract: what passes taps for the tokens of a corpus, at the speed of a plain forward pass.

Texts of like length run together; each row of numbers lands where its text stands in the corpus,
so the batching is not to be seen. Copies from a GPU run beside the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.look.capture import Board
from regard.look.edit import HEAD, POSITION
from regard.look.names import resolve
from regard.look.trace import of_source
from regard.model.batch import Batch, like_lengths, pad_rows

DOING = "extracting"
WINDOW = 1 << 16  # tokens among which texts of like length are sought
NONE = -1  # position and token of a mean
INDEX = ("text", "position", "token")
Position = int | Literal["all", "last", "mean"]


class Item(NamedTuple):
    """One text as the model reads it."""

    number: int
    """Of the text in its corpus, from 0."""
    ids: Sequence[int]
    target: Sequence[int] | None = None
    """What an encoder-decoder writes, where that is run too; `ids` is its source then."""


@dataclass(frozen=True)
class Choice:
    """What is taken of each text."""

    taps: list[str]
    position: Position = "all"
    """Every token, the last one, the one at an index (negative: from the end), or their mean."""
    head: int | None = None
    """One head of q, k, v or z; without it heads stand side by side."""
    dtype: torch.dtype = torch.float32

    def columns(self, length: int) -> range:
        """The tokens that a text of so many has a row for; none where it is too short."""
        if self.position == "all":
            return range(length)
        if self.position == "mean":
            return range(min(length, 1))
        at = NONE if self.position == "last" else self.position
        at = at + length if at < 0 else at
        return range(at, at + 1) if 0 <= at < length else range(0)


class Kind(NamedTuple):
    """What the taps need."""

    source: bool
    """Their rows are the tokens of an encoder-decoder's source."""
    target: bool
    """They need a target too."""


# What is asked for --------------------------------------------------------------------------------


def choose_taps(
    board: Board,
    patterns: str | Iterable[str],
    position: Position = "all",
    head: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Choice:
    """The taps that patterns name, if all hold vectors of the same tokens."""
    taps, model = resolve(patterns, board.taps), board.model
    if isinstance(position, str) and position not in ("all", "last", "mean"):
        raise UsageError(DOING, f"position {position!r}", "all, last, mean or a whole number")
    for name in taps:
        place = name.rpartition(".")[2]
        if place in POSITION:
            found = f"{name}, which has numbers for two tokens each"
            fix = "`regard look` shows patterns; extract attn.z or attn.out"
            raise UsageError(DOING, found, "taps that hold a vector for each token", fix)
        if ".back." in name or (name == "logits" and model.config.head.take == "first"):
            why = "reads from the end" if ".back." in name else "has one answer for a whole text"
            near = "encoder.ahead.*.state" if ".back." in name else "blocks.*.resid_post"
            raise UsageError(DOING, f"{name}, which {why}", f"taps such as {near}")
        if head is not None and place not in HEAD:
            raise UsageError(DOING, f"head {head} of {name}", "taps of attn.q, k, v or z")
    if len({reads_source(board, name) for name in taps}) > 1:
        found = "taps of the source's tokens and of the target's"
        raise UsageError(
            DOING, found, "one of the two", "run once for each: 'encoder.*', 'decoder.*'"
        )
    return Choice(taps, position, head, dtype)


def reads_source(board: Board, name: str) -> bool:
    """Whether the rows of a tap are the source's tokens in an encoder-decoder."""
    return board.model.config.target is not None and of_source(name)


def kind_of(board: Board, choice: Choice) -> Kind:
    """Which side the taps are on, and whether the other side must run."""
    source = any(reads_source(board, name) for name in choice.taps)
    written = not all(name.startswith("encoder.") for name in choice.taps)
    return Kind(source, board.model.config.target is not None and written)


@torch.inference_mode()
def widths(board: Board, choice: Choice) -> dict[str, int]:
    """The numbers that each tap has for a token, by a run of one."""
    target = [0] if kind_of(board, choice).target else None
    seen = read_batch(board, [Item(0, [0], target)], choice)
    return {name: x.shape[-1] for name, x in seen.items()}


# Running ------------------------------------------------------------------------------------------


def read_batch(board: Board, items: Sequence[Item], choice: Choice) -> dict[str, Tensor]:
    """For each tap its vectors (N, D) of some texts, one text after the other, on the device."""
    kind, device = kind_of(board, choice), board.model.device
    batch = make_batch(items, kind.target).to(device)
    rows = [rows_of(item, kind) for item in items]
    with board.reading(choice.taps) as stations:
        run(board, batch, choice)
        return {name: pick(name, s.seen, rows, choice) for name, s in stations.items()}


def make_batch(items: Sequence[Item], pair: bool) -> Batch:
    """Texts padded on the right."""
    ids, mask = pad_rows([item.ids for item in items])
    if not pair:
        return Batch(ids, mask=mask)
    target, written = pad_rows([item.target or [] for item in items])
    return Batch(ids, target, mask=written, source_mask=mask)


def rows_of(item: Item, kind: Kind) -> Sequence[int]:
    """The tokens that have rows."""
    return item.ids if kind.source or item.target is None else item.target


def run(board: Board, batch: Batch, choice: Choice) -> None:
    """As much of the model as the taps need: no scores of words, no decoder for the encoder's."""
    if "logits" in choice.taps:
        board.model(batch)
    elif board.model.config.target is not None and batch.target is None:
        board.model.encode(batch.inputs, batch.mask)
    else:
        board.model.hidden(batch)


def pick(name: str, x: Tensor | None, rows: Sequence[Sequence[int]], choice: Choice) -> Tensor:
    """What is taken of an activation (B, T, …): the rows (N, D) of all texts, one after another."""
    if x is None:
        raise UsageError(DOING, f"{name}, which nothing passes", "a tap that this model uses")
    if choice.head is not None:
        if choice.head >= x.shape[2]:
            found = f"head {choice.head} of {name}"
            raise UsageError(DOING, found, f"heads 0 to {x.shape[2] - 1}")
        x = x[:, :, choice.head]
    x = x.flatten(2)
    width = x.shape[1]
    if choice.position == "mean":
        lengths = torch.tensor([len(row) for row in rows], device=x.device)
        real = torch.arange(width, device=x.device) < lengths[:, None]
        total = x.float().masked_fill(~real[:, :, None], 0.0).sum(1)
        return (total / lengths.clamp_min(1)[:, None])[lengths > 0].to(choice.dtype)
    at = [k * width + n for k, row in enumerate(rows) for n in choice.columns(len(row))]
    index = torch.tensor(at, dtype=torch.long).to(x.device, non_blocking=True)
    return x.flatten(0, 1).index_select(0, index).to(choice.dtype)


class Flight:
    """Rows on their way from the device into a shard."""

    def __init__(self, seen: Mapping[str, Tensor], places: list[int]) -> None:
        self.places = torch.tensor(places, dtype=torch.long)
        self.event = None
        self.rows = dict(seen)
        if any(x.is_cuda for x in seen.values()):
            self.rows = {name: locked_copy(x) for name, x in seen.items()}
            self.event = torch.cuda.Event()
            self.event.record()

    def land(self, into: Mapping[str, Tensor]) -> None:
        """Wait for the copies, and lay the rows where they belong."""
        if self.event is not None:
            self.event.synchronize()
        for name, x in self.rows.items():
            into[name].index_copy_(0, self.places, x.cpu())


def locked_copy(x: Tensor) -> Tensor:
    """A copy in page-locked memory, made beside the work of the GPU."""
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)


@torch.inference_mode()
def fill(
    board: Board,
    items: Sequence[Item],
    choice: Choice,
    into: Mapping[str, Tensor],
    start: int,
    tokens: int,
    tell: Callable[[int], None] = lambda done: None,
) -> int:
    """Write the rows of texts into tensors (capacity, D) from `start` on; where they end."""
    kind = kind_of(board, choice)
    rows = [rows_of(item, kind) for item in items]
    spans, end = list[range](), start
    for item, row in zip(items, rows, strict=True):
        columns = choice.columns(len(row))
        spans.append(range(end, end + len(columns)))
        fill_index(into, spans[-1], item.number, row, columns, choice)
        end += len(columns)
    flight: Flight | None = None
    lengths = [len(item.ids) + len(item.target or ()) for item in items]
    for some in like_lengths(lengths, tokens):
        seen = read_batch(board, [items[n] for n in some], choice)
        if flight is not None:
            flight.land(into)
        flight = Flight(seen, [place for n in some for place in spans[n]])
        tell(sum(lengths[n] for n in some))
    if flight is not None:
        flight.land(into)
    return end


def fill_index(
    into: Mapping[str, Tensor],
    span: range,
    number: int,
    row: Sequence[int],
    columns: range,
    choice: Choice,
) -> None:
    """Say of each row its text, position and token; a mean has neither of the last two."""
    if not span:
        return
    where = slice(span.start, span.stop)
    mean = choice.position == "mean"
    into["text"][where] = number
    into["position"][where] = NONE if mean else torch.arange(columns.start, columns.stop)
    into["token"][where] = NONE if mean else torch.tensor(row[columns.start : columns.stop])


# A corpus -----------------------------------------------------------------------------------------


class Shards:
    """Rows of a corpus as they are read, given away in shards of bounded size, in order."""

    def __init__(
        self, board: Board, choice: Choice, size: int, write: Callable[[dict[str, Tensor]], None]
    ) -> None:
        self.board, self.choice, self.write = board, choice, write
        self.kind, self.widths = kind_of(board, choice), widths(board, choice)
        self.row_bytes = sum(self.widths.values()) * choice.dtype.itemsize + 8 * len(INDEX)
        self.size, self.capacity = size, max(1, size // self.row_bytes)
        self.held = self.room()
        self.used = 0  # rows of the present shard

    def room(self) -> dict[str, Tensor]:
        """The tensors of an empty shard; memory is taken as they fill."""
        rows = self.capacity
        index = {name: torch.empty(rows, dtype=torch.long) for name in INDEX}
        made = {n: torch.empty(rows, d, dtype=self.choice.dtype) for n, d in self.widths.items()}
        return index | made

    def count(self, item: Item) -> int:
        """Rows of a text."""
        return len(self.choice.columns(len(rows_of(item, self.kind))))

    def check(self, item: Item) -> int:
        """The rows of a text, if a shard can hold them."""
        rows = self.count(item)
        if rows > self.capacity:
            found = f"{rows:,} rows of {self.row_bytes:,} bytes in text {item.number + 1}"
            wanted = f"at most {self.capacity:,}, a shard of {self.size:,} bytes"
            fix = "a larger --shard-mb, fewer taps, --position last, or shorter lines"
            raise DataError(DOING, found, wanted, fix)
        return rows

    def read(
        self, items: Iterable[Item], tokens: int, tell: Callable[[int], None] = lambda done: None
    ) -> None:
        """Read texts, each of which must fit into a shard."""
        window, rows, length = list[Item](), 0, 0
        for item in items:
            count = self.check(item)
            full = self.used + rows + count > self.capacity
            if window and (full or length > WINDOW):
                self.used = fill(
                    self.board, window, self.choice, self.held, self.used, tokens, tell
                )
                window, rows, length = [], 0, 0
            if full:
                self.flush()
            window.append(item)
            rows, length = rows + count, length + len(item.ids) + len(item.target or ())
        self.used = fill(self.board, window, self.choice, self.held, self.used, tokens, tell)

    def flush(self) -> None:
        """Give the present shard away, if it has rows."""
        if self.used:
            self.write({name: x[: self.used] for name, x in self.held.items()})
            self.held, self.used = self.room(), 0
