"""Alignments as a picture, one grid for each sentence; curves. Needs matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO

from regard.look.page import Section, Word

MOST = 6  # sentences of a picture
WIDEST = 60  # words of a grid that can still be read
MISSING = "no picture: matplotlib is not installed (pip install 'regard[plot]')"


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def png(figure: object) -> bytes:
    """The bytes of a figure."""
    made = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a script that the font has not: a box
        figure.savefig(made, format="png", dpi=120)  # type: ignore[attr-defined]
    return made.getvalue()


def draw(sections: Sequence[Section]) -> bytes | None:
    """A PNG of the first sentences that fit; None where there is nothing to draw."""
    from matplotlib.figure import Figure

    drawn = [s for s in sections if s.weights and max(len(s.source), len(s.target)) <= WIDEST][
        :MOST
    ]
    if not drawn:
        return None
    heights = [2.0 + 0.3 * len(section.target) for section in drawn]
    width = 2.5 + 0.4 * max(len(section.source) for section in drawn)
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    grids = figure.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)
    for section, grid in zip(drawn, grids[:, 0], strict=True):
        grid.imshow(section.weights, cmap="Greys", vmin=0, vmax=1)
        grid.set_xticks(range(len(section.source)), labels(section.source), rotation=60)
        grid.set_yticks(range(len(section.target)), labels(section.target))
        for source, target in section.links:
            grid.plot(source, target, "o", color="tab:orange", markersize=5)
    return png(figure)


def labels(words: Sequence[Word]) -> list[str]:
    """Words as they are: to matplotlib, what stands between two dollars is a formula."""
    return [word.text.replace("$", r"\$") for word in words]


def draw_curves(curves: Mapping[str, Sequence[float]], across: str, up: str) -> bytes:
    """A PNG of positive numbers at 1, 2, 3, …, a line for each name, on a logarithmic scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, label=name)
    axes.set(xlabel=across, ylabel=up, yscale="log")
    axes.legend()
    return png(figure)


def draw_map(
    values: Sequence[Sequence[float]],
    down: Sequence[str],
    across: Sequence[str],
    name: str,
    marked: Sequence[tuple[int, int]] = (),
) -> bytes:
    """A PNG of a heat map, red above zero and blue below; `marked` cells (row, column) framed."""
    from matplotlib.figure import Figure

    size = 2.5 + 0.3 * len(across), 1.2 + 0.25 * len(down)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    most = max((abs(value) for row in values for value in row), default=1.0) or 1.0
    image = axes.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    axes.set_xticks(range(len(across)), across, fontsize=7)
    axes.set_yticks(range(len(down)), down, fontsize=7)
    axes.set(xlabel="head" if name == "heads" else "position" if name == "stream" else "")
    for row, column in marked:
        axes.plot(column, row, "s", markersize=9, markerfacecolor="none", color="black")
    figure.colorbar(image, label="share of the difference")
    return png(figure)


def draw_ladder(
    bars: Mapping[str, float],
    curves: Mapping[str, Sequence[tuple[float, float]]],
    names: tuple[str, str, str],
    logarithmic: bool,
) -> bytes:
    """A PNG: a bar for each rung and, where there are any, curves beside; `names` of the axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12 if curves else 6, 4.5), layout="constrained")
    left, *beside = figure.subplots(1, 2 if curves else 1, squeeze=False)[0]
    colours = {name: f"C{n}" for n, name in enumerate(bars)}  # of its bar and its curve
    drawn = left.barh(list(bars), list(bars.values()), color=list(colours.values()))
    left.bar_label(drawn, fmt="{:,.1f}", padding=3)
    left.margins(x=0.18)
    left.invert_yaxis()
    left.set(xlabel=names[0])
    for axes in beside:
        for name, points in curves.items():
            x, y = zip(*points, strict=True)
            axes.plot(x, y, marker="o", label=name, color=colours[name])
        axes.set(xlabel=names[1], ylabel=names[2], yscale="log" if logarithmic else "linear")
        figure.legend(loc="outside right center")
    return png(figure)
