"""One self-contained page of alignments: words light up with what they came from. No network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import NamedTuple

LEAST = 0.01  # smaller weights are not written
GRID = 40  # words of either side above which there is no grid


class Word(NamedTuple):
    """A word on the page."""

    before: str
    """Blanks between it and the word before it."""
    text: str
    hint: str
    """What is said of it when it is pointed at."""
    doubt: float = 0.0
    """How strongly it is underlined, 0 to 1."""


class Section(NamedTuple):
    """A sentence and its translation."""

    source: list[Word]
    target: list[Word]
    weights: list[list[float]]
    """Of each target word on each source word, 0 to 1."""
    links: list[tuple[int, int]]
    """(source word, target word)."""
    notes: list[str]
    others: list[str]
    """Other translations, a line each."""


STYLE = """
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
table { border-collapse: collapse; font-size: .75rem; } td { width: 1.4rem; height: 1.4rem; }
td, th { border: 1px solid var(--rule); padding: .1rem .3rem; font-weight: 400; }
thead th { writing-mode: vertical-rl; } .scroll { overflow-x: auto; }
"""

SCRIPT = """
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

LEGEND = (
    "Point at a word, or step to it with the Tab key: the words it is aligned with are framed, and "
    "all are shaded by the weight that cross-attention gives them. Red underlines: above, words "
    "rare in training; below, words the model was unsure of. Attention shows where the model "
    "looked, not all that it used."
)


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole page."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    body = "\n".join(section_html(section) for section in sections)
    return f"""<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{STYLE}</style></head>
<body><h1>{html.escape(title)}</h1><p class="legend">{LEGEND}</p>
{body}
<script>{SCRIPT}</script></body></html>
"""


def section_html(section: Section) -> str:
    """One sentence."""
    rows = [
        [[s, round(weight, 2)] for s, weight in enumerate(row) if weight >= LEAST]
        for row in section.weights
    ]
    data = f'data-weights="{attribute(rows)}" data-links="{attribute(section.links)}"'
    notes = "".join(f'<p class="notes">{html.escape(note)}</p>' for note in section.notes)
    listed = "".join(f"<li>{html.escape(other)}</li>" for other in section.others)
    others = f'<ol class="others">{listed}</ol>' if listed else ""
    return (
        f"<section {data}>{line_html('source', section.source)}"
        f'{line_html("target", section.target)}<p class="info" aria-live="polite"></p>'
        f"{notes}{others}{grid_html(section)}</section>"
    )


def attribute(value: object) -> str:
    """JSON inside an attribute."""
    return html.escape(json.dumps(value, separators=(",", ":")))


def line_html(name: str, words: Sequence[Word]) -> str:
    """The words of one side."""
    spans = "".join(
        f'{html.escape(w.before)}<span tabindex="0" data-hint="{html.escape(w.hint)}"'
        f"{underline(w.doubt)}>{html.escape(w.text)}</span>"
        for w in words
    )
    return f'<p class="words {name}">{spans}</p>'


def underline(doubt: float) -> str:
    """The style of a doubtful word."""
    rule = f"border-bottom: 3px solid rgba(var(--doubt), {doubt:.2f})"
    return f' style="{rule}"' if doubt > 0 else ""


def grid_html(section: Section) -> str:
    """All weights of a short sentence as a table."""
    if not section.weights or max(len(section.source), len(section.target)) > GRID:
        return ""
    head = "".join(f"<th>{html.escape(w.text)}</th>" for w in section.source)
    rows = "".join(
        f"<tr><th>{html.escape(word.text)}</th>{''.join(cell_html(w) for w in row)}</tr>"
        for word, row in zip(section.target, section.weights, strict=True)
    )
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<details><summary>all weights</summary><div class="scroll">{table}</div></details>'


def cell_html(weight: float) -> str:
    """One weight."""
    style = f"background: rgba(var(--light), {weight:.2f})"
    return f'<td style="{style}" title="{weight:.2f}"></td>'
