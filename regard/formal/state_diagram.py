"""Automata as DOT text, which Graphviz draws."""

from __future__ import annotations

import json
from pathlib import Path

from regard.files import write_whole
from regard.formal.dfa import DFA
from regard.result import Result


def arrows(dfa: DFA) -> dict[tuple[int, int], str]:
    """What is written at the arrow from a state to a state; none leads to the dead state."""
    symbols: dict[tuple[int, int], list[str]] = {}
    for state, row in enumerate(dfa.moves):
        for symbol, target in zip(dfa.alphabet, row, strict=True):
            symbols.setdefault((state, target), []).append(symbol)
    shown = dfa.live | {dfa.start}
    return {
        pair: label(dfa, read)
        for pair, read in symbols.items()
        if pair[0] in shown and pair[1] in shown
    }


def label(dfa: DFA, symbols: list[str]) -> str:
    """The symbols, or those that are missing where these are fewer."""
    rest = [symbol for symbol in dfa.alphabet if symbol not in symbols]
    if not rest and len(symbols) > 2:
        return "any"
    if len(rest) < len(symbols) - 1 and rest:
        return f"not {', '.join(rest)}"
    return ", ".join(symbols)


def dot(dfa: DFA) -> str:
    """The automaton in the language of Graphviz; double circles accept."""
    drawn = arrows(dfa)
    lines = ["digraph {", "  rankdir=LR", '  begin [shape=none, label=""]']
    for state in sorted({dfa.start} | {state for pair in drawn for state in pair}):
        shape = "doublecircle" if state in dfa.accepting else "circle"
        lines.append(f"  {state} [shape={shape}]")
    lines.append(f"  begin -> {dfa.start}")
    for (state, target), text in drawn.items():
        lines.append(f"  {state} -> {target} [label={json.dumps(text, ensure_ascii=False)}]")
    return "\n".join([*lines, "}", ""])


class AutomatonResult(Result):
    """A result that has an automaton."""

    def drawn(self) -> DFA:
        """The automaton."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write the automaton as .dot or .gv, or the result in any other form."""
        if Path(path).suffix in (".dot", ".gv"):
            write_whole(Path(path), dot(self.drawn()).encode())
        else:
            super().save(path)
