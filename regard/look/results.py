"""What the public functions of this room return. No torch here."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from regard.errors import DataError, UsageError
from regard.result import Grid, Result, Row, human, human_bytes, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Array = NDArray[Any]

# Attention ----------------------------------------------------------------------------------------

StackName = Literal["encoder", "decoder", "cross"]
LEVELS = 255  # steps of a weight from 0 to 1
LINKS_SHOWN = 3  # of a token
HEADS_SHOWN = 10  # described one by one
TOKENS_SHOWN = 40  # whose links are listed, and columns of the heat map
TABLE_HEADS = 12  # across
RAMPS = " ▁▂▃▄▅▆▇█", " .:-=+*%@"  # the second for terminals without block characters


class HeadMap(NamedTuple):
    """One head's attention: of each query (T) its links, by key."""

    counts: Array
    """(T,): links of each query."""
    keys: Array
    """(links,): ascending in each query."""
    weights: Array
    """(links,): 255 is 1."""
    width: int
    """Keys there are (S)."""

    def dense(self) -> Array:
        """Weights (T, S), as far as they were kept."""
        import numpy as np

        whole = np.zeros((len(self.counts), self.width), np.float32)
        queries = np.repeat(np.arange(len(self.counts)), self.counts.astype(np.int64))
        whole[queries, self.keys] = self.weights / np.float32(LEVELS)
        return whole

    def links(self, query: int, most: int) -> list[tuple[int, float]]:
        """The heaviest links of a query: key and weight."""
        start = int(self.counts[:query].sum())
        here = slice(start, start + int(self.counts[query]))
        pairs = zip(self.keys[here].tolist(), (self.weights[here] / LEVELS).tolist(), strict=True)
        return sorted(pairs, key=lambda link: -link[1])[:most]


class HeadFacts(NamedTuple):
    """A head in three figures."""

    distance: float
    """Mean number of places between a query and what it looks at."""
    entropy: float
    """Mean over queries, in bits: 0 looks at one key."""
    link: tuple[int, int, float]
    """Query, key and weight of the strongest link, between different tokens of one text."""


class StackMaps(NamedTuple):
    """All heads of one kind of attention."""

    stack: str
    """encoder, decoder or cross."""
    sides: tuple[str, str]
    """Whose tokens ask, and whose are looked at."""
    taps: list[str]
    """The pattern of each block."""
    heads: list[list[HeadMap]]
    """Of each block."""
    facts: list[list[HeadFacts]]
    small: Array
    """(blocks, heads, at most 64, at most 64): maps whose cells are the largest weight in them."""
    mean: HeadMap
    """Of all heads."""
    kept: int | None
    """Links of each query at most; None: all."""


class Forecast(NamedTuple):
    """The likeliest tokens or classes at each position (T), or of the whole (one row)."""

    tokens: Array
    """(T, 5)"""
    probabilities: Array
    """(T, 5)"""


class HeadEffects(NamedTuple):
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
class AttentionMaps(Result):
    """{heading}."""

    tokens: dict[str, list[str]]
    """As people read them, by side: text, or source and target."""
    maps: list[StackMaps]
    forecast: Forecast | None = None
    """None where the model predicts nothing."""
    whole: bool = False
    """The forecast is of the whole text, not of positions."""
    effects: dict[str, HeadEffects] = field(default_factory=dict)
    """By stack; empty where they were not asked for."""
    words: dict[int, str] = field(default_factory=dict)
    """How the tokens or classes of forecasts are spelt."""
    heading: str = "attention"
    shown_stack: str | None = None
    """The attention that is listed and drawn; None is cross-attention, or the only one."""
    shown_head: tuple[int, int] | None = None
    """The block and head that is listed and drawn; None lists the mean and draws all."""

    def stack(self, name: str | None = None) -> StackMaps:
        """The maps of a stack; None is the one that is shown."""
        name = name or self.shown_stack
        for maps in reversed(self.maps):
            if name in (None, maps.stack):
                return maps
        there = ", ".join(maps.stack for maps in self.maps)
        raise UsageError("choosing attention", f"stack {name!r}", f"one of {there}")

    def to_dict(self) -> dict[str, Any]:
        """Figures of each head, the heaviest links of those shown; the maps are in the page."""
        maps, head = self.stack(), self.shown_head
        shown = maps.mean if head is None else maps.heads[head[0]][head[1]]
        data: dict[str, Any] = {"tokens": self.tokens, "stacks": []}
        for each in self.maps:
            effects = self.effects.get(each.stack)
            heads = [
                {"block": block, "head": number, "distance": fact.distance, "entropy": fact.entropy}
                | {"link": dict(zip(("query", "key", "weight"), fact.link, strict=True))}
                | ({} if effects is None else {"effect": float(effects.changes[block, number, -1])})
                for block, row in enumerate(each.facts)
                for number, fact in enumerate(row)
            ]
            sides = {"stack": each.stack, "queries": each.sides[0], "keys": each.sides[1]}
            data["stacks"].append(sides | {"heads": heads})
        data |= {"stack": maps.stack, "head": None if head is None else list(head)}
        links = (shown.links(n, LINKS_SHOWN) for n in range(len(self.tokens[maps.sides[0]])))
        data["links"] = [[{"key": k, "weight": w} for k, w in row] for row in links]
        if self.forecast is not None:
            data["forecast"] = [{"text": word, "probability": p} for word, p in self.predicted()]
        return data

    def predicted(self) -> list[tuple[str, float]]:
        """The likeliest words at the last position, or of the whole text, with probabilities."""
        if self.forecast is None:
            return []
        pairs = zip(self.forecast.tokens[-1], self.forecast.probabilities[-1], strict=True)
        return [(self.words[int(token)], float(share)) for token, share in pairs]

    def parts(self) -> Iterator[str | Grid]:
        """Heads in a table, some described, where each token looks, what is predicted."""
        maps = self.stack()
        blocks = (sys.stdout.encoding or "").lower().startswith("utf")
        ramp = RAMPS[0 if blocks else 1]
        yield from self._heads(maps, ramp)
        yield self._described(maps)
        yield self._links(maps, ramp)
        if words := self.predicted():
            said = ", ".join(f"{word.strip()} {share:.1%}" for word, share in words)
            yield f"predicted {self._where()}: {said}"

    def _where(self) -> str:
        return "of the whole text" if self.whole else "at the last token"

    def _heads(self, maps: StackMaps, ramp: str) -> Iterator[Grid]:
        """Blocks × heads: mean distance and spread of each."""
        title = f"{maps.stack}: mean distance of what each head looks at, in tokens; "
        title += f"{ramp[1]} looks at one token, {ramp[-1]} at all alike"
        most, steps = math.log2(max(2, maps.mean.width)), len(ramp) - 1
        for first in range(0, len(maps.facts[0]), TABLE_HEADS):
            heads = range(first, min(first + TABLE_HEADS, len(maps.facts[0])))
            rows = [[str(block)] for block in range(len(maps.facts))]
            for row, facts in zip(rows, maps.facts, strict=True):
                for fact in (facts[head] for head in heads):
                    mark = ramp[1 + min(steps - 1, int(fact.entropy / most * steps))]
                    row.append(f"{fact.distance:.1f}{mark}")
            yield Grid(title if first == 0 else "", ["block", *map(str, heads)], rows)

    def _described(self, maps: StackMaps) -> Grid:
        """Some heads: those that do most for the last forecast, else those with a firm link."""
        effects, asking, seen = self.effects.get(maps.stack), *self._sides(maps)
        every = [(b, h) for b, row in enumerate(maps.facts) for h in range(len(row))]
        change = None if effects is None else effects.changes[..., -1]
        title, columns = "", ["head", "strongest link", "weight", "distance", "bits"]
        if change is None:
            every.sort(key=lambda at: -maps.facts[at[0]][at[1]].link[2])
        else:
            every.sort(key=lambda at: -abs(change[at]))
            columns.append("if off")
            title = "if off: change of the log-probability of the likeliest prediction "
            title += self._where()
        rows = []
        for block, head in every[:HEADS_SHOWN]:
            fact = maps.facts[block][head]
            query, key, weight = fact.link
            row = [f"{block}.{head}", f"{asking[query]} → {seen[key]}", f"{weight:.0%}"]
            row += [f"{fact.distance:.1f}", f"{fact.entropy:.1f}"]
            rows.append(row if change is None else [*row, f"{change[block, head]:+.2f}"])
        return Grid(title, columns, rows, left=2)

    def _links(self, maps: StackMaps, ramp: str) -> Grid:
        """A row for each token: a heat map of short texts, and what it looks at most."""
        head, (asking, seen) = self.shown_head, self._sides(maps)
        shown = maps.mean if head is None else maps.heads[head[0]][head[1]]
        name = "the mean of all heads" if head is None else f"head {head[0]}.{head[1]}"
        first = max(0, len(asking) - TOKENS_SHOWN)
        part = f" (the last {TOKENS_SHOWN} of {len(asking):,} tokens)" if first else ""
        dense = shown.dense() if len(seen) <= TOKENS_SHOWN else None
        rows = []
        for query in range(first, len(asking)):
            links = shown.links(query, LINKS_SHOWN)
            row = [asking[query]]
            if dense is not None:  # the root of a weight, so that small ones are seen too
                marks = (ramp[round(math.sqrt(w) * (len(ramp) - 1))] for w in dense[query])
                row.append(f"|{''.join(marks)}|")
            rows.append([*row, ", ".join(f"{seen[key]} {weight:.0%}" for key, weight in links)])
        title = f"{maps.stack}, where each token looks: {name}{part}"
        return Grid(title, [""] * len(rows[0]), rows, left=3)

    def _sides(self, maps: StackMaps) -> tuple[list[str], list[str]]:
        """Tokens of both sides, short enough for a table."""
        from regard.look.labels import fit

        asking, seen = ([fit(t, 16).rstrip() for t in self.tokens[side]] for side in maps.sides)
        return asking, seen

    def page(self) -> str:
        """One page, which needs no network: all heads, one head large, heads off by click."""
        from regard.look.page import attention_page

        return attention_page(self)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, for a notebook."""
        import html

        page = html.escape(self.page())
        return f'<iframe srcdoc="{page}" style="width:100%;height:700px;border:0"></iframe>'

    def plot(self) -> Any:
        """A picture of all heads of a stack, or of the head that is shown."""
        from regard.look.picture import draw_head, draw_heads

        return draw_heads(self) if self.shown_head is None else draw_head(self, self.shown_head)


# Heads --------------------------------------------------------------------------------------------

HeadMeasure = Literal["previous", "duplicate", "induction", "entropy", "distance", "norm"]


@dataclass(frozen=True)
class HeadScore(Row):
    """What was measured of one head; None where there is no such thing."""

    layer: str
    """Path of its attention."""
    block: int
    head: int
    previous: float | None = shown("{:.3f}", default=None)
    """Mean weight of the token before."""
    duplicate: float | None = shown("{:.3f}", default=None)
    """Mean weight, in the second A, of the same token in the first."""
    induction: float | None = shown("{:.3f}", default=None)
    """Mean weight, in the second A, of the token after the same one in the first."""
    entropy: float | None = shown("{:.3f}", default=None)
    """Mean entropy of its rows, in nats."""
    distance: float | None = shown("{:.3f}", default=None)
    """Mean distance between query and key, in tokens."""
    norm: float | None = shown("{:.3f}", default=None)
    """Mean length of what it writes into the stream."""

    @property
    def name(self) -> str:
        """As people write it: block.head, with the part of the model where that is not clear."""
        stack, kind = self.layer.split(".")[0], self.layer.rpartition(".")[2]
        where = "" if (stack, kind) == ("decoder", "attn") else f" ({stack} {kind})"
        return f"{self.block}.{self.head}{where}"


@dataclass(frozen=True)
class HeadScores(Result):
    """Heads of {model} on {rows} × 2 × {length} random tokens."""

    model: str
    length: int
    """Tokens of the random half that is repeated."""
    rows: int
    seed: int
    measured_on: str | None
    """The text or file that entropy, distance and norm were measured on; None: random tokens."""
    heads: list[HeadScore]


# Lens ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LensLayer(Row):
    """What one layer would say."""

    layer: str
    likeliest: str
    likeliest_probability: float = shown("{:.4f}", title="p")
    probability: float = shown("{:.4f}", title="p(target)")
    """Of the token that is followed."""
    rank: int = shown(title="rank of target")
    """1 is the likeliest."""


@dataclass(frozen=True)
class Contribution(Row):
    """One writer into the stream, or a constant, and what it gave to the logit."""

    kind: str
    """embed, head, cross, mlp (its own bias included), neuron or bias."""
    layer: str
    """Path of the module, such as decoder.blocks.3.attn."""
    block: int | None
    head: int | None
    """Number of the head, or of the neuron."""
    name: str
    """As people say it."""
    value: float


@dataclass(frozen=True)
class LensToken(Row):
    """A token by its id and its spelling."""

    id: int
    piece: str


@dataclass(frozen=True)
class Lens(Result):
    """{text}."""

    model: str
    text: str
    target: LensToken
    """The token that is followed."""
    against: LensToken | None
    """The token whose logit is taken away, if any."""
    layers: list[LensLayer]
    contributions: list[Contribution] | None
    """What each part of the model wrote towards the logit; None where it is no such sum."""
    why: str = ""
    """Why there are no contributions."""
    goal: float | None = None
    """The logit, or difference of two, that the model gave."""
    error: float | None = None
    """Sum of the contributions less the goal."""
    top: int = 20
    """Contributions that are shown to people."""

    def to_dict(self) -> dict[str, Any]:
        """The layers, and each part's contribution or why there is none."""
        data = super().to_dict()
        del data["top"]
        data["parts"] = data.pop("contributions")
        for name in ("goal", "error") if self.contributions is None else ("why",):
            del data[name]
        return data

    def parts(self) -> Iterator[str | Grid]:
        """What each layer would say, and who wrote the answer, largest first."""
        own = self.target.piece
        rows = [
            (
                each.layer,
                each.likeliest,
                f"{each.likeliest_probability:.4f}",
                f"{each.probability:.4f}",
                f"{each.rank:,}",
            )
            for each in self.layers
        ]
        columns = ("layer", "likeliest", "p", f"p({own})", f"rank of {own}")
        yield Grid(self.text, columns, rows, left=2)
        if self.contributions is None:
            yield f"no contributions: {self.why}"
            return
        order = sorted(self.contributions, key=lambda part: -abs(part.value))
        written = [(part.name, f"{part.value:+.4f}") for part in order[: self.top]]
        if rest := order[self.top :]:
            total = sum(part.value for part in rest)
            written.append((f"{len(rest)} smaller ones", f"{total:+.4f}"))
        less = "" if self.against is None else f" less that of {self.against.piece}"
        title = f"logit of {own}{less}: who wrote it"
        yield Grid(title, ("part", "contribution"), written)
        total = sum(part.value for part in self.contributions)
        yield f"  sum {total:.4f}, model {self.goal:.4f}, error {self.error:.1e}"


# Extraction ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extraction(Result):
    """{out}: activations of {texts} texts."""

    out: str
    """The folder, which `regard.Extracted` opens."""
    model: str
    taps: dict[str, dict[str, list[int]]]
    """Of each tap the shape of its rows."""
    dtype: str
    position: int | str
    head: int | None
    tokens_of: str
    """Whose tokens the rows are: of the text, or of the source or target."""
    rows: int
    texts: int
    tokens: int
    skipped: int
    """Texts that could not be read."""
    short: int
    """Texts without a token at the position asked for."""
    texts_sha256: str
    bytes: int
    shards: int
    seconds: float
    tokens_per_second: float

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """That of bad data where texts were skipped."""
        return DataError.exit_code if self.skipped else 0

    def parts(self) -> Iterator[str | Grid]:
        """The shape of each tap, then how much was read."""
        rows = [(name, *map(human, each["shape"])) for name, each in self.taps.items()]
        yield Grid(f"{self.out}: {human_bytes(self.bytes)}", ("tap", "rows", "numbers"), rows)
        yield (
            f"{self.texts:,} texts, {self.tokens:,} tokens in {self.seconds:.1f} s "
            f"({self.tokens_per_second:,.0f} a second); "
            f"{self.shards:,} shard{'s' if self.shards > 1 else ''} of {self.dtype}"
        )
        if self.short:
            yield f"{self.short:,} texts have no token at position {self.position}: no row"


# Attribution ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientScores(Row):
    """Gradient × input, or integrated gradients."""

    scores: Tensor
    """(M,): what each token gives to the goal, in float64; of any function, as its input."""
    value: float
    """The goal of the input."""
    baseline_value: float
    """The goal of the baseline."""
    completeness_error: float
    """|sum of scores − (value − baseline value)|, relative to |value − baseline value|."""
    steps: int
    """Points of the path; 1 for gradient × input."""


@dataclass(frozen=True)
class LimeScores(Row):
    """LIME's linear model: intercept + coefficients of the tokens that are there."""

    scores: Tensor
    """(M,): coefficient of each token, in float64."""
    r2: float
    """Weighted share of the variance that the fit explains, at most 1."""
    trusted: bool
    """Whether the fit describes the goal near the input."""
    intercept: float
    """What is left where no token is there."""
    value: float
    """The goal of the whole input."""


@dataclass(frozen=True)
class ShapScores(Row):
    """Shapley values; they sum to value − baseline value."""

    scores: Tensor
    """(M,) in float64."""
    value: float
    """The goal of the whole input."""
    baseline_value: float
    """The goal where no token is there."""
    interval: Tensor
    """(M,): half the width of the 95 % interval; 0 where the values are exact."""
    orders: int
    """Orders that were drawn; 0 where all subsets were run."""


# Gradients ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientCurve(Row):
    """How far back the loss of one model reaches."""

    name: str
    gradient: list[float]
    """Its size by the state 1, 2, … steps before the loss."""


@dataclass(frozen=True)
class GradientReach(Result):
    """Gradient of the loss by the state so many steps before it."""

    length: int
    lags: list[int]
    models: list[GradientCurve]

    def parts(self) -> Iterator[str | Grid]:
        """A column for each model, at lags of 1, 2, 4, … and the last."""
        count = len(self.lags)
        shown_lags = sorted({*(2**n for n in range(count.bit_length())), count})
        rows = [
            (str(lag), *(f"{curve.gradient[lag - 1]:.2e}" for curve in self.models))
            for lag in shown_lags
        ]
        yield Grid(self.title(), ("lag", *(curve.name for curve in self.models)), rows)

    def plot(self) -> Any:
        """The curves on a logarithmic scale."""
        from regard.look.picture import draw_curves

        curves = {curve.name: curve.gradient for curve in self.models}
        return draw_curves(curves, "steps before the loss", "gradient of the loss by the state")
