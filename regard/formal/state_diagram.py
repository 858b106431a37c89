"""Pictures of automata: DOT text, and a picture by matplotlib."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import ResourceError
from regard.files import write_whole
from regard.formal.dfa import DFA
from regard.result import Result

MAX_STATES = 60  # that arrows of matplotlib leave readable

Arrows = dict[tuple[int, int], str]
"""From a state to a state: what is written at the arrow."""


def arrows(dfa: DFA, dead: bool = False) -> Arrows:
    """One arrow for each pair of states; those of the dead state only when asked for."""
    symbols: dict[tuple[int, int], list[str]] = {}
    for state, row in enumerate(dfa.moves):
        for symbol, target in zip(dfa.alphabet, row, strict=True):
            symbols.setdefault((state, target), []).append(symbol)
    shown = dfa.live | {dfa.start}
    return {
        pair: label(dfa, read)
        for pair, read in symbols.items()
        if dead or (pair[0] in shown and pair[1] in shown)
    }


def label(dfa: DFA, symbols: list[str]) -> str:
    """The symbols, or those that are missing where these are fewer."""
    rest = [symbol for symbol in dfa.alphabet if symbol not in symbols]
    if not rest and len(symbols) > 2:
        return "any"
    if len(rest) < len(symbols) - 1 and rest:
        return f"not {', '.join(rest)}"
    return ", ".join(symbols)


def dot(dfa: DFA, dead: bool = False) -> str:
    """The automaton in the language of Graphviz; double circles accept."""
    drawn = arrows(dfa, dead)
    states = sorted({dfa.start} | {state for pair in drawn for state in pair})
    lines = ["digraph {", "  rankdir=LR", '  begin [shape=none, label=""]']
    for state in states:
        shape = "doublecircle" if state in dfa.accepting else "circle"
        lines.append(f"  {state} [shape={shape}]")
    lines.append(f"  begin -> {dfa.start}")
    for (state, target), text in drawn.items():
        lines.append(f"  {state} -> {target} [label={json.dumps(text, ensure_ascii=False)}]")
    return "\n".join([*lines, "}", ""])


class AutomatonResult(Result):
    """A result that can be drawn as an automaton."""

    def drawn(self) -> tuple[DFA, bool]:
        """The automaton, and whether its dead state is shown."""
        raise NotImplementedError

    def plot(self) -> Any:
        """The automaton as a matplotlib figure."""
        return draw_automaton(*self.drawn())

    def save(self, path: str | Path) -> None:
        """Write the automaton as .dot or .gv, or the result in any other form."""
        if Path(path).suffix in (".dot", ".gv"):
            write_whole(Path(path), dot(*self.drawn()).encode())
        else:
            super().save(path)


def layers(dfa: DFA, drawn: Arrows) -> dict[int, tuple[float, float]]:
    """A place for each state: to the right by its distance from the start, spread up and down."""
    depth, queue = {dfa.start: 0}, [dfa.start]
    for state in queue:
        for source, target in drawn:
            if source == state and target not in depth:
                depth[target] = depth[state] + 1
                queue.append(target)
    columns: dict[int, list[int]] = {}
    for state, column in depth.items():
        columns.setdefault(column, []).append(state)
    return {
        state: (2.2 * column, 1.9 * ((len(states) - 1) / 2 - n) + 0.35 * (column % 2))
        for column, states in columns.items()
        for n, state in enumerate(states)
    }


def draw_automaton(dfa: DFA, dead: bool = False) -> Any:
    """The picture, a matplotlib figure: states in columns, arrows as arcs."""
    doing = "drawing an automaton"
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Circle
    except ImportError:
        fix = "pip install 'regard[plot]', or write .dot"
        raise ResourceError(doing, "matplotlib is not installed", fix=fix) from None
    drawn = arrows(dfa, dead)
    places = layers(dfa, drawn)
    if len(places) > MAX_STATES:
        fix = "Graphviz can: write .dot"
        raise ResourceError(doing, f"{len(places)} states", f"{MAX_STATES} at most", fix)
    wide = max(x for x, _ in places.values()) + 2.0
    high = max(y for _, y in places.values()) - min(y for _, y in places.values()) + 2.6
    figure = Figure(figsize=(wide, high))
    axes = figure.add_axes((0, 0, 1, 1), frameon=False, aspect="equal")
    low = min(y for _, y in places.values()) - 1.2
    axes.set(xlim=(-1.3, wide - 1.3), ylim=(low, low + high), xticks=[], yticks=[])
    for (state, target), text in drawn.items():
        draw_arrow(axes, places, (state, target), text)
    for state, place in places.items():
        rings = (0.4, 0.33) if state in dfa.accepting else (0.4,)
        for radius in rings:
            axes.add_patch(Circle(place, radius, facecolor="white", edgecolor="black", zorder=2))
        axes.annotate(str(state), place, ha="center", va="center", zorder=3)
    x, y = places[dfa.start]
    arrow = {"arrowstyle": "-|>", "color": "black"}
    axes.annotate("", (x - 0.4, y), (x - 1.1, y), arrowprops=arrow)
    return figure


def draw_arrow(
    axes: Any, places: Mapping[int, tuple[float, float]], pair: tuple[int, int], text: str
) -> None:
    """One arc between two circles, or a loop above one, with its symbols."""
    from matplotlib.patches import FancyArrowPatch

    (x, y), (u, v) = places[pair[0]], places[pair[1]]
    loop = pair[0] == pair[1]
    begin, end = ((x - 0.2, y + 0.34), (x + 0.2, y + 0.34)) if loop else ((x, y), (u, v))
    size = (u - x) ** 2 + (v - y) ** 2
    bend = -2.2 if loop else 0.22
    shape: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 12, "color": "0.25"}
    shape |= {"connectionstyle": f"arc3,rad={bend}", "zorder": 1}
    shape |= {} if loop else {"shrinkA": 30, "shrinkB": 30}
    axes.add_patch(FancyArrowPatch(begin, end, **shape))
    if loop:
        place = (x, y + 0.95)
    else:  # the middle of the arc, which bends to the right of its way
        side = bend / 2 + 0.14 / size**0.5
        place = ((x + u) / 2 + side * (v - y), (y + v) / 2 - side * (u - x))
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.annotate(text, place, ha="center", va="center", fontsize=9, bbox=box, zorder=3)
