"""One self-contained page of attention: all heads, one head large, heads off by click. No network.

`view.js` and `view_map.js` draw it, `view.css` dresses it. Maps travel deflated, in base64, and are
unpacked when they are looked at: of each map the counts (2 bytes a query), the gaps between keys
(2 bytes a link) and the weights (1 byte a link), little-endian.
"""

from __future__ import annotations

import html
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from regard.look.view import Array, Effects, Map, Maps, View

SHARES = 65_535  # steps of a probability from 0 to 1
LEGEND = (
    "Each small square is a head: a row for each token that looks, a column for each token that "
    "is looked at. Click one to see it large; point at a token to see where it looks. The number "
    "below a head is what switching it off does to the log-probability of the likeliest prediction "
    "at the chosen position; click it to switch the head off, one at a time. Attention shows where "
    "a model looked, not all that it used."
)
BODY = """
<noscript>This page draws with JavaScript, which is switched off here.</noscript>
<main>
<div class="bar"><div id="stacks" class="choice" role="group" aria-label="attention"></div>
<div id="ways" class="choice" role="group" aria-label="direction"></div></div>
<section id="sides" aria-label="tokens"></section>
<p id="said" aria-live="polite"></p>
<div class="both">
<section id="overview" aria-label="heads"><div id="grid"></div></section>
<section id="detail" aria-label="one head"><h2 id="which"></h2>
<div class="bar"><div id="zoom" class="choice" role="group" aria-label="zoom"></div>
<button id="switch" type="button"></button></div>
<canvas id="map" tabindex="0" role="img"></canvas>
<p id="cell"></p><div id="forecast"></div></section>
</div>
</main>
"""


def view_page(view: View, title: str, name: Callable[[int], str], command: str = "") -> str:
    """The whole page; `name` spells a predicted token or class."""
    script, style = part("view_map.js") + part("view.js"), part("view.css")
    policy = f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}"
    data = json.dumps(page_data(view, name), separators=(",", ":")).replace("<", "\\u003c")
    made = f"<footer>made by <code>{html.escape(command)}</code></footer>" if command else ""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head>
<body><header><h1>{html.escape(title)}</h1><p class="legend">{LEGEND}</p></header>{BODY}{made}
<script type="application/json" id="data">{data}</script>
<script>{script}</script></body></html>
"""


def part(name: str) -> str:
    """A file beside this one."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """What a policy calls the one script, or style, that may run."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def page_data(view: View, name: Callable[[int], str]) -> dict[str, Any]:
    """All that the script reads."""
    words = Words(name)
    made: dict[str, Any] = {
        "sides": view.sides,
        "stacks": [stack_data(maps) for maps in view.maps],
        "whole": view.whole,
        "forecast": None,
        "effects": {stack: effects_data(e, words) for stack, e in view.effects.items()},
    }
    if view.forecast is not None:
        made["forecast"] = {
            "tokens": words.numbers(view.forecast.tokens).tolist(),
            "shares": np.round(view.forecast.probabilities.astype(float), 5).tolist(),
        }
    return made | {"words": words.listed}


class Words:
    """The words of all forecasts, each once."""

    def __init__(self, name: Callable[[int], str]) -> None:
        self.name = name
        self.listed: list[str] = []
        self.known: dict[int, int] = {}

    def numbers(self, tokens: Array) -> Array:
        """Tokens by their number on the page."""
        found, inverse = np.unique(tokens, return_inverse=True)
        return np.array([self.number(int(token)) for token in found], np.int32)[inverse].reshape(
            tokens.shape
        )

    def number(self, token: int) -> int:
        """The number of one token."""
        if token not in self.known:
            self.known[token] = len(self.listed)
            self.listed.append(self.name(token))
        return self.known[token]


def stack_data(maps: Maps) -> dict[str, Any]:
    """Maps of one kind of attention."""
    return {
        "name": maps.stack,
        "sides": maps.sides,
        "kept": maps.kept,
        "facts": [[[round(f.distance, 2), round(f.entropy, 2)] for f in row] for row in maps.facts],
        "small": {"shape": maps.small.shape[2:], "data": packed([maps.small])},
        "maps": [[pack(one) for one in block] for block in maps.heads],
        "mean": pack(maps.mean),
    }


def effects_data(effects: Effects, words: Words) -> dict[str, Any]:
    """What becomes of forecasts: changes, then tokens, then shares."""
    return {
        "first": effects.first,
        "shape": effects.tokens.shape,
        "data": packed(
            [
                effects.changes.astype("<f4"),
                words.numbers(effects.tokens).astype("<i4"),
                np.round(effects.probabilities * SHARES).astype("<u2"),
            ]
        ),
    }


def pack(one: Map) -> str:
    """A map as text."""
    gaps = np.diff(one.keys.astype(np.int64), prepend=0)
    starts = np.cumsum(one.counts.astype(np.int64)) - one.counts
    starts = starts[one.counts > 0]
    gaps[starts] = one.keys[starts]  # the first key of a query is told whole
    return packed([one.counts.astype("<u2"), gaps.astype("<u2"), one.weights])


def unpack(text: str, queries: int, width: int) -> Map:
    """The inverse of `pack`."""
    data = zlib.decompress(b64decode(text))
    counts = np.frombuffer(data, "<u2", queries)
    links = int(counts.sum())
    gaps = np.frombuffer(data, "<u2", links, 2 * queries).astype(np.int64)
    starts = np.repeat(np.cumsum(counts.astype(np.int64)) - counts, counts)
    before = np.concatenate([[0], np.cumsum(gaps)])[starts]
    keys = (np.cumsum(gaps) - before).astype(np.uint16)
    return Map(counts, keys, np.frombuffer(data, np.uint8, links, 2 * (queries + links)), width)


def packed(arrays: Iterable[Array]) -> str:
    """Arrays one after the other, deflated, in base64."""
    return b64encode(zlib.compress(b"".join(a.tobytes() for a in arrays), 6)).decode()
