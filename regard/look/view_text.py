"""The terminal view of attention: heads in a table, and where each token looks, in 100 columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from regard.look.labels import cell_width, fit
from regard.look.view import Map, Maps, View

WIDTH = 100  # columns
HEADS = 10  # described one by one
ROWS = 40  # tokens whose links are shown
KEYS = 40  # columns of the heat map
LINKS = 3  # of a token
LABEL = 13  # columns of a token
CELL = 7  # columns of a head in the table
BLOCKS, PLAIN = " ▁▂▃▄▅▆▇█", " .:-=+*%@"


def text_view(view: View, stack: str | None, head: tuple[int, int] | None, blocks: bool) -> str:
    """Heads of a stack, then the links of one head (block, head), or of the mean of all."""
    maps = view.stack(stack)
    lines = [*heads_table(maps, BLOCKS if blocks else PLAIN), "", *described(view, maps), ""]
    name = "the mean of all heads" if head is None else f"head {head[0]}.{head[1]}"
    shown = maps.mean if head is None else maps.heads[head[0]][head[1]]
    return "\n".join([*lines, *links_table(view, maps, shown, name, blocks)])


def heads_table(maps: Maps, ramp: str) -> Iterator[str]:
    """Blocks × heads: mean distance and spread of each."""
    spread = f"{ramp[1]} looks at one token, {ramp[-1]} at all alike"
    yield f"{maps.stack}: mean distance of what each head looks at, in tokens; {spread}"
    most = math.log2(max(2, maps.mean.width))
    across = (WIDTH - CELL) // CELL
    for first in range(0, len(maps.facts[0]), across):
        heads = range(first, min(first + across, len(maps.facts[0])))
        yield f"{'block':{CELL}}" + "".join(f"{h:{CELL}}" for h in heads)
        for block, row in enumerate(maps.facts):
            yield f"{block:{CELL - 2}}  " + "".join(
                f"{row[h].distance:{CELL - 1}.1f}{spread_mark(row[h].entropy / most, ramp)}"
                for h in heads
            )


def spread_mark(share: float, ramp: str) -> str:
    """How spread attention is, 0 to 1."""
    return ramp[1 + min(len(ramp) - 2, int(share * (len(ramp) - 1)))]


def described(view: View, maps: Maps) -> Iterator[str]:
    """Some heads: those that do most for the last forecast, else those with the firmest link."""
    effects = view.effects.get(maps.stack)
    every = [(b, h) for b, row in enumerate(maps.facts) for h in range(len(row))]
    change = None if effects is None else effects.changes[..., -1]
    if change is None:
        every.sort(key=lambda at: -maps.facts[at[0]][at[1]].link[2])
        yield "head   distance  bits  strongest link"
    else:
        every.sort(key=lambda at: -abs(change[at]))
        where = "of the whole text" if view.whole else "at the last token"
        yield f"if off: change of the log-probability of the likeliest prediction {where}"
        yield "head   distance  bits  if off  strongest link"
    asking, seen = (view.sides[side] for side in maps.sides)
    for block, head in every[:HEADS]:
        fact = maps.facts[block][head]
        query, key, weight = fact.link
        off = "" if change is None else f"  {change[block, head]:+6.2f}"
        link = f"{bare(asking[query], 20)} → {bare(seen[key], 20)}  {weight:.0%}"
        name = f"{block}.{head}"
        yield f"{name:6} {fact.distance:8.1f} {fact.entropy:5.1f}{off}  {link}"


def bare(token: str, width: int) -> str:
    """A token without filling."""
    return fit(token, width).rstrip()


def links_table(view: View, maps: Maps, shown: Map, name: str, blocks: bool) -> Iterator[str]:
    """A line for each token: a heat map of short texts, and what it looks at most."""
    asking, seen = (view.sides[side] for side in maps.sides)
    first = max(0, len(asking) - ROWS)
    part = f" (the last {ROWS} of {len(asking):,} tokens)" if first else ""
    yield f"{maps.stack}, where each token looks: {name}{part}"
    hot = len(seen) <= KEYS
    ramp = BLOCKS if blocks else PLAIN
    dense = shown.dense() if hot else None
    for query in range(first, len(asking)):
        line = fit(asking[query], LABEL) + " "
        if dense is not None:
            line += f"|{''.join(heat(float(w), ramp) for w in dense[query])}| "
        room = WIDTH - cell_width(line)
        yield (line + listed(shown.links(query, LINKS), seen, room)).rstrip()


def heat(weight: float, ramp: str) -> str:
    """One cell; small weights are seen too."""
    return ramp[min(len(ramp) - 1, round(math.sqrt(weight) * (len(ramp) - 1)))]


def listed(links: list[tuple[int, float]], tokens: list[str], room: int) -> str:
    """As many links as there is room for."""
    made = ""
    for key, weight in links:
        more = f"{', ' if made else ''}{bare(tokens[key], 16)} {weight:.0%}"
        if cell_width(made + more) > room:
            break
        made += more
    return made


def forecast_line(view: View, name: Callable[[int], str]) -> str:
    """What is predicted at the last position, or of the whole text."""
    if view.forecast is None:
        return ""
    words = [bare(name(int(token)), 16) for token in view.forecast.tokens[-1]]
    shares = [float(share) for share in view.forecast.probabilities[-1]]
    where = "of the whole text" if view.whole else "at the last token"
    return f"predicted {where}: " + ", ".join(
        f"{word} {share:.1%}" for word, share in zip(words, shares, strict=True)
    )
