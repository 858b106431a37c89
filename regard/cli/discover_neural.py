"""`regard discover --neural`: what a small Transformer makes of the same lines."""

from __future__ import annotations

from typing import Any

from regard.ambient import choose_device
from regard.cli.show import Show
from regard.formal.state_diagram import dot
from regard.rules.discovery import Discovery
from regard.rules.study import Study, study
from regard.rules.tiny_transformer import NetworkConfig

SHOWN = 12  # states up to which an automaton is printed


def run_study(found: Discovery, seed: int, device: str, seconds: float, show: Show) -> Study:
    """Train, validate and open a network; the best rule, if there is one, is held beside it."""
    best = found.hypotheses[0].rule.compile() if found.hypotheses else None
    words = [tuple(line.tokens) for line in found.lines]
    labels = [line.positive for line in found.lines]
    with show.progress("training networks") as progress:

        def watch(doing: str, share: float) -> None:
            progress(f"{doing}, {share:.0%}")

        config = NetworkConfig(seed=seed)
        return study(words, labels, best, config, choose_device(device), seconds, watch)


def print_study(made: Study, rule: str, blank: str, show: Show) -> None:
    """For people."""
    checked, automaton, edits = made.validation, made.automaton, made.edits
    by_seed = ", ".join(f"{share:.1%}" for share in checked.seeds)
    who = "taught the best rule" if made.taught else "trained on the lines"
    lines = {
        "left-out lines": f"{checked.accuracy:.1%} right in {checked.folds} folds, "
        f"by seed {by_seed}; always the same answer: {checked.majority:.1%}",
        f"a network {who}": f"{made.accuracy:.1%} of the lines"
        + (", none of which it saw" if made.taught else ", which it saw"),
    }
    if made.agreement is not None:
        lines["it and the rule"] = f"{made.agreement:.1%} of fresh strings alike"
        lines["one symbol replaced"] = (
            f"both change their answer, or both keep it: {edits.agreement:.1%} of {edits.edits:,}"
        )
    flips = [f"{symbol} {share:.0%}" for symbol, share in list(edits.symbols.items())[:6]]
    lines["which replaced symbols change it"] = ", ".join(flips)
    lines["its automaton"] = (
        f"{len(automaton.dfa.moves)} states, {automaton.agreement:.1%} of "
        f"{automaton.fresh:,} fresh strings alike, {automaton.queries:,} questions"
    )
    show.fields(f"a Transformer of two blocks and two heads; rule: {rule}", lines)
    for word, said in automaton.differs[:3]:
        show.line(f"  they differ: {blank.join(word)} (network: {'yes' if said else 'no'})")
    rows = [
        [
            f"{use.block}.{use.head}",
            f"{use.kept:.0%}",
            f"{use.flips:.0%}",
            ", ".join(f"{a} → {b} ×{lift:.1f}" for a, b, lift in use.looks),
        ]
        for use in made.heads
    ]
    columns = ["head", "margin left", "answers changed", "looks most, beside an equal share"]
    show.table("what is left without a head (its mean instead)", columns, rows, left=1)
    if len(automaton.dfa.moves) <= SHOWN:
        show.line("\nautomaton of the network (DOT)")
        show.line(dot(automaton.dfa))


def study_data(made: Study, blank: str) -> dict[str, Any]:
    """For machines."""
    automaton = made.automaton
    return {
        "cross_validated": made.validation.accuracy,
        "by_seed": list(made.validation.seeds),
        "folds": made.validation.folds,
        "majority": made.validation.majority,
        "taught": made.taught,
        "accuracy": made.accuracy,
        "agreement_with_rule": made.agreement,
        "edits": made.edits._asdict(),
        "automaton": {
            "states": len(automaton.dfa.moves),
            "agreement": automaton.agreement,
            "fresh": automaton.fresh,
            "queries": automaton.queries,
            "exact": automaton.exact,
            "differs": [
                {"text": blank.join(word), "network": said} for word, said in automaton.differs
            ],
            "dot": dot(automaton.dfa) if len(automaton.dfa.moves) <= SHOWN else None,
        },
        "heads": [use._asdict() for use in made.heads],
    }
