"""What the public functions of this room return. No torch here."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from regard.errors import DataError, UsageError
from regard.result import Grid, Result, Row, grid_of, grid_of_values, shown

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
RAMP = " ▁▂▃▄▅▆▇█"


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


class HeadLink(NamedTuple):
    """A query, what it looks at, and how much."""

    query: int
    key: int
    weight: float


class HeadFacts(NamedTuple):
    """A head in three figures."""

    distance: float
    """Mean number of places between a query and what it looks at."""
    entropy: float
    """Mean over queries, in bits: 0 looks at one key."""
    link: HeadLink
    """The strongest, between different tokens of one text."""


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
    norms: Array | None
    """(blocks, heads, S): length of what a head writes of each key (Kobayashi 2020); None where it
    has no output map, or a packed one."""
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


class DescribedHead(Row):
    """A head as it is listed."""

    head: str
    strongest_link: str
    weight: float = shown("{:.0%}")
    distance: float = shown("{:.1f}")
    bits: float = shown("{:.1f}")
    if_off: float | None = shown("{:+.2f}")


@dataclass(frozen=True)
class Overlay:
    """A picture, and where on it tokens lie."""

    pixels: Array
    """(height, width[, 3])."""
    grid: tuple[int, ...]
    """Rows and columns of places."""
    places: Array
    """(M,): the place of each token, row by row."""
    upward: bool = False
    """The first row is the lowest, as in a spectrogram."""

    @property
    def names(self) -> list[str]:
        """Row and column of each token."""
        return [f"{place // self.grid[1]},{place % self.grid[1]}" for place in self.places]


@dataclass(frozen=True)
class GraphOverlay:
    """Where the nodes of a graph are drawn."""

    places: Array
    """(N, 2)."""
    edges: Array
    """(E, 2)."""


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
    overlay: Overlay | GraphOverlay | None = field(default=None, repr=False)
    """The picture, or graph, that the tokens are of: what its class token looks at is drawn on it,
    or all."""

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
        maps, head, stacks = self.stack(), self.shown_head, []
        for each in self.maps:
            effects = self.effects.get(each.stack)
            heads = [
                {"block": block, "head": number, **fact._asdict(), "link": fact.link._asdict()}
                | ({} if effects is None else {"effect": float(effects.changes[block, number, -1])})
                for block, row in enumerate(each.facts)
                for number, fact in enumerate(row)
            ]
            sides = {"stack": each.stack, "queries": each.sides[0], "keys": each.sides[1]}
            stacks.append(sides | {"heads": heads})
        data: dict[str, Any] = {"tokens": self.tokens, "stacks": stacks, "stack": maps.stack}
        data["head"] = None if head is None else list(head)
        links = (self.shown().links(n, LINKS_SHOWN) for n in range(len(maps.mean.counts)))
        data["links"] = [[{"key": k, "weight": w} for k, w in row] for row in links]
        if self.forecast is not None:
            data["forecast"] = [{"text": word, "probability": p} for word, p in self.predicted()]
        return data

    def shown(self) -> HeadMap:
        """The map that is listed: of one head, or the mean of all."""
        maps, head = self.stack(), self.shown_head
        return maps.mean if head is None else maps.heads[head[0]][head[1]]

    def predicted(self) -> list[tuple[str, float]]:
        """The likeliest words at the last position, or of the whole text, with probabilities."""
        if self.forecast is None:
            return []
        pairs = zip(self.forecast.tokens[-1], self.forecast.probabilities[-1], strict=True)
        return [(self.words[int(token)], float(share)) for token, share in pairs]

    def parts(self) -> Iterator[str | Grid]:
        """Heads that do most, where each token looks, what is predicted."""
        from regard.look.labels import fit

        maps, head = self.stack(), self.shown_head
        asking, seen = ([fit(t, 14).rstrip() for t in self.tokens[side]] for side in maps.sides)
        where = "of the whole text" if self.whole else "at the last token"
        effects = self.effects.get(maps.stack)
        heads = [
            DescribedHead(
                f"{b}.{h}",
                f"{asking[fact.link.query]} → {seen[fact.link.key]}",
                *(fact.link.weight, fact.distance, fact.entropy),
                None if effects is None else float(effects.changes[b, h, -1]),
            )
            for b, row in enumerate(maps.facts)
            for h, fact in enumerate(row)
        ]
        heads.sort(key=lambda one: -abs(one.weight if one.if_off is None else one.if_off))
        title = f"{maps.stack}; if off: change of the log-probability of the likeliest {where}"
        yield grid_of(maps.stack if effects is None else title, heads[:HEADS_SHOWN])
        dense = self.shown().dense() if len(seen) <= TOKENS_SHOWN else None
        first = max(0, len(asking) - TOKENS_SHOWN)
        lines = []
        for query in range(first, len(asking)):
            weights = () if dense is None else dense[query]  # roots: small ones are seen too
            marks = "".join(RAMP[round(math.sqrt(w) * (len(RAMP) - 1))] for w in weights)
            links = self.shown().links(query, LINKS_SHOWN)
            said = ", ".join(f"{seen[key]} {weight:.0%}" for key, weight in links)
            lines.append((asking[query], f"|{marks}|" if marks else "", said))
        name = "the mean of all heads" if head is None else f"head {head[0]}.{head[1]}"
        part = f" (the last {TOKENS_SHOWN} of {len(asking):,} tokens)" if first else ""
        yield Grid(f"where each token looks: {name}{part}", ("", "", ""), lines, left=range(3))
        if words := self.predicted():
            said = ", ".join(f"{word.strip()} {share:.1%}" for word, share in words)
            yield f"predicted {where}: {said}"

    def page(self) -> str:
        """One page, which needs no network: all heads, one head large, heads off by click."""
        from regard.look.page import attention_page

        return attention_page(self)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, for a notebook."""
        page = html.escape(self.page())
        return f'<iframe srcdoc="{page}" style="width:100%;height:700px;border:0"></iframe>'

    def plot(self) -> Any:
        """A picture of all heads of a stack, or of the head that is shown."""
        from regard.look.picture import draw_graphs, draw_head, draw_heads, draw_overlays

        if self.overlay is not None:
            maps, shown, lead = self.stack(), self.shown_head, -len(self.overlay.places)
            heads = maps.heads if shown is None else [[maps.heads[shown[0]][shown[1]]]]
            dense = [[one.dense() for one in row] for row in heads]  # (T, T) each
            first = len(dense[0][0]) + lead  # and how many stand before the places
            asks = slice(-1, None) if maps.stack == "decoder" else slice(1 if first else None)
            weights = [[one[asks, lead:].mean(0) for one in row] for row in dense]
            if isinstance(self.overlay, GraphOverlay):
                return draw_graphs(
                    self, weights, [[one[lead:, lead:] for one in row] for row in dense]
                )
            return draw_overlays(self.overlay, weights, self.heading)
        return draw_heads(self) if self.shown_head is None else draw_head(self, self.shown_head)


# Heads --------------------------------------------------------------------------------------------

HeadMeasure = Literal["previous", "duplicate", "induction", "entropy", "distance", "norm"]


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


class HeadScores(Result):
    """{model} on {rows} × 2 × {length} random tokens of seed {seed}."""

    model: str = shown(table=False)
    length: int = shown(table=False)
    """Tokens of the random half that is repeated."""
    rows: int = shown(table=False)
    seed: int = shown(table=False)
    heads: list[HeadScore] = shown()


# Lens ---------------------------------------------------------------------------------------------


class LensLayer(Row):
    """What one layer would say."""

    layer: str
    likeliest: str = shown("{!r}")
    likeliest_probability: float = shown("{:.4f}", title="p")
    probability: float = shown("{:.4f}", title="p(target)")
    """Of the token that is followed."""
    rank: int = shown(title="rank of target")
    """1 is the likeliest."""


class StreamPart(Row):
    """One writer into the stream, or a constant."""

    kind: str = shown(table=False)
    """embed, head, cross, mlp (its own bias included), neuron or bias."""
    layer: str = shown(table=False)
    """Path of the module, such as decoder.blocks.3.attn."""
    block: int | None = shown(table=False)
    head: int | None = shown(table=False)
    """Number of the head, or of the neuron."""
    name: str = shown()
    """As people say it, such as block 3 head 5."""


class Contribution(StreamPart):
    """What a part gave to the logit."""

    value: float = shown("{:+.4f}")


class LensToken(Row):
    """A token by its id and its spelling."""

    id: int
    piece: str = shown("{!r}")


class Lens(Result):
    """{text}."""

    model: str = shown(table=False)
    text: str = shown(table=False)
    target: LensToken = shown()
    """The token that is followed."""
    against: LensToken | None = shown()
    """The token whose logit is taken away, if any."""
    layers: list[LensLayer] = shown()
    contributions: list[Contribution] | None = shown(json="parts", title="who wrote the logit")
    """What each part of the model wrote towards the logit; None where it is no such sum."""
    why: str | None = shown(optional=True, title="no contributions", default=None)
    """Why there are no contributions."""
    goal: float | None = shown(title="logit", optional=True, default=None)
    """The logit, or difference of two, that the model gave."""
    error: float | None = shown("{:.1e}", title="its parts less it", optional=True, default=None)
    """Sum of the contributions less the goal."""
    top: int = shown(json=False, table=False, default=20)
    """Contributions that are shown to people."""

    def parts(self) -> Iterator[str | Grid]:
        """What each layer would say, and who wrote the answer, largest first."""
        largest = sorted(self.contributions or (), key=lambda part: -abs(part.value))
        return Result.parts(replace(self, contributions=largest[: self.top]))


# Extraction ---------------------------------------------------------------------------------------

Position = Literal["all", "last"]
"""Which tokens of a text have a row."""


class Extraction(Result):
    """{out}: activations of {texts} texts."""

    out: str
    """The folder, which `regard.Extracted` opens."""
    model: str
    taps: dict[str, dict[str, list[int]]]
    """Of each tap the shape of its rows."""
    position: Position
    tokens_of: str
    """Whose tokens the rows are: of the text, or of the source or target."""
    rows: int
    texts: int
    tokens: int
    skipped: int
    """Texts that could not be read."""
    bytes: int
    shards: int
    seconds: float
    tokens_per_second: float

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """That of bad data where texts were skipped."""
        return DataError.exit_code if self.skipped else 0


# Attribution ------------------------------------------------------------------------------------

Method = Literal["gradient", "ig", "lime", "shap", "attention", "rollout"]
BAR = 10  # characters of the longest bar


class MethodScores(Result):
    """How good the scores are."""

    scores: Tensor = shown(table=False)
    """(M,): of each token, in float64."""
    value: float | None = shown(optional=True, default=None)
    """The goal of the input."""
    baseline_value: float | None = shown(optional=True, default=None)
    """The goal where every token is absent."""
    completeness_error: float | None = shown("{:.2%}", optional=True, default=None)
    """|sum of scores − (value − baseline value)|, relative to |value − baseline value|."""
    steps: int | None = shown(optional=True, default=None)
    """Points of the path of integrated gradients; 1 for gradient × input."""
    r2: float | None = shown("{:.3f}", title="R²", optional=True, default=None)
    """Of LIME: weighted share of the variance that the fit explains, at most 1."""
    trusted: bool | None = shown(optional=True, default=None)
    """Whether LIME's fit describes the goal near the input."""
    intercept: float | None = shown(optional=True, default=None)
    """Of LIME: what is left where no token is there."""
    interval: Tensor | None = shown(table=False, optional=True, default=None)
    """(M,): half the width of SHAP's 95 % interval; 0 where the values are exact."""
    orders: int | None = shown(lambda n: f"{n:,}" if n else "all", optional=True, default=None)
    """Of SHAP; 0 where all subsets were run."""
    share: float | None = shown("{:.1%}", title="attention here", optional=True, default=None)
    """Of the attention that is on these tokens."""
    deletion: float | None = shown(optional=True, default=None)
    """Area under the curve of the goal while tokens are deleted by their scores: small is
    faithful. Measured where methods are compared."""
    insertion: float | None = shown(optional=True, default=None)
    """Area while they are inserted: large is faithful."""


class TokenScore(Row):
    """One token and its score."""

    token: str
    id: int
    score: float


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
        answer = repr(self.target) + (f" − {self.against!r}" if self.against else "")
        return f"{answer}; an absent token is {self.baseline}"


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
        """The method and the goal."""
        return f"{self.method}: {super().title()}"

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
        sizes = [round(score / largest * BAR) for score in self.scores]
        bars = [f"{'█' * -size:>{BAR}}│{'█' * size}" for size in sizes]
        drawn = self.explanation.interval if self.explanation.orders else None
        spread = [None] * len(bars) if drawn is None else drawn.tolist()
        rows = zip(self.pieces, self.scores, spread, bars, strict=True)
        forms = (None, "{:.4f}", "± {:.4f}", None)
        yield grid_of_values(self.title(), ("token", "score", "95 %", ""), rows, forms)
        yield from self.explanation.parts()


class AttributionComparison(ExplainedText):
    """All methods on one text: what each gives to its tokens, and how faithful it is."""

    methods: dict[str, MethodScores]
    random: dict[str, float]
    """The areas of random orders: what a method without any idea reaches."""
    spearman: dict[str, dict[str, float]]
    """Rank correlation of each two methods."""

    def parts(self) -> Iterator[str | Grid]:
        """Scores by method, faithfulness, and how methods agree."""
        scores = [method.scores.tolist() for method in self.methods.values()]
        rows = zip(self.pieces, *scores, strict=True)
        yield grid_of_values(self.title(), ("token", *self.methods), rows, "{:.4f}")
        areas = [(name, each.deletion, each.insertion) for name, each in self.methods.items()]
        areas.append(("random", self.random["deletion"], self.random["insertion"]))
        title = "faithfulness: deletion (small is good) and insertion (large is good)"
        yield grid_of_values(title, ("method", "deletion", "insertion"), areas, "{:.3f}")
        pairs = ((name, *row.values()) for name, row in self.spearman.items())
        names = ("", *self.spearman)
        yield grid_of_values("rank correlation (Spearman)", names, pairs, "{:.2f}")


# Patching ---------------------------------------------------------------------------------------

Over = Literal["heads", "mlps", "stream"]
Ablation = Literal["resample", "mean", "zero"]


class Site(Row):
    """A place in a model: the whole of a tap, or one head or position of it."""

    tap: str
    head: int | None = None
    position: int | None = shown(optional=True, default=None)

    def __str__(self) -> str:
        head = "" if self.head is None else f" head {self.head}"
        return f"{self.tap}{head}" + ("" if self.position is None else f" at {self.position}")


class SiteEffect(Site, kw_only=True):
    """What one site does to the goal."""

    effect: float = shown("{:+.3f}")
    """Mean over pairs: share of the difference that the corruption makes."""
    standard_error: float | None = shown("{:.3f}", json=False)
    """Of the mean; None for one pair."""


class PatchEffects(Result):
    """What each head, MLP or position does to an answer, by putting it into another run."""

    pairs: int
    clean: float
    """Mean goal of the clean prompts."""
    corrupted: float
    """Mean goal of the corrupted prompts."""
    way: Literal["patching", "paths"]
    direction: Literal["denoise", "noise"]
    effects: list[SiteEffect]
    over: Over = shown(json=False)
    receivers: str | None = shown(json=False, optional=True)
    """Where paths lead to."""
    top: int = shown(json=False, table=False)
    """Places that are listed."""

    def parts(self) -> Iterator[str | Grid]:
        """What was done, and the places that matter most."""
        largest = sorted(self.effects, key=lambda e: -abs(e.effect))[: self.top]
        return Result.parts(replace(self, effects=largest))

    def plot(self) -> Any:
        """A heat map: taps down, heads or positions across."""
        from regard.look.picture import draw_map

        values: dict[Site, float] = {site: site.effect for site in self.effects}
        across = {"heads": "head", "mlps": "", "stream": "position"}[self.over]
        return draw_map(*site_grid(values), (across, "share of the difference"))


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


class Estimate(Row):
    """A share of the model's score, with the interval that holds 95 of 100 resamples of pairs."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


class Completeness(Row):
    """|circuit without K − model without K| over random subsets K of the circuit."""

    mean: float
    worst: float


class Certificate(Result):
    """What a circuit is worth, on {pairs} pairs that it was not found on."""

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
    random_as_good: float = shown("{:.0%}")
    """Share of them that are as faithful as the circuit, or more."""


class CircuitNode(Site, kw_only=True):
    """A head or MLP of a circuit."""

    effect: float = shown("{:+.3f}")
    """What the model loses when it alone is ablated, as a share of its score."""
    adds: Estimate = shown()
    """What the circuit loses without it (minimality)."""


class CircuitEdge(Row):
    """From the output of one part to an input of a later one."""

    sender: Site = shown(json="from", title="from")
    """A head at `z`, an MLP at `out`, or the embedding."""
    receiver: Site = shown(json="to", title="to")
    """A head at `q`, `k` or `v`, an MLP at `out`, or the end of the stream."""
    score: float = shown("{:+.3f}")
    """Share of the difference that the corruption makes, to first order; 1 is all of it."""


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
    tried: int = shown(json="parts", title="parts tried")
    nodes: list[CircuitNode] = shown()
    certificate: Certificate = shown()
    effects: dict[Site, float] = shown(json=False, table=False)
    """What each part of the model does when it alone is ablated, as a share of its score."""
    edges: list[CircuitEdge] = shown(default_factory=list)
    """Between its parts, the largest first."""

    def plot(self) -> Any:
        """A heat map of all heads, those of the circuit framed."""
        from regard.look.picture import draw_map

        heads = {site: effect for site, effect in self.effects.items() if site.head is not None}
        rows, taps, across = site_grid(heads)
        kept = [(taps.index(n.tap), n.head) for n in self.nodes if n.head is not None]
        return draw_map(rows, taps, across, ("head", "share of the difference"), kept)


# Indirect objects -------------------------------------------------------------------------------


class ClassHead(Row):
    """A head of a class."""

    role: str = shown(json="class", title="class")
    block: int = shown()
    head: int = shown()
    looks: float | None = shown("{:.2f}")
    """Mean attention from the column where the class acts to the one it looks at."""
    effect: float | None = shown("{:+.3f}")
    """Share of the logit difference that goes its way, where that was measured."""
    score: float | None = shown("{:.2f}")
    """Score of the class on random repeats, where it has one."""


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
    thresholds: dict[str, float] | None = shown(optional=True, default=None)
    """From which a head belongs to a class: attention, and effect."""
    heads: list[ClassHead] | None = shown(optional=True, default=None)
    """Those that do most first."""


# Probing ----------------------------------------------------------------------------------------

ProbeKind = Literal["linear", "mlp"]


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


class LabelProbe(Result):
    """{label} by a {kind} probe."""

    label: str
    kind: ProbeKind
    labels: list[str]
    words: dict[str, int]
    """Words to train on, to choose by and to test on; no sentence is in two parts."""
    baselines: dict[str, float]
    """Accuracy of what knows no vectors: the majority label."""
    taps: list[ProbedTap]


class LabelProbes(Result):
    """Which layer knows what."""

    features: list[LabelProbe]


class TreeAgreement(Row):
    """How far predicted trees agree with the true ones."""

    tap: str | None = shown(optional=True)
    """Whose vectors they were read off; None: the baseline."""
    uuas: float = shown("{:.1%}", title="UUAS")
    """Share of right edges (undirected unlabelled attachment score)."""
    low: float = shown("{:.1%}")
    """Its 95 % interval, as if edges were drawn one by one."""
    high: float = shown("{:.1%}")
    distance_spearman: float | None = shown("{:.3f}", title="ρ distance")
    """Spearman's ρ of distances, mean by length of 5 to 50 words; None: there is no such."""
    edges: int = shown()
    """Edges in all, without punctuation."""


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
        """Tables and trees."""
        yield from super().parts()
        for gold, predicted in self.trees:
            yield f"\ngold\n{gold}\n{self.best}, * where the edge up is wrong\n{predicted}"


class SpeechTreeProbes(Result):
    """Trees of speech."""

    spoken: TreeProbe = shown(title="as it was spoken")
    cleaned: TreeProbe = shown(title="without fillers and restarts")


# Gradients ----------------------------------------------------------------------------------------


class GradientCurve(Row):
    """How far back the loss of one model reaches."""

    name: str
    gradient: list[float]
    """Its size by the state 1, 2, … steps before the loss."""


class GradientReach(Result):
    """Gradient of the loss by the state so many steps before it."""

    length: int
    lags: list[int]
    models: list[GradientCurve]

    def parts(self) -> Iterator[str | Grid]:
        """A column for each model, at lags of 1, 2, 4, … and the last."""
        count = len(self.lags)
        shown_lags = sorted({*(2**n for n in range(count.bit_length())), count})
        rows = [(lag, *(curve.gradient[lag - 1] for curve in self.models)) for lag in shown_lags]
        names = ("lag", *(curve.name for curve in self.models))
        yield grid_of_values(self.title(), names, rows, "{:.2e}")

    def plot(self) -> Any:
        """The curves on a logarithmic scale."""
        from regard.look.picture import draw_curves

        curves = {curve.name: curve.gradient for curve in self.models}
        return draw_curves(curves, "steps before the loss", "gradient of the loss by the state")
