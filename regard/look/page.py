"""The page of attention maps: one self-contained file of HTML, without network.

It shows all heads, one head large, heads off by click; `attention.js` and
`attention_map.js` draw it, `attention.css` dresses it. Maps travel deflated, in base64, and are
unpacked when they are looked at: of each map the counts (2 bytes a query), the gaps between keys
(2 bytes a link) and the weights (1 byte a link), little-endian.
"""

from __future__ import annotations

import html
import json
import zlib
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.look.results import AttentionMaps, HeadMap

if TYPE_CHECKING:
    from regard.look.results import Array


SHARES = 65_535  # steps of a probability from 0 to 1
ATTENTION_LEGEND = (
    "Each small square is a head: a row for each token that looks, a column for each token that "
    "is looked at. Click one to see it large; point at a token to see where it looks. Attention "
    "shows where a model looked, not all that it used."
)
EFFECTS_LEGEND = (
    " The number below a head is what switching it off does to the log-probability of the "
    "likeliest prediction at the chosen position; click it to switch the head off."
)
ATTENTION_BODY = """
<noscript>This page draws with JavaScript, which is switched off here.</noscript>
<main>
<div class="bar"><div id="stacks" class="choice" role="group" aria-label="attention"></div>
<div id="ways" class="choice" role="group" aria-label="direction"></div>
<div id="order" class="choice" role="group" aria-label="order of heads"></div>
<div id="weights" class="choice" role="group" aria-label="weights"></div></div>
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


def attention_page(maps: AttentionMaps) -> str:
    """All heads of a text, one head large, and what is predicted with and without each."""
    parts = (Path(__file__).with_name(f"attention{end}") for end in ("_map.js", ".js", ".css"))
    drawing, script, style = (part.read_text(encoding="utf-8") for part in parts)
    body, call = ATTENTION_BODY, maps.call
    if call is not None:
        given = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        body += f"<footer>made by <code>{html.escape(f'{call.function}({given})')}</code></footer>"
    legend = ATTENTION_LEGEND + (EFFECTS_LEGEND if maps.effects else "")

    def digest(text: str) -> str:  # what a policy calls the one script, or style, that may run
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    script, title = drawing + script, html.escape(maps.heading)
    policy = f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}"
    data = json.dumps(attention_data(maps), separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head>
<body><header><h1>{title}</h1><p class="legend">{legend}</p></header>
{body}
<script type="application/json" id="data">{data}</script>
<script>{script}</script></body></html>
"""


def attention_data(maps: AttentionMaps) -> dict[str, Any]:
    """All that the script reads. Words are told once, and named by their number in that list."""
    ids = np.array(sorted(maps.words))
    data: dict[str, Any] = {"sides": maps.tokens, "stacks": [], "whole": maps.whole}
    for stack in maps.maps:
        facts = [[[round(f.distance, 2), round(f.entropy, 2)] for f in row] for row in stack.facts]
        small = {"shape": stack.small.shape[2:], "data": pack_arrays([stack.small])}
        about = {"name": stack.stack, "sides": stack.sides, "kept": stack.kept, "facts": facts}
        heads = [[pack_map(one) for one in block] for block in stack.heads]
        norms = None if stack.norms is None else pack_arrays([stack.norms.astype("<f4")])
        packed = {"small": small, "maps": heads, "mean": pack_map(stack.mean), "norms": norms}
        data["stacks"].append(about | packed)
    data["forecast"] = None
    if maps.forecast is not None:
        data["forecast"] = {
            "tokens": np.searchsorted(ids, maps.forecast.tokens).tolist(),
            "shares": np.round(maps.forecast.probabilities.astype(float), 5).tolist(),
        }

    data["effects"] = {}
    for name, effects in maps.effects.items():
        arrays = [
            effects.changes.astype("<f4"),
            np.searchsorted(ids, effects.tokens).astype("<i4"),
            np.round(effects.probabilities * SHARES).astype("<u2"),
        ]
        shape = {"first": effects.first, "shape": effects.tokens.shape}
        data["effects"][name] = shape | {"data": pack_arrays(arrays)}
    return data | {"words": [maps.words[int(id)] for id in ids]}


def pack_map(one: HeadMap) -> str:
    """A map as text, a few bytes a link."""
    gaps = np.diff(one.keys.astype(np.int64), prepend=0)
    starts = np.cumsum(one.counts.astype(np.int64)) - one.counts
    starts = starts[one.counts > 0]
    gaps[starts] = one.keys[starts]  # the first key of a query is told whole
    return pack_arrays([one.counts.astype("<u2"), gaps.astype("<u2"), one.weights])


def pack_arrays(arrays: Iterable[Array]) -> str:
    """Arrays one after the other, deflated, in base64."""
    return b64encode(zlib.compress(b"".join(a.tobytes() for a in arrays), 6)).decode()
