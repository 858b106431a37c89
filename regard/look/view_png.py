"""Attention as a PNG: all heads of a stack, or one head with its tokens. Needs matplotlib."""

from __future__ import annotations

from regard.look.labels import fit
from regard.look.picture import png
from regard.look.view import LEVELS, Maps, View

NAMED = 80  # tokens of a side that can be named


def draw_heads(view: View, stack: str | None) -> bytes:
    """A small map of each head: a row for each block, a column for each head."""
    from matplotlib.figure import Figure

    maps = view.stack(stack)
    blocks, heads = maps.small.shape[:2]
    figure = Figure(figsize=(1 + 0.9 * heads, 1 + 0.9 * blocks), layout="constrained")
    figure.suptitle(f"{maps.stack}: a row for each block, a column for each head")
    for block, row in enumerate(figure.subplots(blocks, heads, squeeze=False)):
        for head, axes in enumerate(row):
            weights = maps.small[block, head] / LEVELS
            axes.imshow(weights**0.5, cmap="Oranges", vmin=0, vmax=1, aspect="auto")
            axes.set(xticks=[], yticks=[], title=str(head) if block == 0 else "")
        row[0].set_ylabel(str(block), rotation=0, labelpad=12)
    return png(figure)


def draw_head(view: View, stack: str | None, head: tuple[int, int]) -> bytes:
    """One head (block, head); tokens are named where there are not too many."""
    from matplotlib.figure import Figure

    maps = view.stack(stack)
    weights = maps.heads[head[0]][head[1]].dense().numpy()
    size = [min(30.0, 3 + 0.22 * n) for n in reversed(weights.shape)]
    figure = Figure(figsize=(size[0], size[1]), layout="constrained")
    axes = figure.subplots()
    drawn = axes.imshow(weights**0.5, cmap="Oranges", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(f"{maps.stack}, block {head[0]}, head {head[1]}")
    for name, tokens in zip("yx", labels(view, maps), strict=True):
        if len(tokens) <= NAMED:
            turned = {"rotation": 90} if name == "x" else {}
            getattr(axes, f"set_{name}ticks")(range(len(tokens)), tokens, **turned)
    axes.set(xlabel=f"{maps.sides[1]}: looked at", ylabel=f"{maps.sides[0]}: looks")
    bar = figure.colorbar(drawn, ticks=[0, 0.1**0.5, 0.5**0.5, 1], shrink=0.6)
    bar.set_ticklabels(["0", "0.1", "0.5", "1"])
    return png(figure)


def labels(view: View, maps: Maps) -> list[list[str]]:
    """Tokens of both sides; a dollar is no formula."""
    return [
        [fit(token, 16).rstrip().replace("$", r"\$") for token in view.sides[side]]
        for side in maps.sides
    ]
