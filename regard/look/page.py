"""Pages: one self-contained file of HTML, without network. Alignments, and attention maps.

A page of attention shows all heads, one head large, heads off by click; `attention.js` and
`attention_map.js` draw it, `attention.css` dresses it. Maps travel deflated, in base64, and are
unpacked when they are looked at: of each map the counts (2 bytes a query), the gaps between keys
(2 bytes a link) and the weights (1 byte a link), little-endian.
"""

from __future__ import annotations

import html
import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.look.results import AttentionMaps, HeadMap

if TYPE_CHECKING:
    from regard.look.results import Array


def make_page(
    title: str,
    legend: str,
    body: str,
    style: str,
    script: str,
    data: object = None,
    inline_styles: bool = False,
) -> str:
    """A whole page that may run this one script and fetch nothing.

    `data` is JSON for the script; `inline_styles` allows style attributes in the body.
    """

    def digest(text: str) -> str:  # what a policy calls the one script, or style, that may run
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    styles = "'unsafe-inline'" if inline_styles else digest(style)
    policy = f"default-src 'none'; script-src {digest(script)}; style-src {styles}"
    data_html = ""
    if data is not None:
        text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        data_html = f'<script type="application/json" id="data">{text}</script>\n'
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head>
<body><header><h1>{html.escape(title)}</h1><p class="legend">{legend}</p></header>
{body}
{data_html}<script>{script}</script></body></html>
"""


# Alignments: words light up with what they came from ----------------------------------------------

LEAST = 0.01  # smaller weights are not written


class AlignedWord(NamedTuple):
    """A word on the page."""

    before: str
    """Blanks between it and the word before it."""
    text: str
    hint: str
    """What is said of it when it is pointed at."""
    doubt: float = 0.0
    """How strongly it is underlined, 0 to 1."""


class AlignedSentence(NamedTuple):
    """A sentence and its translation."""

    source: list[AlignedWord]
    target: list[AlignedWord]
    weights: list[list[float]]
    """Of each target word on each source word, 0 to 1."""
    links: list[tuple[int, int]]
    """(source word, target word)."""
    notes: list[str]
    others: list[str]
    """Other translations, a line each."""


ALIGNMENT_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #6b6b6b;
  --light: 255, 176, 0; --rule: #ddd; --doubt: 200, 40, 40; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eee; --paper: #161616; --soft: #a0a0a0; --rule: #3a3a3a;
    --doubt: 255, 110, 110; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 1.1rem/1.9 system-ui, sans-serif; }
h1 { font-size: 1.3rem; } h1, .legend, .info, .notes, .others, details { line-height: 1.45; }
section { border-top: 1px solid var(--rule); padding: 1rem 0; }
.words { margin: .3rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.words span { border-radius: .25rem; padding: .1rem 0; cursor: default; }
.words span.linked { outline: 2px solid rgb(var(--light)); }
.words span:focus-visible, .words span.held { outline: 2px solid var(--ink); }
.source { color: var(--ink); } .target { font-weight: 600; }
.legend, .info, .others, details { color: var(--soft); font-size: .9rem; }
.info { min-height: 1.4em; margin: .2rem 0; } .notes { font-size: .95rem; margin: .4rem 0; }
"""

ALIGNMENT_SCRIPT = """
for (const section of document.querySelectorAll("section[data-weights]")) {
  const rows = JSON.parse(section.dataset.weights), links = JSON.parse(section.dataset.links);
  const sides = [...section.querySelectorAll(".words")].map(p => [...p.querySelectorAll("span")]);
  const info = section.querySelector(".info");
  const clear = () => {
    for (const word of sides.flat()) { word.style.background = ""; word.className = ""; }
    info.textContent = "";
  };
  const show = (side, at) => {
    clear();
    sides[side][at].className = "held";
    info.textContent = sides[side][at].dataset.hint;
    rows.forEach((row, t) => row.forEach(([s, weight]) => {
      const [own, other] = side ? [t, s] : [s, t];
      if (own === at) sides[1 - side][other].style.background = `rgba(var(--light), ${weight})`;
    }));
    for (const link of links)
      if (link[side] === at) sides[1 - side][link[1 - side]].className = "linked";
  };
  sides.forEach((words, side) => words.forEach((word, at) => {
    for (const event of ["mouseenter", "focus", "click"])
      word.addEventListener(event, () => show(side, at));
    for (const event of ["mouseleave", "blur"]) word.addEventListener(event, clear);
  }));
}
"""

ALIGNMENT_LEGEND = (
    "Point at a word, or step to it with the Tab key: the words it is aligned with are framed, and "
    "all are shaded by the weight that cross-attention gives them. Red underlines: above, words "
    "rare in training; below, words the model was unsure of. Attention shows where the model "
    "looked, not all that it used."
)


def alignment_page(title: str, sentences: Sequence[AlignedSentence]) -> str:
    """Sentences and their translations; pointing at a word shows what it is aligned with."""
    body = "\n".join(map(sentence_html, sentences))
    look = ALIGNMENT_STYLE, ALIGNMENT_SCRIPT
    return make_page(title, ALIGNMENT_LEGEND, body, *look, inline_styles=True)


def sentence_html(sentence: AlignedSentence) -> str:
    """One sentence: both sides, notes, and other translations."""

    def attribute(value: object) -> str:
        return html.escape(json.dumps(value, separators=(",", ":")))

    rows = [
        [[s, round(weight, 2)] for s, weight in enumerate(row) if weight >= LEAST]
        for row in sentence.weights
    ]
    data = f'data-weights="{attribute(rows)}" data-links="{attribute(sentence.links)}"'
    notes = "".join(f'<p class="notes">{html.escape(note)}</p>' for note in sentence.notes)
    listed = "".join(f"<li>{html.escape(other)}</li>" for other in sentence.others)
    others = f'<ol class="others">{listed}</ol>' if listed else ""
    return (
        f"<section {data}>{words_html('source', sentence.source)}"
        f'{words_html("target", sentence.target)}<p class="info" aria-live="polite"></p>'
        f"{notes}{others}</section>"
    )


def words_html(name: str, words: Sequence[AlignedWord]) -> str:
    """The words of one side, doubtful ones underlined."""
    spans = []
    for word in words:
        rule = f"border-bottom: 3px solid rgba(var(--doubt), {word.doubt:.2f})"
        style = f' style="{rule}"' if word.doubt > 0 else ""
        hint, text = html.escape(word.hint), html.escape(word.text)
        before = html.escape(word.before)
        spans.append(f'{before}<span tabindex="0" data-hint="{hint}"{style}>{text}</span>')
    return f'<p class="words {name}">{"".join(spans)}</p>'


# Attention ----------------------------------------------------------------------------------------

SHARES = 65_535  # steps of a probability from 0 to 1
ATTENTION_LEGEND = (
    "Each small square is a head: a row for each token that looks, a column for each token that "
    "is looked at. Click one to see it large; point at a token to see where it looks. The number "
    "below a head is what switching it off does to the log-probability of the likeliest prediction "
    "at the chosen position; click it to switch the head off, one at a time. Attention shows where "
    "a model looked, not all that it used."
)
ATTENTION_BODY = """
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


def attention_page(maps: AttentionMaps) -> str:
    """All heads of a text, one head large, and what is predicted with and without each."""
    parts = (Path(__file__).with_name(f"attention{end}") for end in ("_map.js", ".js", ".css"))
    drawing, script, style = (part.read_text(encoding="utf-8") for part in parts)
    body, call = ATTENTION_BODY, maps.call
    if call is not None:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        body += (
            f"<footer>made by <code>{html.escape(f'{call.function}({arguments})')}</code></footer>"
        )
    data = attention_data(maps)
    return make_page(maps.heading, ATTENTION_LEGEND, body, style, drawing + script, data)


def attention_data(maps: AttentionMaps) -> dict[str, Any]:
    """All that the script reads. Words are told once, and named by their number in that list."""
    ids = np.array(sorted(maps.words))
    data: dict[str, Any] = {"sides": maps.tokens, "stacks": [], "whole": maps.whole}
    for stack in maps.maps:
        facts = [[[round(f.distance, 2), round(f.entropy, 2)] for f in row] for row in stack.facts]
        small = {"shape": stack.small.shape[2:], "data": pack_arrays([stack.small])}
        about = {"name": stack.stack, "sides": stack.sides, "kept": stack.kept, "facts": facts}
        heads = [[pack_map(one) for one in block] for block in stack.heads]
        data["stacks"].append(about | {"small": small, "maps": heads, "mean": pack_map(stack.mean)})
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
