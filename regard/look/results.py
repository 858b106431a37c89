"""What the public functions of this room return. No torch here."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from regard.errors import DataError, UsageError
from regard.result import Grid, Result, Row, grid_of, human, human_bytes, plain, shown

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
    """What was measured of the heads of a model, on random tokens that are repeated."""

    model: str = shown(table=False)
    length: int = shown(table=False)
    """Tokens of the random half that is repeated."""
    rows: int = shown(table=False)
    seed: int = shown(table=False)
    measured_on: str | None = shown(table=False)
    """The text or file that entropy, distance and norm were measured on; None: random tokens."""
    heads: list[HeadScore] = shown()

    def title(self) -> str:
        """What was measured on what."""
        where = f"{self.rows} × 2 × {self.length} random tokens of seed {self.seed}"
        rest = f"; entropy, distance, norm on {self.measured_on}" if self.measured_on else ""
        return f"{self.model} on {where}{rest}"


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
class StreamPart(Row):
    """One writer into the stream, or a constant."""

    kind: str
    """embed, head, cross, mlp (its own bias included), neuron or bias."""
    layer: str
    """Path of the module, such as decoder.blocks.3.attn."""
    block: int | None = None
    head: int | None = None
    """Number of the head, or of the neuron."""

    @property
    def name(self) -> str:
        """As people say it, such as block 3 head 5."""
        if self.block is None:
            return {"embed": "embedding"}.get(self.kind, f"bias of the {self.layer}")
        if self.kind == "bias":
            return f"block {self.block} bias of {self.layer.rpartition('.')[2]}"
        kind = {"mlp": "MLP", "cross": "cross head"}.get(self.kind, self.kind)
        return f"block {self.block} {kind}" + ("" if self.head is None else f" {self.head}")


@dataclass(frozen=True)
class Contribution(StreamPart):
    """What a part gave to the logit."""

    value: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """With the part's name."""
        return {**super().to_dict(), "name": self.name}


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
    top: int = shown(json=False, default=20)
    """Contributions that are shown to people."""

    def to_dict(self) -> dict[str, Any]:
        """The layers, and each part's contribution or why there is none."""
        data = super().to_dict()
        data["parts"] = data.pop("contributions")
        for name in ("goal", "error") if self.contributions is None else ("why",):
            del data[name]
        return data

    def parts(self) -> Iterator[str | Grid]:
        """What each layer would say, and who wrote the answer, largest first."""
        own = self.target.piece
        yield grid_of(f"{self.text} → {own}", self.layers)
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

Method = Literal["gradient", "ig", "lime", "shap", "attention", "rollout", "flow"]
BAR = 10  # characters of the longest bar


@dataclass(frozen=True)
class MethodScores(Row):
    """What one method gives each token."""

    scores: Tensor
    """(M,): of each token, in float64."""

    def summary(self) -> str:
        """How good the scores are, in a sentence."""
        return ""

    def verdict(self) -> str:
        """How good they are in two or three words."""
        return ""


@dataclass(frozen=True)
class GradientScores(MethodScores):
    """Gradient × input, or integrated gradients."""

    value: float
    """The goal of the input."""
    baseline_value: float
    """The goal of the baseline."""
    completeness_error: float
    """|sum of scores − (value − baseline value)|, relative to |value − baseline value|."""
    steps: int
    """Points of the path; 1 for gradient × input."""

    def summary(self) -> str:
        """Whether the scores add up."""
        steps = f", {self.steps} steps" if self.steps > 1 else ""
        return f"{sum_of(self)}, completeness error {self.completeness_error:.2%}{steps}"

    def verdict(self) -> str:
        """What is missing."""
        return f"misses {self.completeness_error:.1%}"


@dataclass(frozen=True)
class LimeScores(MethodScores):
    """LIME's linear model: intercept + coefficients of the tokens that are there."""

    r2: float
    """Weighted share of the variance that the fit explains, at most 1."""
    trusted: bool
    """Whether the fit describes the goal near the input."""
    intercept: float
    """What is left where no token is there."""
    value: float
    """The goal of the whole input."""

    def summary(self) -> str:
        """How well the linear model fits."""
        return f"{self.verdict()}, intercept {self.intercept:.4f}"

    def verdict(self) -> str:
        """R² alone."""
        return f"R² {self.r2:.3f}" + ("" if self.trusted else ", not trustworthy")


@dataclass(frozen=True)
class ShapScores(MethodScores):
    """Shapley values; they sum to value − baseline value."""

    value: float
    """The goal of the whole input."""
    baseline_value: float
    """The goal where no token is there."""
    interval: Tensor
    """(M,): half the width of the 95 % interval; 0 where the values are exact."""
    orders: int
    """Orders that were drawn; 0 where all subsets were run."""

    def summary(self) -> str:
        """What they add up to, and how they were computed."""
        return f"{sum_of(self)}, {self.verdict()}"

    def verdict(self) -> str:
        """How they were computed."""
        return f"{self.orders} orders" if self.orders else "exact"


def sum_of(scores: GradientScores | ShapScores) -> str:
    """The sum of scores beside what it should be."""
    start, end = scores.baseline_value, scores.value
    total = float(scores.scores.sum())
    return f"sum {total:.4f} of {end - start:.4f} (from {start:.4f} to {end:.4f})"


@dataclass(frozen=True)
class AttentionScores(MethodScores):
    """Attention, rollout or flow."""

    share: float | None
    """Of the attention that is on these tokens; None for a flow, whose ways have common parts."""

    def to_dict(self) -> dict[str, Any]:
        """A flow has no share."""
        return {name: value for name, value in super().to_dict().items() if value is not None}

    def summary(self) -> str:
        """How much of the attention is on these tokens."""
        if self.share is None:
            return "the most that attention could carry to the answer from each token"
        return f"{self.share:.1%} of the attention is on these tokens"

    def verdict(self) -> str:
        """How much is here."""
        return "" if self.share is None else f"{self.share:.1%} here"


@dataclass(frozen=True)
class TokenScore(Row):
    """One token and its score."""

    token: str
    id: int
    score: float


@dataclass(frozen=True)
class ExplainedText(Result):
    """A text and the answer that is explained."""

    text: str
    target: str
    """The answer that is explained."""
    against: str | None
    """The answer that it is compared with."""
    baseline: str
    """What an absent token is."""
    tokens: list[int]
    pieces: list[str]

    def title(self) -> str:
        """The number that is explained, in words."""
        return f"logit of {self.target!r}" + (f" − {self.against!r}" if self.against else "")


@dataclass(frozen=True)
class Attribution(ExplainedText):
    """What each token of a text gives to an answer, by one method."""

    method: Method
    explanation: MethodScores

    @property
    def scores(self) -> list[float]:
        """Of each token."""
        values: list[float] = self.explanation.scores.tolist()
        return values

    def title(self) -> str:
        """The goal and the method."""
        return f"{super().title()}, by {self.method}"

    def to_dict(self) -> dict[str, Any]:
        """What the method found stands beside what was asked."""
        data = super().to_dict()
        explanation: dict[str, Any] = data.pop("explanation")
        return data | explanation

    def table(self) -> list[TokenScore]:
        """A row for each token."""
        return list(map(TokenScore, self.pieces, self.tokens, self.scores))

    def parts(self) -> Iterator[str | Grid]:
        """Tokens with bars: to the left what speaks against the answer, to the right for it."""
        largest = max(map(abs, self.scores), default=0.0) or 1.0
        shap = self.explanation if isinstance(self.explanation, ShapScores) else None
        intervals = [f"{x:.4f}" for x in shap.interval.tolist()] if shap and shap.orders else []
        rows = []
        for n, (piece, score) in enumerate(zip(self.pieces, self.scores, strict=True)):
            bar = "█" * round(abs(score) / largest * BAR)
            left, right = (bar, "") if score < 0 else ("", bar)
            cells = [piece, f"{score:.4f}", *intervals[n : n + 1]]
            rows.append([*cells, f"{left:>{BAR}}│{right:<{BAR}}"])
        columns = ["token", "score", *(["± 95 %"] if intervals else []), ""]
        yield Grid(self.title(), columns, rows)
        yield f"  {self.explanation.summary()}"
        if not isinstance(self.explanation, AttentionScores):
            yield f"  an absent token is {self.baseline}"


@dataclass(frozen=True)
class Areas(Row):
    """Areas under the curves of a goal while tokens are deleted, and inserted, by their scores."""

    deletion: float
    """Small is faithful."""
    insertion: float
    """Large is faithful."""


@dataclass(frozen=True)
class AttributionComparison(ExplainedText):
    """All methods on one text: what each gives to its tokens, and how faithful it is."""

    methods: dict[str, MethodScores]
    areas: dict[str, Areas]
    """Of each method, and of random orders."""
    spearman: dict[str, dict[str, float]]
    """Rank correlation of each two methods."""

    def to_dict(self) -> dict[str, Any]:
        """Areas stand with their methods."""
        data = super().to_dict()
        areas = data.pop("areas")
        for name, method in data["methods"].items():
            method |= areas[name]
        return data | {"random": areas["random"]}

    def parts(self) -> Iterator[str | Grid]:
        """Scores by method, faithfulness, and how methods agree."""
        scores = [method.scores.tolist() for method in self.methods.values()]
        rows = [
            [piece, *(f"{score:.4f}" for score in row)]
            for piece, row in zip(self.pieces, zip(*scores, strict=True), strict=True)
        ]
        yield Grid(self.title(), ["token", *self.methods], rows)
        said = {name: method.verdict() for name, method in self.methods.items()}
        rows = [
            [name, f"{area.deletion:.3f}", f"{area.insertion:.3f}", said.get(name, "")]
            for name, area in self.areas.items()
        ]
        title = "faithfulness: deletion (small is good) and insertion (large is good)"
        yield Grid(title, ["method", "deletion", "insertion", ""], rows)
        rows = [[a, *(f"{x:.2f}" for x in row.values())] for a, row in self.spearman.items()]
        yield Grid("rank correlation (Spearman)", ["", *self.spearman], rows)
        yield f"  an absent token is {self.baseline}"


# Patching ---------------------------------------------------------------------------------------

Over = Literal["heads", "mlps", "stream"]
Ablation = Literal["resample", "mean", "zero"]


class Site(NamedTuple):
    """A place in a model: the whole of a tap, or one head or position of it."""

    tap: str
    head: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        head = "" if self.head is None else f" head {self.head}"
        return f"{self.tap}{head}" + ("" if self.position is None else f" at {self.position}")


@dataclass(frozen=True)
class SiteEffect(Row):
    """What one site does to the goal."""

    tap: str
    head: int | None
    position: int | None
    effect: float
    """Mean over pairs: share of the difference that the corruption makes."""
    standard_error: float | None = shown(json=False)
    """Of the mean; None for one pair."""

    @property
    def site(self) -> Site:
        """The place itself."""
        return Site(self.tap, self.head, self.position)


@dataclass(frozen=True)
class PatchEffects(Result):
    """What each head, MLP or position does to an answer, by putting it into another run."""

    pairs: int
    clean: float
    """Mean goal of the clean prompts."""
    corrupted: float
    """Mean goal of the corrupted prompts."""
    way: Literal["patching", "first order", "paths"]
    direction: Literal["denoise", "noise"]
    effects: list[SiteEffect]
    over: Over = shown(json=False)
    receivers: str = shown(json=False)
    """Where paths lead to."""
    top: int = shown(json=False)
    """Places that are listed."""

    def parts(self) -> Iterator[str | Grid]:
        """What was done in a sentence, and the places that matter most."""
        if self.way == "paths":
            how = f"corrupted values of each head, to {self.receivers} alone, in clean prompts"
        elif self.direction == "noise":
            how = "corrupted values in clean prompts"
            how += ", to first order" if self.way == "first order" else ""
        else:
            how = "clean values in corrupted prompts"
        goals = f"goal {self.clean:.4f} clean, {self.corrupted:.4f} corrupted"
        yield f"{goals}, {self.pairs} pairs; {how}"
        largest = sorted(self.effects, key=lambda e: -abs(e.effect))[: self.top]
        rows = [
            (str(e.site), f"{e.effect:+.3f}", human(e.standard_error, "{:.3f}")) for e in largest
        ]
        yield Grid("share of the difference", ("place", "mean", "standard error"), rows)

    def plot(self) -> Any:
        """A heat map: taps down, heads or positions across."""
        from regard.look.picture import draw_map

        values = {effect.site: effect.effect for effect in self.effects}
        return draw_map(*site_grid(values), self.over)


def site_grid(values: Mapping[Site, float]) -> tuple[list[list[float]], list[str], list[str]]:
    """Values by tap (rows) and head or position (columns), with the names of both."""
    taps = list(dict.fromkeys(site.tap for site in values))
    columns = {s: s.head if s.head is not None else s.position or 0 for s in values}
    across = sorted(set(columns.values()))
    grid = [[0.0] * len(across) for _ in taps]
    for site, value in values.items():
        grid[taps.index(site.tap)][across.index(columns[site])] = value
    return grid, taps, [str(n) for n in across]


# Circuits ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate(Row):
    """A share of the model's score, with the interval that holds 95 of 100 resamples of pairs."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Completeness(Row):
    """|circuit without K − model without K| over random subsets K of the circuit."""

    mean: float
    worst: float


@dataclass(frozen=True)
class Certificate(Row):
    """What a circuit is worth, on pairs that it was not found on."""

    pairs: int
    model: float
    """Mean goal of the whole model."""
    empty: float
    """Mean goal when every part is ablated."""
    faithfulness: dict[str, Estimate]
    """By kind of ablation: (goal of the circuit − empty) / (model − empty)."""
    completeness: Completeness
    random: Estimate
    """Faithfulness of random circuits of the same size: mean and the middle 95 %."""
    random_as_good: float
    """Share of them that are as faithful as the circuit, or more."""


@dataclass(frozen=True)
class CircuitNode(Row):
    """A head or MLP of a circuit."""

    tap: str
    head: int | None
    effect: float
    """What the model loses when it alone is ablated, as a share of its score."""
    adds: Estimate
    """What the circuit loses without it (minimality)."""

    @property
    def site(self) -> Site:
        """The place itself."""
        return Site(self.tap, self.head)


@dataclass(frozen=True)
class CircuitEdge(Row):
    """From the output of one part to an input of a later one."""

    sender: Site
    """A head at `z`, an MLP at `out`, or the embedding."""
    receiver: Site
    """A head at `q`, `k` or `v`, an MLP at `out`, or the end of the stream."""
    score: float
    """Share of the difference that the corruption makes; 1 is all of it."""

    def to_dict(self) -> dict[str, Any]:
        """From, to and score."""
        ends = {"from": self.sender, "to": self.receiver}
        places = {name: {"tap": site.tap, "head": site.head} for name, site in ends.items()}
        return {**places, "score": plain(self.score)}


@dataclass(frozen=True)
class Circuit(Result):
    """The few heads and MLPs that do a task."""

    model: str
    prompts: str
    """The file of the pairs, or the task that made them."""
    seed: int
    kind: str
    """What stood in place of parts outside while it was looked for."""
    keep: float
    """Share of the task that it had to do."""
    nodes: list[CircuitNode]
    certificate: Certificate
    effects: dict[Site, float] = shown(json=False)
    """What each part of the model does when it alone is ablated, as a share of its score."""
    edges: list[CircuitEdge] = shown(default_factory=list)
    """Between its parts, to first order, the largest first."""

    def to_dict(self) -> dict[str, Any]:
        """With the number of parts that were tried."""
        return {"parts": len(self.effects), **super().to_dict()}

    def parts(self) -> Iterator[str | Grid]:
        """Nodes, edges, certificate."""
        rows = [(str(node.site), f"{node.effect:+.3f}", str(node.adds)) for node in self.nodes]
        title = f"{len(self.nodes)} of {len(self.effects)} parts"
        yield Grid(title, ("part", "alone missing", "circuit loses without it"), rows)
        if self.edges:
            lines = [(f"{e.sender} → {e.receiver}", f"{e.score:+.3f}") for e in self.edges]
            yield Grid("edges, to first order", ("from → to", "share"), lines)
        judged = self.certificate
        goals = f"{judged.model:.4f} model, {judged.empty:.4f} with every part ablated"
        completeness = judged.completeness
        fields = {
            "goal": goals,
            **{f"faithfulness, {kind}": str(x) for kind, x in judged.faithfulness.items()},
            "completeness": f"mean gap {completeness.mean:.3f}, worst {completeness.worst:.3f}",
            "random circuits": f"{judged.random}; {judged.random_as_good:.0%} as good",
        }
        title = f"certificate: {judged.pairs} pairs that it was not found on"
        yield Grid(title, ("", ""), list(fields.items()), left=2)

    def plot(self) -> Any:
        """A heat map of all heads, those of the circuit framed."""
        from regard.look.picture import draw_map

        heads = {site: effect for site, effect in self.effects.items() if site.head is not None}
        rows, taps, across = site_grid(heads)
        kept = [(taps.index(n.tap), n.head) for n in self.nodes if n.head is not None]
        return draw_map(rows, taps, across, "heads", kept)


# Indirect objects -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassHead(Row):
    """A head of a class."""

    block: int
    head: int
    looks: float
    """Mean attention from the column where the class acts to the one it looks at."""
    effect: float | None = None
    """Share of the logit difference that goes its way, where that was measured."""
    score: float | None = None
    """Score of the class on random repeats, where it has one."""


@dataclass(frozen=True)
class IndirectObjects(Result):
    """Whether a model knows who the indirect object is, on {prompts} prompts."""

    prompts: int
    logit_difference: float
    """Mean of the indirect object's logit less that of the subject."""
    plus_minus: float
    """Half the width of its 95 % interval."""
    io_above_s: float
    """Share of prompts where the indirect object is the likelier."""
    probability_io: float
    corrupted_difference: float
    """The mean difference where three other names stand."""
    thresholds: dict[str, float] | None = None
    """From which a head belongs to a class: attention, and effect."""
    rules: dict[str, str] | None = None
    """What heads of each class do."""
    heads: dict[str, list[ClassHead]] | None = None
    """Heads of each class, those that do most first."""
    top: int = shown(json=False, default=5)

    def to_dict(self) -> dict[str, Any]:
        """Without classes of heads where they were not looked for."""
        data = super().to_dict()
        optional = ("thresholds", "rules", "heads")
        return {name: x for name, x in data.items() if x is not None or name not in optional}

    def parts(self) -> Iterator[str | Grid]:
        """Figures, and heads by class; a class without any is named too."""
        figures = {name: x for name, x in vars(self).items() if isinstance(x, float)}
        rows = [(name.replace("_", " "), human(x, "{:.4f}")) for name, x in figures.items()]
        yield Grid(self.title(), ("", ""), rows)
        if self.heads is None or self.thresholds is None:
            return
        cells: list[tuple[str, ...]] = []
        for name, heads in self.heads.items():
            cells += [
                (
                    "" if n else name,
                    f"{head.block}.{head.head}",
                    f"{head.looks:.2f}",
                    human(head.effect, "{:+.3f}"),
                    human(head.score, "{:.2f}"),
                )
                for n, head in enumerate(heads[: self.top])
            ] or [(name, "none", "–", "–", "–")]
        columns = ("class", "head", "looks there", "effect", "repeats")
        yield Grid("heads by what they do", columns, cells, left=2)
        looks, effect = self.thresholds["looks"], self.thresholds["effect"]
        yield (
            f"  listed: attention of {looks} or more to where the class looks, and an effect, "
            f"where one is measured, of {100 * effect:g} % or more of the difference"
        )


# Probing ----------------------------------------------------------------------------------------

ProbeKind = Literal["linear", "mlp"]


@dataclass(frozen=True)
class ProbedTap(Row):
    """How well labels can be read off the vectors of one tap."""

    tap: str
    accuracy: float = shown("{:.1%}")
    low: float = shown("{:.1%}")
    """The 95 % interval of the accuracy."""
    high: float = shown("{:.1%}")
    control: float | None = shown("{:.1%}")
    """Accuracy of the control task, labels drawn at random for each word type."""
    selectivity: float | None = shown("{:+.1%}")
    """Accuracy less that of the control task."""
    bits: float | None = shown(table=False)
    """Length of the online code of the training labels."""
    bits_per_word: float | None = shown("{:.3f}")
    compression: float | None = shown("{:.2f}")
    """How many times shorter it is than a uniform code."""


@dataclass(frozen=True)
class LabelProbe(Result):
    """{label} by a {kind} probe."""

    label: str
    kind: ProbeKind
    labels: list[str]
    words: dict[str, int]
    """Words to train on, to choose by and to test on; no sentence is in two parts."""
    baselines: dict[str, float]
    """Accuracy of what knows no vectors: the majority label, and each word type's own."""
    taps: list[ProbedTap]


@dataclass(frozen=True)
class LabelProbes(Result):
    """Which layer knows what."""

    features: list[LabelProbe]

    def parts(self) -> Iterator[str | Grid]:
        """Each label, and the accuracy of all at each tap, the best ones marked."""
        for probe in self.features:
            yield from probe.parts()
        best = [max(probe.taps, key=lambda tap: tap.accuracy).tap for probe in self.features]
        rows = [
            (
                taps[0].tap,
                *(
                    f"{tap.accuracy:.1%}{' *' * (tap.tap == most)}"
                    for tap, most in zip(taps, best, strict=True)
                ),
            )
            for taps in zip(*(probe.taps for probe in self.features), strict=True)
        ]
        labels = [probe.label for probe in self.features]
        yield Grid("which layer knows what (* most)", ("tap", *labels), rows)


@dataclass(frozen=True)
class TreeAgreement(Row):
    """How far predicted trees agree with the true ones."""

    tap: str | None
    """Whose vectors they were read off; None: the baseline."""
    uuas: float = shown("{:.1%}", title="UUAS")
    """Share of right edges (undirected unlabelled attachment score)."""
    low: float = shown("{:.1%}")
    """Its 95 % interval, as if edges were drawn one by one."""
    high: float = shown("{:.1%}")
    distance_spearman: float | None = shown("{:.3f}", title="ρ distance")
    """Spearman's ρ of distances, mean by length of 5 to 50 words; None: there is no such."""
    depth_spearman: float | None = shown("{:.3f}", title="ρ depth")
    """Spearman's ρ of depths, likewise."""
    root: float = shown("{:.1%}")
    """Share of right roots."""
    edges: int = shown()
    """Edges in all, without punctuation."""

    def to_dict(self) -> dict[str, Any]:
        """The baseline has no tap."""
        data = super().to_dict()
        return data if self.tap else {name: x for name, x in data.items() if name != "tap"}


@dataclass(frozen=True)
class TreeProbe(Result):
    """Trees by a structural probe (rank {rank})."""

    sentences: dict[str, int]
    """To train on, to choose by, to test on."""
    left_out: int
    """Sentences with a word without a token, or too long."""
    rank: int
    chain: TreeAgreement = shown(title="words in a chain")
    """The baseline: words hang together as they stand."""
    taps: list[TreeAgreement] = shown()
    best: str = shown()
    trees: list[tuple[str, str]] = shown(table=False)
    """Some test sentences: the true tree and that of the best tap, drawn."""

    def parts(self) -> Iterator[str | Grid]:
        """Tables, and trees side by side."""
        yield from super().parts()
        for gold, predicted in self.trees:
            title = f"{self.best}, * where the edge up is wrong"
            yield "\n" + beside(f"gold\n{gold}", f"{title}\n{predicted}")


def beside(left: str, right: str, gap: int = 4) -> str:
    """Two blocks of text side by side."""
    one, other = left.split("\n"), right.split("\n")
    width = max(map(len, one)) + gap
    pairs = zip_longest(one, other, fillvalue="")
    return "\n".join(f"{a:{width}}{b}".rstrip() for a, b in pairs)


@dataclass(frozen=True)
class SpeechTreeProbes(Result):
    """Trees of speech as it was spoken, and without fillers and restarts."""

    spoken: TreeProbe
    cleaned: TreeProbe

    def parts(self) -> Iterator[str | Grid]:
        """One after the other."""
        for name, probe in (("spoken", self.spoken), ("cleaned", self.cleaned)):
            yield name
            yield from probe.parts()


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
