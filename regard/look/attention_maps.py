"""View: what pictures of attention are drawn from. The map of each head, kept small, and forecasts.

A map is kept as sparse rows of whole 255ths (`Map`): all links of up to 512 keys, of more keys the
heaviest of each query, so that a page of 5,000 tokens still opens. Weights below 1/510 are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.look.capture import Board
from regard.model.batch import Batch
from regard.model.model import Model

LEVELS = 255  # steps of a weight from 0 to 1
WHOLE = 512  # keys up to which every link is kept
LINKS = 8_000_000  # kept of a longer text, about, in all maps together
FEWEST, MOST = 8, 64  # links of a query of a longer text
SMALL = 64  # edge of a small map
AT_ONCE = 2**27  # numbers of patterns that are held at once
SCORES = 2**25  # numbers of scores that are held at once
TOP = 5  # words of a forecast
LIMIT = 65_535  # tokens: a key is two bytes

Array = NDArray[Any]
Tell = Callable[[str], None]


class Map(NamedTuple):
    """One head's attention: of each query (T) its links, by key."""

    counts: Array
    """(T,): links of each query."""
    keys: Array
    """(links,): ascending in each query."""
    weights: Array
    """(links,): 255 is 1."""
    width: int
    """Keys there are (S)."""

    def dense(self) -> Tensor:
        """Weights (T, S), as far as they were kept."""
        made = np.zeros((len(self.counts), self.width), np.float32)
        queries = np.repeat(np.arange(len(self.counts)), self.counts.astype(np.int64))
        made[queries, self.keys] = self.weights / np.float32(LEVELS)
        return torch.from_numpy(made)

    def links(self, query: int, most: int) -> list[tuple[int, float]]:
        """The heaviest links of a query: key and weight."""
        start = int(self.counts[:query].sum())
        here = slice(start, start + int(self.counts[query]))
        found = zip(self.keys[here].tolist(), (self.weights[here] / LEVELS).tolist(), strict=True)
        return sorted(found, key=lambda link: -link[1])[:most]


class Facts(NamedTuple):
    """A head in three figures."""

    distance: float
    """Mean number of places between a query and what it looks at."""
    entropy: float
    """Mean over queries, in bits: 0 looks at one key."""
    link: tuple[int, int, float]
    """Query, key and weight of the strongest link, between different tokens of one text."""


class Maps(NamedTuple):
    """All heads of one kind."""

    stack: str
    """encoder, decoder or cross."""
    sides: tuple[str, str]
    """Whose tokens ask, and whose are looked at."""
    taps: list[str]
    """The pattern of each block."""
    heads: list[list[Map]]
    """Of each block."""
    facts: list[list[Facts]]
    small: Array
    """(blocks, heads, at most 64, at most 64): maps whose cells are the largest weight in them."""
    mean: Map
    """Of all heads."""
    kept: int | None
    """Links of each query at most; None: all."""


class Forecast(NamedTuple):
    """The likeliest tokens or classes at each position (T), or of the whole (one row)."""

    tokens: Array
    """(T, 5)"""
    probabilities: Array
    """(T, 5)"""


class Effects(NamedTuple):
    """What becomes of forecasts when one head of a stack is switched off."""

    first: int
    """The position of the first of P columns."""
    changes: Array
    """(blocks, heads, P): log-probability of what was likeliest, after minus before."""
    tokens: Array
    """(blocks, heads, P, 5): what is likeliest now."""
    probabilities: Array
    """(blocks, heads, P, 5)"""


@dataclass(frozen=True)
class View:
    """A text as the heads of a model see it."""

    sides: dict[str, list[str]]
    """Tokens by side: text, or source and target."""
    maps: list[Maps]
    forecast: Forecast | None
    """None where the model predicts nothing."""
    whole: bool = False
    """The forecast is of the whole text, not of positions."""
    effects: dict[str, Effects] = field(default_factory=dict)
    """By stack; empty where they were not asked for."""

    def stack(self, name: str | None) -> Maps:
        """The maps of a stack; None is cross-attention, or the only one."""
        for maps in reversed(self.maps):
            if name in (None, maps.stack):
                return maps
        there = ", ".join(maps.stack for maps in self.maps)
        raise UsageError("choosing attention", f"stack {name!r}", f"one of {there}")


@torch.no_grad()
def gather_view(
    board: Board, batch: Batch, sides: Mapping[str, Sequence[str]], tell: Tell = lambda where: None
) -> View:
    """Run one text, read every pattern, a few blocks at a time, and keep what pictures need.

    `sides` are the tokens as people read them: of `text`, or of `source` and `target`.
    """
    stacks = attention_taps(board)
    shown = {name: list(tokens) for name, tokens in sides.items()}
    check_sides(batch, shown)
    rows = sum(
        count_heads(board.model, name) * len(shown[whose(stack, shown)[0]])
        for stack, names in stacks.items()
        for name in names
    )
    most = max(FEWEST, min(MOST, LINKS // max(1, rows)))
    made: list[Maps] = []
    x = torch.zeros(0)
    for stack, names in stacks.items():
        asking, seen = whose(stack, shown)
        building = Building(stack, (asking, seen), most)
        each = len(shown[asking]) * len(shown[seen])
        for group in grouped(names, [each * count_heads(board.model, name) for name in names]):
            tell(f"{stack}, block {len(building.heads)} of {len(names)}")
            with board.reading(group) as stations:
                x = board.model.hidden(batch)
                for station in stations.values():
                    assert station.seen is not None
                    building.add(station.seen[0].float(), len(shown[asking]), len(shown[seen]))
                    station.seen = None
        made.append(building.finish(names))
    head = board.model.config.head
    forecast = None if head.size is None else forecasts(board.model, x)
    return View(shown, made, forecast, head.take != "all")


def attention_taps(board: Board) -> dict[str, list[str]]:
    """The patterns of each stack, in the order in which a text passes them."""
    stacks: dict[str, list[str]] = {"encoder": [], "decoder": [], "cross": []}
    for name in board.taps:
        if name.endswith(".pattern"):
            cross = name.split(".")[-2] == "cross"
            stacks["cross" if cross else name.split(".")[0]].append(name)
    found = {stack: names for stack, names in stacks.items() if names}
    if not found:
        raise UsageError(
            "looking at attention",
            f"a {type(board.model).__name__} model, which has none",
            "a Transformer, or a recurrent encoder-decoder with additive attention",
            "`regard explain`, `patch --over stream`, `probe` and `extract` look into it",
        )
    return found


def whose(stack: str, sides: Mapping[str, object]) -> tuple[str, str]:
    """The side that asks and the side that is looked at."""
    if len(sides) == 1:
        (only,) = sides
        return only, only
    return {"encoder": ("source", "source"), "decoder": ("target", "target")}.get(
        stack, ("target", "source")
    )


def check_sides(batch: Batch, sides: Mapping[str, Sequence[str]]) -> None:
    """One text, not empty, no longer than keys can count."""
    if len(batch.ids) != 1:
        raise UsageError("looking at attention", f"{len(batch.ids)} texts", "one")
    for name, tokens in sides.items():
        if not 0 < len(tokens) <= LIMIT:
            found = f"{len(tokens):,} tokens of the {name}"
            raise DataError("looking at attention", found, f"1 to {LIMIT:,}")


def count_heads(model: Model, name: str) -> int:
    """Heads of the attention that a tap belongs to."""
    return int(model.get_submodule(name.rpartition(".")[0]).heads)  # type: ignore[arg-type]


def head_counts(board: Board) -> list[int]:
    """Heads of each attention."""
    return [
        count_heads(board.model, name) for names in attention_taps(board).values() for name in names
    ]


def grouped(names: Sequence[str], sizes: Sequence[int]) -> Iterator[list[str]]:
    """Neighbours whose patterns can be held at once."""
    group: list[str] = []
    held = 0
    for name, size in zip(names, sizes, strict=True):
        if group and held + size > AT_ONCE:
            yield group
            group, held = [], 0
        group.append(name)
        held += size
    yield group


class Building:
    """Maps of a stack, block by block."""

    def __init__(self, stack: str, sides: tuple[str, str], most: int) -> None:
        self.stack, self.sides, self.most = stack, sides, most
        self.heads: list[list[Map]] = []
        self.facts: list[list[Facts]] = []
        self.small: list[Tensor] = []
        self.total: Tensor | None = None
        self.kept: int | None = None

    def add(self, pattern: Tensor, queries: int, keys: int) -> None:
        """One block's pattern (H, T, S)."""
        if tuple(pattern.shape[1:]) != (queries, keys):
            found = f"{queries} and {keys} tokens to show"
            expected = f"{pattern.shape[1]} queries and {pattern.shape[2]} keys, as the model has"
            raise DataError("looking at attention", found, expected)
        self.kept = None if keys <= WHOLE else self.most
        self.heads.append([sparse(one, self.kept) for one in pattern])
        places = [torch.arange(n, device=pattern.device) for n in (queries, keys)]
        apart = (places[0][:, None] - places[1]).abs().to(pattern)  # (T, S)
        same = self.sides[0] == self.sides[1]
        self.facts.append([facts(one, apart, same) for one in pattern])
        self.small.append(levels(shrink(pattern)).cpu())
        mean = pattern.sum(0).cpu()
        self.total = mean if self.total is None else self.total + mean

    def finish(self, taps: list[str]) -> Maps:
        """All of them."""
        assert self.total is not None
        mean = sparse(self.total / sum(map(len, self.heads)), self.kept)
        small = torch.stack(self.small).numpy()
        return Maps(self.stack, self.sides, taps, self.heads, self.facts, small, mean, self.kept)


def levels(weights: Tensor) -> Tensor:
    """Weights as whole 255ths."""
    return (weights * LEVELS).round().clamp(0, LEVELS).to(torch.uint8)


def sparse(pattern: Tensor, most: int | None) -> Map:
    """A map (T, S) as rows of links, the heaviest `most` of each query."""
    whole = levels(pattern)
    if most is not None:
        many = (whole > 0).sum(-1) > most  # queries that have more
        keys = pattern[many].topk(min(most, pattern.shape[1]), -1).indices
        few = torch.zeros_like(whole[many])
        whole[many] = few.scatter_(-1, keys, whole[many].gather(-1, keys))
    queries, keys = whole.nonzero(as_tuple=True)
    counts = torch.bincount(queries, minlength=len(pattern))
    return Map(
        counts.cpu().numpy().astype(np.uint16),
        keys.cpu().numpy().astype(np.uint16),
        whole[queries, keys].cpu().numpy(),
        pattern.shape[1],
    )


def facts(pattern: Tensor, apart: Tensor, same: bool) -> Facts:
    """A head (T, S) in three figures; links of a token to itself are no news."""
    distance = (pattern * apart).sum(-1).mean()
    entropy = torch.special.entr(pattern).sum(-1).mean() / math.log(2)
    others = pattern.clone().fill_diagonal_(0) if same else pattern
    query, key = divmod(int(others.argmax()), pattern.shape[1])
    return Facts(float(distance), float(entropy), (query, key, float(others[query, key])))


def shrink(pattern: Tensor) -> Tensor:
    """Maps (H, T, S) of at most 64 × 64 cells, each the largest weight in it."""
    size = min(SMALL, pattern.shape[1]), min(SMALL, pattern.shape[2])
    return F.adaptive_max_pool2d(pattern[None], size)[0]


def forecasts(model: Model, x: Tensor) -> Forecast:
    """The likeliest tokens at each position of the last stack's output x (1, T, D)."""
    size = model.config.head.size
    assert size is not None
    step = max(1, SCORES // size)
    chunks = x.split(step, 1) if model.config.head.take == "all" else (x,)
    found = [model.score(chunk).float().softmax(-1).topk(min(TOP, size)) for chunk in chunks]
    tokens = torch.cat([f.indices.reshape(-1, f.indices.shape[-1]) for f in found])
    shares = torch.cat([f.values.reshape(-1, f.values.shape[-1]) for f in found])
    return Forecast(tokens.cpu().numpy(), shares.cpu().numpy())
