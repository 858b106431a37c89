"""Pictures, as matplotlib figures: alignments, curves, heat maps, attention. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard.errors import UsageError
from regard.look.labels import fit
from regard.look.results import LEVELS, AttentionMaps, Overlay
from regard.result import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCES = 6  # of a picture
WIDEST = 60  # words of a grid that can still be read
NAMED = 80  # tokens of a side that can be named


def label(text: str) -> str:
    """A text as it is: to matplotlib, what stands between two dollars is a formula."""
    return text.replace("$", r"\$")


Alignment = tuple[list[str], list[str], list[list[float]], list[tuple[int, int]]]
"""Source words, target words, weights (T, S), and links (source word, target word)."""


def draw_alignments(sentences: Sequence[Alignment]) -> Figure:
    """A grid for each of the first sentences that fit."""
    drawn = [s for s in sentences if s[2] and max(len(s[0]), len(s[1])) <= WIDEST][:SENTENCES]
    if not drawn:
        expected = f"a translated sentence of at most {WIDEST} words"
        raise UsageError("drawing a picture", "no sentence that fits", expected)
    heights = [2.0 + 0.3 * len(target) for _, target, *_ in drawn]
    figure = new_figure(2.5 + 0.4 * max(len(source) for source, *_ in drawn), sum(heights))
    grids = figure.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)
    for (source, target, weights, links), axes in zip(drawn, grids[:, 0], strict=True):
        axes.imshow(weights, cmap="Greys", vmin=0, vmax=1)
        axes.set_xticks(range(len(source)), map(label, source), rotation=60)
        axes.set_yticks(range(len(target)), map(label, target))
        for s, t in links:
            axes.plot(s, t, "o", color="tab:orange", markersize=5)
    return figure


def draw_curves(curves: Mapping[str, Sequence[float]], across: str, up: str) -> Figure:
    """Positive numbers at 1, 2, 3, …, a line for each name, on a logarithmic scale."""
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, label=name)
    axes.set(xlabel=across, ylabel=up, yscale="log")
    axes.legend()
    return figure


def draw_map(
    values: Sequence[Sequence[float]],
    down: Sequence[str],
    across: Sequence[str],
    names: tuple[str, str],
    marked: Sequence[tuple[int, int]] = (),
) -> Figure:
    """A heat map, red above zero and blue below; `marked` cells (row, column) framed.

    `names`: of what goes across, and of the values.
    """
    figure = new_figure(2.5 + 0.3 * len(across), 1.2 + 0.25 * len(down))
    axes = figure.subplots()
    most = max((abs(value) for row in values for value in row), default=1.0) or 1.0
    image = axes.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    axes.set_xticks(range(len(across)), across, fontsize=7)
    axes.set_yticks(range(len(down)), down, fontsize=7)
    axes.set(xlabel=names[0])
    for row, column in marked:
        axes.plot(column, row, "s", markersize=9, markerfacecolor="none", color="black")
    figure.colorbar(image, label=names[1])
    return figure


def draw_heads(maps: AttentionMaps) -> Figure:
    """A small attention map of each head: a row for each block, a column for each head."""
    shown = maps.stack()
    blocks, heads = shown.small.shape[:2]
    figure = new_figure(1 + 0.9 * heads, 1 + 0.9 * blocks)
    figure.suptitle(f"{shown.stack}: a row for each block, a column for each head")
    for block, row in enumerate(figure.subplots(blocks, heads, squeeze=False)):
        for head, axes in enumerate(row):
            weights = shown.small[block, head] / LEVELS
            axes.imshow(weights**0.5, cmap="Oranges", vmin=0, vmax=1, aspect="auto")
            axes.set(xticks=[], yticks=[], title=str(head) if block == 0 else "")
        row[0].set_ylabel(str(block), rotation=0, labelpad=12)
    return figure


def draw_overlays(overlay: Overlay, scores: Sequence[Sequence[Any]], title: str) -> Figure:
    """Rows of pictures with scores of their places on them; None is the picture alone."""
    import numpy as np

    figure = new_figure(1.5 * len(scores[0]), 0.3 + 1.5 * len(scores))
    figure.suptitle(label(title), fontsize=8, wrap=True)
    turn = slice(None, None, -1 if overlay.upward else 1)
    pixels, (height, width) = overlay.pixels[turn], overlay.pixels.shape[:2]
    for row, drawn in enumerate(figure.subplots(len(scores), len(scores[0]), squeeze=False)):
        for axes, values in zip(drawn, scores[row], strict=True):
            grey = pixels.ndim == 3 and values is not None
            axes.imshow(pixels.mean(2) if grey else pixels, cmap="gray")
            axes.set(xticks=[], yticks=[])
            if values is not None:
                heat = np.zeros(overlay.grid[0] * overlay.grid[1])
                heat[overlay.places] = values
                most, where = abs(heat).max() or 1.0, (-0.5, width - 0.5, height - 0.5, -0.5)
                heat = heat.reshape(overlay.grid)[turn] / most
                how = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1, "extent": where}
                axes.imshow(heat, alpha=abs(heat) ** 0.5 * 0.9, **how)
    return figure


def draw_graphs(
    maps: AttentionMaps, scores: Sequence[Sequence[Any]], weights: Sequence[Sequence[Any]]
) -> Figure:
    """A graph for each head: edges thin, weights (N, N) wide, scores (N,) in the nodes."""
    from matplotlib.collections import LineCollection

    overlay: Any = maps.overlay
    figure, places = new_figure(2 * len(scores[0]), 0.3 + 2 * len(scores)), overlay.places
    figure.suptitle(label(maps.heading), fontsize=8, wrap=True)
    names = next(iter(maps.tokens.values()))[-len(places) :]
    for block, row in enumerate(figure.subplots(len(scores), len(scores[0]), squeeze=False)):
        for axes, score, weight in zip(row, scores[block], weights[block], strict=True):
            pairs = (weight > 2 / len(weight)).nonzero()  # twice what each has in the mean
            looks = LineCollection(places[[*pairs]].swapaxes(0, 1), color="tab:orange")
            looks.set(linewidth=4 * weight[pairs], alpha=0.5)
            axes.add_collection(LineCollection(places[overlay.edges], color="grey", linewidth=0.7))
            axes.add_collection(looks)
            shades = {"cmap": "Oranges", "vmin": 0, "vmax": 2 * score.max(), "edgecolor": "grey"}
            axes.scatter(*places.T, 60, score, zorder=2, **shades)
            for place, name in zip(places, names if len(names) <= WIDEST else (), strict=False):
                axes.annotate(label(name), place, ha="center", va="center", fontsize=5)
            axes.axis("off")
    return figure


def draw_head(maps: AttentionMaps, head: tuple[int, int]) -> Figure:
    """The attention map of one head (block, head); tokens are named where they are not too many."""
    shown = maps.stack()
    weights = shown.heads[head[0]][head[1]].dense()
    height, width = (min(30.0, 3 + 0.22 * n) for n in weights.shape)
    figure = new_figure(width, height)
    axes = figure.subplots()
    drawn = axes.imshow(weights**0.5, cmap="Oranges", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(f"{shown.stack}, block {head[0]}, head {head[1]}")
    asking, seen = ([label(fit(t, 16).rstrip()) for t in maps.tokens[s]] for s in shown.sides)
    if len(asking) <= NAMED:
        axes.set_yticks(range(len(asking)), asking)
    if len(seen) <= NAMED:
        axes.set_xticks(range(len(seen)), seen, rotation=90)
    axes.set(xlabel=f"{shown.sides[1]}: looked at", ylabel=f"{shown.sides[0]}: looks")
    bar: Any = figure.colorbar(drawn, ticks=[0, 0.1**0.5, 0.5**0.5, 1], shrink=0.6)
    bar.set_ticklabels(["0", "0.1", "0.5", "1"])
    return figure
